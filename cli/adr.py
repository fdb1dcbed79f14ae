"""``lockbench adr``: a decision record from stored runs and the reader's own answers.

Needs no Docker, unless it is asked to ``collect`` what is missing. Runs of other machines, versions
or settings are not put together unless the caller says so; edited or half-written ones never are.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import Any, cast, get_args

import typer
from msgspec.structs import replace as with_fields
from rich.console import Console

from lockbench.bench.plan import Case, unknown
from lockbench.clusters.registry import topologies
from lockbench.evidence.adr import AIMED, Evidence, Key, Option, evidence_of, labels_of, options
from lockbench.evidence.adr_plan import Breaks, breaks, considered, likely, needed
from lockbench.evidence.adr_text import record
from lockbench.evidence.adr_tree import Answers, Decision, Needs, decide, missing
from lockbench.evidence.observations import load
from lockbench.history.text import write_named
from lockbench.locks.registry import systems
from lockbench.nemesis.registry import faults
from lockbench.report.console import say, say_json, warn
from lockbench.results.comparison import differences
from lockbench.results.documents import CaseResult
from lockbench.results.errors import BadInput
from lockbench.results.store import NotARun
from lockbench.results.stored import Edited, Stored, countable, left_out, stored, stored_set

OTHER_SUITE = "other suite"
SWEEPS_MAX = 2  # of an option: a void one is made once more
IN_VAIN_MAX = 3  # runs in a row that bring an option no exposed try
NEEDS = {"nuisance": "efficiency", "disaster": "correctness"}
# Runs cases as ``lockbench run``, ``suite`` and ``sweep`` do, and answers with the run's folder.
Runner = Callable[[Sequence[Case], str], Path]


def answers(
    needs: str | None,
    p99_ms: float | None,
    ops_per_second: float | None,
    already_have: str | None,
    *,
    costs: str | None = None,
    skills: str | None = None,
    without: str | None = None,
) -> Answers:
    """Raises BadInput."""
    if needs is not None and needs not in get_args(Needs):
        raise BadInput(f"--needs {needs}: it is correctness or efficiency")
    for name, value in (("--p99-ms", p99_ms), ("--ops-per-second", ops_per_second)):
        if value is not None and not (value > 0 and math.isfinite(value)):
            raise BadInput(f"{name} is {value:g}; it has to be more than 0")
    for fault in _names(without):
        if fault not in faults():
            raise unknown("fault", fault, faults())
        if fault == AIMED:
            raise BadInput(
                f"--without {AIMED}: only that shows whether a fence stops a stale holder; if "
                "stale holders are no disaster, say --needs efficiency"
            )
    return Answers(
        cast("Needs | None", needs),
        p99_ms,
        ops_per_second,
        _names(already_have),
        tuple(map(_cost, _names(costs))),
        _names(skills),
        _names(without),
    )


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(word.strip() for word in (text or "").split(",") if word.strip())


def _cost(word: str) -> tuple[str, float]:
    name, _, number = word.partition("=")
    try:
        cost = float(number)
    except ValueError:
        cost = math.nan
    if not cost >= 0:
        raise BadInput(f"--costs {word}: it is written NAME=NUMBER, for example etcd=300")
    return name, cost


def asked_for(given: Answers) -> Answers:
    """Asks at the terminal for what was not given; an empty answer leaves a question open."""
    needs = given.needs or _ask("Is a rare double grant a nuisance or a disaster for you?", NEEDS)
    p99 = given.p99_ms or _ask("How many ms may an acquire on a free key take, p99?")
    rate = given.ops_per_second or _ask("How many locks per second, over all keys?")
    had = ",".join(given.already_have) or _ask("What do you run already, separated by commas?")
    costs = ",".join(f"{name}={cost:g}" for name, cost in given.costs) or _ask(
        "What would each cost, as NAME=NUMBER in any unit, separated by commas?"
    )
    skills = ",".join(given.skills) or _ask("What do your people know, separated by commas?")
    try:
        ms, per_second = (None if value is None else float(value) for value in (p99, rate))
    except ValueError as error:
        raise BadInput(f"this must be a number: {error}") from error
    return answers(
        NEEDS.get(str(needs), needs),
        ms,
        per_second,
        had,
        costs=costs,
        skills=skills,
        without=",".join(given.without),
    )


def _ask(question: str, choices: Mapping[str, str] | None = None) -> str | None:
    hint = f" ({', '.join(choices)})" if choices else ""
    answer = typer.prompt(question + hint, default="", show_default=False, err=True).strip()
    return answer or None


def adr(
    paths: Sequence[Path],
    asked: Answers,
    *,
    anyway: bool,
    output: Path | None,
    as_json: bool,
    out: Console,
    runner: Runner | None = None,
) -> int:
    """Runs what is missing first if it is given a ``runner``. Returns the exit code. Raises
    BadInput."""
    if output is not None and output.exists():
        raise BadInput(f"{output} exists; a record is never overwritten: name another file")
    try:
        # runs/latest is a link to one of the others.
        named = {run.path.resolve(): run for path in paths for run in stored_set(path)}
        runs = list(named.values())
        countable(runs)
        _not_one_experiment(runs, anyway=anyway)
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    if said := left_out(paths):
        warn(said)
    _refuse_unknown(options(runs, evidence_of(runs)), asked)
    published = breaks(load())
    if runner is not None:
        collect(runs, asked, runner, out, published, anew=not paths, anyway=anyway)
    cases, found, decision = _decided(runs, asked, not paths)
    text = record(
        decision,
        found,
        cases,
        published,
        machines=[run.machine for run in runs],
        notes=_not_one_experiment(runs, anyway=True),
        date=max((run.path.name for run in runs), default=datetime.now(UTC).isoformat())[:10],
    )
    if output is not None:
        try:
            write_named(output, text)
        except OSError as error:
            raise BadInput(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        say_json(_plain(decision, found, cases, published, text))
    elif output is not None:
        out.print(f"{decision.why}; the record is in {output}")
    else:
        say(text, end="")
    return 0


def collect(
    runs: list[Stored],
    asked: Answers,
    runner: Runner,
    out: Console,
    published: Breaks,
    *,
    anew: bool,
    anyway: bool = False,
) -> None:
    """Runs what would settle the decision, one run after the other, until it is settled or
    ``IN_VAIN_MAX`` runs of each option that is left brought nothing new; adds each to ``runs``.
    Raises BadInput."""
    in_vain: Counter[Key] = Counter()
    _, _, decision = _decided(runs, asked, anew)
    began = time.monotonic()
    sweeps: Counter[Key] = Counter()
    while left := [
        one
        for one in needed(decision, _often_enough(sweeps), published)
        if in_vain[one.option.key] < IN_VAIN_MAX
    ]:
        now, most = left[0], sum(one.minutes for one in left)
        first, minutes = likely(left)
        spent = (time.monotonic() - began) / 60
        out.print(
            f"{now.option.name}: {now.what}; {spent:.0f} minutes spent, about {minutes:.0f} more "
            f"if {first.name} holds, at most {most:.0f}"
        )
        folder = runner(now.cases, f"adr-{now.option.lock}")
        try:
            runs.append(stored(folder))
        except (NotARun, Edited) as error:
            raise BadInput(str(error)) from error
        _not_one_experiment(runs, anyway=anyway)
        _, found, decision = _decided(runs, asked, anew)
        after = next((o for o in found if o.key == now.option.key), now.option)
        if now.is_sweep:
            sweeps[now.option.key] += 1
        elif missing(after, asked) == missing(now.option, asked):
            in_vain[now.option.key] += 1
        else:
            in_vain[now.option.key] = 0
    out.print(f"measured for {(time.monotonic() - began) / 60:.0f} minutes")


def _often_enough(sweeps: Mapping[Key, int]) -> set[Key]:
    """What is not swept again. A sweep that counts is made once: a range that crosses the limit
    does not shrink."""
    return {key for key, times in sweeps.items() if times >= SWEEPS_MAX}


Cases = list[tuple[Evidence, CaseResult]]


def _decided(
    runs: Sequence[Stored], asked: Answers, anew: bool
) -> tuple[Cases, list[Option], Decision]:
    cases = evidence_of(runs)
    found = considered(options(runs, cases), asked, anew=anew)
    return cases, found, decide(found, asked)


def _refuse_unknown(found: Sequence[Option], asked: Answers) -> None:
    known = {name for one in found for name in (one.lock, one.family, one.topology)}
    known |= {name for one in systems().values() for name in (one.name, one.family)}
    known |= set(topologies())
    for name in (*asked.already_have, *asked.skills, *(name for name, _ in asked.costs)):
        if name not in known:
            raise unknown("system", name, sorted(known))


def _not_one_experiment(runs: Sequence[Stored], *, anyway: bool) -> list[str]:
    """Why the runs may not be put together. Different cases are what one puts together, and how
    long a case lasts decides nothing here."""
    labels = iter(labels_of([case for run in runs for case in run.cases]))
    named = [
        tuple(
            with_fields(case, lock=f"{next(labels)}, {case.workload}", side=None, phases_s=None)
            for case in run.cases
        )
        for run in runs
    ]
    alike = [
        replace(run, results=with_fields(run.results, cases=cases))
        for run, cases in zip(runs, named, strict=True)
    ]
    found = list(
        dict.fromkeys(
            line
            for one, other in combinations(alike, 2)
            for line in differences([one], [other])
            if not line.startswith(OTHER_SUITE)
        )
    )
    if found and not anyway:
        raise BadInput(
            f"the runs are not one experiment: {'; '.join(found)[:600]}. Repeat them on one "
            "machine with the same versions and settings, or say --anyway"
        )
    return [f"Put together although they differ: {line}." for line in found]


def _plain(
    decision: Decision, found: Sequence[Option], cases: Cases, published: Breaks, text: str
) -> dict[str, Any]:
    return {
        "chosen": None if decision.chosen is None else decision.chosen.name,
        "why": decision.why,
        "answers": asdict(decision.answers),
        "steps": [asdict(step) for step in decision.steps],
        "options": [asdict(option) for option in found],
        "needed": [
            {"option": one.option.name, "command": one.command, "minutes": round(one.minutes, 1)}
            for one in needed(decision, published=published)
        ],
        "evidence": [asdict(evidence) for evidence, _ in cases],
        "markdown": text,
    }
