"""``lockbench adr RUN…``: a decision record from stored runs and the reader's own answers.

Needs no Docker. Runs of other machines, versions or settings are not put together unless the caller
says so; edited or half-written ones never are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast, get_args

import typer
from rich.console import Console

from bench.plan import unknown
from clusters.registry import topologies
from evidence.adr import evidence_of, options
from evidence.adr_text import record
from evidence.adr_tree import Answers, Needs, decide
from history.text import write_named
from locks.registry import systems
from report.console import say, say_json, warn
from results.comparison import differences
from results.errors import BadInput
from results.store import NotARun
from results.stored import Edited, Stored, countable, left_out, stored_set

OTHER_SUITE = "other suite"
NEEDS = {"nuisance": "efficiency", "disaster": "correctness"}


def answers(
    needs: str | None, p99_ms: float | None, ops_per_second: float | None, already_have: str | None
) -> Answers:
    """Raises BadInput."""
    if needs is not None and needs not in get_args(Needs):
        raise BadInput(f"--needs {needs}: it is correctness or efficiency")
    for name, value in (("--p99-ms", p99_ms), ("--ops-per-second", ops_per_second)):
        if value is not None and not value > 0:
            raise BadInput(f"{name} is {value:g}; it has to be more than 0")
    had = tuple(word.strip() for word in (already_have or "").split(",") if word.strip())
    return Answers(cast("Needs | None", needs), p99_ms, ops_per_second, had)


def asked_for(given: Answers) -> Answers:
    """Asks at the terminal for what was not given; an empty answer leaves a question open."""
    needs = given.needs or _ask("Is a rare double grant a nuisance or a disaster for you?", NEEDS)
    p99 = given.p99_ms or _ask("How many ms may an uncontended acquire take, p99?")
    rate = given.ops_per_second or _ask("How many locks per second, over all keys?")
    had = ",".join(given.already_have) or _ask("What do you run already, separated by commas?")
    try:
        ms, per_second = (None if value is None else float(value) for value in (p99, rate))
    except ValueError as error:
        raise BadInput(f"this must be a number: {error}") from error
    return answers(NEEDS.get(str(needs), needs), ms, per_second, had)


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
) -> int:
    """Returns the exit code. Raises BadInput."""
    if output is not None and output.exists():
        raise BadInput(f"{output} exists; a record is never overwritten: name another file")
    try:
        runs = [run for path in paths for run in stored_set(path)]
        countable(runs)
        notes = _not_one_experiment(runs, anyway=anyway)
    except (NotARun, Edited) as error:
        raise BadInput(str(error)) from error
    if said := left_out(paths):
        warn(said)
    cases = evidence_of(runs)
    found = options(runs, cases)
    known = {name for one in found for name in (one.name, one.family, one.topology)}
    known |= {name for one in systems().values() for name in (one.name, one.family)}
    for name in asked.already_have:
        if name not in known | set(topologies()):
            raise unknown("system to have", name, sorted(known | set(topologies())))
    decision = decide(found, asked)
    text = record(
        decision,
        found,
        cases,
        machine=runs[0].machine,
        notes=notes,
        date=max(run.path.name for run in runs)[:10],
    )
    if output is not None:
        try:
            write_named(output, text)
        except OSError as error:
            raise BadInput(f"{output} cannot be written: {error.strerror}") from error
    if as_json:
        say_json(_plain(decision, found, cases, text))
    elif output is not None:
        out.print(f"{decision.why}; the record is in {output}")
    else:
        say(text, end="")
    return 0


def _not_one_experiment(runs: Sequence[Stored], *, anyway: bool) -> list[str]:
    """Why the runs may not be put together; different cases are what one puts together."""
    found = list(
        dict.fromkeys(
            line
            for run in runs[1:]
            for line in differences([runs[0]], [run])
            if not line.startswith(OTHER_SUITE)
        )
    )
    if found and not anyway:
        raise BadInput(
            f"the runs are not one experiment: {'; '.join(found)[:600]}. Repeat them on one "
            "machine with the same versions and settings, or say --anyway"
        )
    return [f"Put together although they differ: {line}." for line in found]


def _plain(decision: Any, found: Any, cases: Any, text: str) -> dict[str, Any]:
    return {
        "chosen": None if decision.chosen is None else decision.chosen.name,
        "why": decision.why,
        "answers": asdict(decision.answers),
        "steps": [asdict(step) for step in decision.steps],
        "options": [asdict(option) for option in found],
        "evidence": [asdict(evidence) for evidence, _ in cases],
        "markdown": text,
    }
