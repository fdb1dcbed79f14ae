"""``lockbench suite``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.cli.options import RUNS, Json, Resume, Runs, words
from lockbench.report.console import err, out


def suite(
    name: Annotated[
        str, typer.Argument(help="Begin with quick; `lockbench list --kind suite` lists all.")
    ],
    lock: Annotated[
        str | None, typer.Option(help="Run only these locks, separated by commas; * is a wildcard.")
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(help="Run only these faults, separated by commas; * is a wildcard."),
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="One of equal parts: 3/8 is the third of eight.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the schedules of the faults.")] = 0,
    resume: Resume = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Run a declared set of cases, or part of it."""
    from lockbench.bench import suites
    from lockbench.cli.running import play

    declared = suites.sliced(
        suites.suite(name, seed), words(lock) if lock else [], words(fault) if fault else []
    )
    if part is not None:
        declared = suites.part(declared, part)
    console = err if as_json else out
    console.print(f"suite {name}: {declared.duration}; {declared.summary}")
    said = [f"lockbench suite {name}"]
    said += [f"--{option} '{word}'" for option, word in (("lock", lock), ("fault", fault)) if word]
    said += [f"--part {part}"] if part else []
    said += [f"--seed {seed}"] if seed else []
    command = " ".join(said)
    play(list(declared.cases), name, as_json, command=command, resume=resume, runs=runs or RUNS)
