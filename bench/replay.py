"""Plays the schedules of a stored run again, and makes a schedule smaller while it still breaks.

A case is called after the schedule that it plays: an empty one is ``none``. What ``shrink`` runs
are tries (``results.store.TRY_OF``), evidence for nothing: their outcome decided which was kept.

The same faults begin at the same times, on the same targets where the roles allow it, with the same
draws. How processes and servers interleave is not replayed, so what broke once may not break again:
the answer is k of N.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from bench.errors import BadInput
from bench.plan import Case, check, draw
from bench.suite import Finished
from nemesis.schedule import without
from results import tables
from results.store import NotARun, open_run

# How often a smaller schedule may be tried before its violation counts as gone.
SHRINK_TRIES = 3
HONEST = (
    "The same schedule was played; how processes interleave is not replayed, so k of n is the "
    "answer."
)
Runner = Callable[[list[Case], str], Finished]


def stored_cases(folder: Path) -> list[Case]:
    """The cases of a run's plan, fully resolved. Raises BadInput."""
    try:
        plan = open_run(folder).plan()
        cases = [_named(Case.from_json(entry)) for entry in plan["cases"]]
    except (NotARun, OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder} holds no plan that can be played again: {error}") from error
    if not cases:
        raise BadInput(f"{folder}: its plan holds no case")
    for case in cases:
        check(case)
    return cases


def replay(folder: Path, times: int, run: Runner) -> Finished:
    """Plays every case of a run ``times`` times; the results say k of n under ``replay``."""
    if times < 1:
        raise BadInput(f"--times is {times}; it has to be more than 0")
    cases = stored_cases(folder)
    finished = run([case for case in cases for _ in range(times)], f"replay-{where(folder).name}")
    documents = finished.results["cases"]
    finished.results["replay"] = {
        "of": str(where(folder)),
        "times": times,
        "honest": HONEST,
        "cases": [
            {"case": case.name, "shown": shown(documents[i * times : (i + 1) * times])}
            for i, case in enumerate(cases)
        ],
    }
    open_run(finished.folder).write_results(finished.results)
    return finished


def where(folder: Path) -> Path:
    """The run itself and not a link to the latest one, from where the command was called."""
    return Path(os.path.relpath(folder.resolve()))


def shown(documents: Sequence[dict[str, Any]]) -> dict[str, int]:
    """Verdict → in how many of these runs of a case it was invalid."""
    return dict(
        Counter(v for d in documents for v, result in d["observed"].items() if result == "invalid")
    )


def say(results: dict[str, Any], console: Console) -> None:
    """k of n, a line a case."""
    told = results["replay"]
    for entry in told["cases"]:
        broke = [f"{verdict} {k} of {told['times']}" for verdict, k in entry["shown"].items()]
        nothing = f"nothing broke in {told['times']}"
        console.print(f"{entry['case']}: {', '.join(broke) or nothing}", highlight=False)
    console.print(told["honest"], highlight=False)


def shrink(folder: Path, run: Runner, console: Console) -> tuple[Finished, Case]:
    """Drops faults, one by one, for as long as some verdict that broke in the stored run still
    breaks within three tries. ``run`` makes tries; the last one that broke is kept as a run, and
    answered with its case."""
    cases = stored_cases(folder)
    if len(cases) != 1:
        raise BadInput(f"{folder} holds {len(cases)} cases; --shrink takes a run of one")
    (case,) = cases
    wanted = _broken(folder)
    finished = _shows(case, wanted, run)
    if finished is None:
        raise BadInput(
            f"{', '.join(sorted(wanted))} did not show again in {SHRINK_TRIES} tries of the whole "
            "schedule; --replay with more --times says how often it does"
        )
    index = 0
    while index < len(case.injections):
        smaller = _named(replace(case, injections=without(case.injections, index)))
        again = _shows(smaller, wanted, run)
        gone = case.injections[index].fault
        console.print(
            f"without {gone} at {case.injections[index].begin_s:g} s: "
            f"{'it does not show' if again is None else 'it still shows'}",
            highlight=False,
        )
        if again is None:
            index += 1
        else:
            case, finished = smaller, again
    return _kept(finished, f"shrunk-{where(folder).name}"), case


def _kept(finished: Finished, name: str) -> Finished:
    run = open_run(finished.folder).keep(name)
    results = run.results()
    for file, text in tables.files(run, results).items():
        run.write_text(file, text)
    return Finished(finished.ending, run.path, results)


def _named(case: Case) -> Case:
    """The case, called after its schedule where its fault's words stand for another one."""
    try:
        drawn = draw(case)
    except BadInput:
        drawn = ()
    if [i.fault for i in drawn] == [i.fault for i in case.injections]:
        return case
    return replace(case, fault=schedule_words(case))


def schedule_words(case: Case) -> str:
    """The schedule as ``--fault`` takes it."""
    return (
        "+".join(
            ":".join(
                [
                    i.fault,
                    f"at={i.begin_s:g}",
                    f"for={i.duration_s:g}",
                    *(f"{key}={_plain(value)}" for key, value in i.parameters),
                ]
            )
            for i in case.injections
        )
        or "none"
    )


def _plain(value: object) -> str:
    return format(value, "g") if isinstance(value, float) else str(value)


def _broken(folder: Path) -> set[str]:
    try:
        results = open_run(folder).results()
        broken = {v for d in results["cases"] for v, r in d["observed"].items() if r == "invalid"}
    except (NotARun, OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no results: {error}") from error
    if not broken:
        raise BadInput(f"nothing broke in {folder}: there is nothing to shrink")
    return broken


def _shows(case: Case, wanted: set[str], run: Runner) -> Finished | None:
    for _ in range(SHRINK_TRIES):
        finished = run([case], "shrink-try")
        (document,) = finished.results["cases"]
        if wanted & set(shown([document])):
            return finished
    return None
