"""Plays the schedules of a stored run again, and makes a schedule smaller while it still breaks.

A case is called after the schedule that it plays: an empty one is ``none``. What ``shrink`` runs
are tries (``try_of`` of their plan), evidence for nothing: their outcome decided which was kept.

The same faults begin at the same times, on the same targets where the roles allow it, with the same
draws. How processes and servers interleave is not replayed, so what broke once may not break again:
the answer is k of n, and n are the times that say anything.

A plan may name a lock by its file, and images of servers. Whoever made the run folder chose them,
so they are run only if the caller says that the user agreed (``trusted``); ``foreign`` says what to
ask for. A schedule file that a plan names is not read: the plan holds what was drawn from it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec.structs import replace as evolved
from rich.console import Console

from lockbench.bench.plan import (
    Case,
    draw,
    find_system,
    refuse_impossible,
    steps_of,
    topology_of,
    unknown,
)
from lockbench.bench.suite import Finished
from lockbench.clusters.registry import topologies
from lockbench.locks.registry import digest, files_of, is_own
from lockbench.nemesis.registry import faults
from lockbench.nemesis.schedule import RANDOM, ScheduleError, check_contradictions, without
from lockbench.report import write
from lockbench.results import documents
from lockbench.results.cases import attempts, counts_as_try, proven, results_of
from lockbench.results.documents import Replay, Replayed
from lockbench.results.errors import BadInput
from lockbench.results.store import NotARun, open_run

# How often a smaller schedule may be tried before its violation counts as gone.
SHRINK_TRIES = 3
HONEST = (
    "The same schedule was played; how processes interleave is not replayed, so k of n is the "
    "answer."
)
Runner = Callable[[list[Case], str], Finished]


def foreign(folder: Path) -> list[str]:
    """What playing a run again would run that is not the bench's own, one sentence each: files of
    locks, and images. Runs nothing. Raises BadInput."""
    cases = _planned(folder)
    said = [_file(folder, lock) for lock in dict.fromkeys(case.lock for case in cases)]
    images = dict.fromkeys(pair for case in cases for pair in case.images)
    said += [f"{ref!r} as the image {name!r}" for name, ref in images]
    return [sentence for sentence in said if sentence]


def _file(folder: Path, lock: str) -> str:
    """What the lock would run; empty for one that is declared here."""
    if not is_own(lock):
        return ""
    files, spec = files_of(lock), repr(lock)
    of_library = len(files) > 1
    place = files[0].parent if of_library else files[0]
    if not files[0].is_file():
        raise BadInput(f"{folder} was made with the lock {spec}, and there is no file {files[0]}")
    lies = folder.resolve() in files[0].parents
    inside = ", which lies in the run folder itself" if lies else ""
    now = digest([path for path in files if path.is_file()])
    try:
        was = (open_run(folder).versions().own or {})[lock].sha256
    except (NotARun, KeyError):
        was = None
    compared = "the run did not record another"
    if was is not None:
        compared = "as the run recorded it" if was == now else f"the run recorded {was}"
    what = "library, whose requirements are installed, in" if of_library else "Python file"
    return f"the {what} {str(place)!r}{inside}, for the lock {spec} (sha256 {now}; {compared})"


def stored_cases(folder: Path, *, trusted: bool = False) -> list[Case]:
    """The cases of a run's plan, fully resolved. Raises BadInput, also where they would run what is
    ``foreign`` and that is not ``trusted``."""
    said = [] if trusted else foreign(folder)
    if said:
        raise BadInput(f"{folder} is played only if you trust it: it would run {'; '.join(said)}")
    cases = []
    for case in _planned(folder):
        find_system(case.lock)
        _check_names(case)
        cases.append(_named(case))
        refuse_impossible(cases[-1])
    return cases


def _check_names(case: Case) -> None:
    """Raises BadInput for what a plan of this bench does not say."""
    _check_places(case)
    if case.topology not in topologies():
        raise unknown("topology", case.topology, topologies())
    for name, _ in case.images:
        if name not in topology_of(case).images:
            raise unknown("image of these cases", name, topology_of(case).images)
    for one in case.injections:
        if one.fault not in faults():
            raise unknown("fault", one.fault, faults())
        known, said = faults()[one.fault].parameters, dict(one.parameters)
        if known.keys() != said.keys():
            raise BadInput(f"{one.fault} takes {', '.join(known) or 'nothing'}; the plan differs")
        try:
            for name, value in said.items():
                known[name].read(_plain(value))
        except ValueError as error:
            raise BadInput(f"{one.fault}:{name}={said[name]!r}: {error}") from error
    try:
        check_contradictions(case.injections)
    except ScheduleError as error:
        raise BadInput(str(error)) from error


def _check_places(case: Case) -> None:
    """Raises BadInput for a case that took more than this machine."""
    if case.cluster is not None:
        raise BadInput(
            f"it was run on your own cluster that {case.cluster!r} names: run it there "
            f"again with --lock {case.lock} --fault '{case.fault}' --cluster FILE"
        )
    if case.machines is not None:
        raise BadInput(
            f"its load came from the machines that {case.machines!r} names: run it again with"
            f" --lock {case.lock} --fault '{case.fault}' --machines FILE"
        )
    if case.hosts is not None:
        raise BadInput(
            f"its nodes were on the hosts that {case.hosts!r} names: run it again with"
            f" --lock {case.lock} --fault '{case.fault}' --hosts FILE"
        )


def _planned(folder: Path) -> list[Case]:
    if ref := _instead(folder):
        raise BadInput(f"{folder} was made with {ref}; run its cases again with the same REF")
    try:
        cases = [Case.from_plan(planned) for planned in open_run(folder).plan().cases]
    except (NotARun, OSError, KeyError, TypeError, ValueError) as error:
        raise BadInput(f"{folder} holds no plan that can be played again: {error}") from error
    if not cases:
        raise BadInput(f"{folder}: its plan holds no case")
    return cases


def _instead(folder: Path) -> str | None:
    try:
        return open_run(folder).versions().instead
    except NotARun:  # what is missing is said where it is needed
        return None


def replay(folder: Path, times: int, run: Runner, *, trusted: bool = False) -> Finished:
    """Plays every case of a run ``times`` times; the results say k of n under ``replay``."""
    if times < 1:
        raise BadInput(f"--times is {times}; it has to be more than 0")
    cases = stored_cases(folder, trusted=trusted)
    finished = run([case for case in cases for _ in range(times)], f"replay-{where(folder).name}")
    found = finished.results.cases
    told = Replay(
        of=str(where(folder)),
        times=times,
        honest=HONEST,
        cases=tuple(
            _replayed(case.name, found[i * times : (i + 1) * times]) for i, case in enumerate(cases)
        ),
    )
    results = evolved(finished.results, replay=told)
    open_run(finished.folder).write_results(results)
    return replace(finished, results=results)


def _replayed(name: str, found: Sequence[documents.CaseResult]) -> Replayed:
    played = [attempt for document in found for attempt in attempts(document)]
    counted = [attempt for attempt in played if _counts(attempt)]
    return Replayed(name, shown(counted), len(counted), len(played))


def _counts(document: documents.CaseResult) -> bool:
    """Whether a run says anything: something broke, or everything held where it could break."""
    verdicts = results_of(document)
    counts = [verdict for verdict in verdicts if counts_as_try(document, verdict)]
    broke = any(verdicts[verdict] == "invalid" for verdict in counts)
    return broke or (bool(counts) and len(counts) == len(verdicts))


def where(folder: Path) -> Path:
    """The run itself and not a link to the latest one, from where the command was called."""
    return Path(os.path.relpath(folder.resolve()))


def shown(found: Sequence[documents.CaseResult]) -> dict[str, int]:
    """Verdict → in how many of these runs of a case it was invalid, unless that is refuted."""
    return dict(Counter(verdict for document in found for verdict in proven(document)))


def say(told: Replay, console: Console) -> None:
    """k of n, a line a case."""
    for one in told.cases:
        n = told.times if one.counted is None else one.counted
        played = told.times if one.played is None else one.played
        said = [f"{verdict} {k} of {n}" for verdict, k in one.shown.items()]
        if not said:
            said = [f"nothing broke in {n}" if n else "nothing was shown"]
        if n < played:
            said.append(f"not counted: {played - n} of {played}")
        console.print(f"{one.case}: {', '.join(said)}", highlight=False)
    console.print(told.honest, highlight=False)


def shrink(
    folder: Path, run: Runner, console: Console, *, trusted: bool = False
) -> tuple[Finished, Case]:
    """Drops faults, one by one, for as long as some verdict that broke in the stored run still
    breaks within three tries. ``run`` makes tries; the last one that broke is kept as a run, and
    answered with its case."""
    cases = stored_cases(folder, trusted=trusted)
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
    for file, text in write.files(run, results).items():
        run.write_text(file, text)
    return Finished(finished.ending, run.path, results)


def _named(case: Case) -> Case:
    """The case, called after its schedule where its fault's words stand for another one."""
    if case.fault.endswith(".toml") or _number_of_faults(case.fault) != len(case.injections):
        return replace(case, fault=schedule_words(case))
    try:
        drawn = draw(case)
    except BadInput:
        drawn = ()
    if [i.fault for i in drawn] == [i.fault for i in case.injections]:
        return case
    return replace(case, fault=schedule_words(case))


def _number_of_faults(words: str) -> float:
    """How many faults the words stand for. Raises BadInput."""
    wanted = [one for step in steps_of(words) for one in step]
    return sum(
        float(dict(one.parameters)["count"]) if one.name == RANDOM else one.times for one in wanted
    )


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
        broken = set(shown(results.cases))
    except (NotARun, OSError, KeyError, ValueError) as error:
        raise BadInput(f"{folder} has no results: {error}") from error
    if not broken:
        raise BadInput(f"nothing broke in {folder}: there is nothing to shrink")
    return broken


def _shows(case: Case, wanted: set[str], run: Runner) -> Finished | None:
    for _ in range(SHRINK_TRIES):
        finished = run([case], "shrink-try")
        (document,) = finished.results.cases
        if wanted & set(shown([document])):
            return finished
    return None
