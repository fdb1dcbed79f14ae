"""``lockbench suite``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import RUNS, Json, Resume, Runs, Yes, path, words
from lockbench.report.console import err, out
from lockbench.results.errors import BadInput


def suite(
    name: Annotated[
        str,
        typer.Argument(
            help="The suite; start with quick. `lockbench list --kind suite` lists all."
        ),
    ],
    cluster: Annotated[
        Path | None,
        typer.Argument(
            metavar="[FILE]",
            help="With the suite `cluster`: the file that describes your own servers.",
            parser=path,
        ),
    ] = None,
    lock: Annotated[
        str | None, typer.Option(help="Run only these locks, separated by commas; * is a wildcard.")
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(help="Run only these faults, separated by commas; * is a wildcard."),
    ] = None,
    part: Annotated[
        str | None, typer.Option(help="Run one of several equal parts: 3/8 is the third of eight.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Decides the schedules of the faults.")] = 0,
    yes: Yes = False,
    resume: Resume = None,
    runs: Runs = None,
    as_json: Json = False,
) -> None:
    """Run a declared set of cases, or a part of it."""
    from lockbench.bench import suites
    from lockbench.cli import elsewhere
    from lockbench.cli.running import play

    if (name == suites.CLUSTER) != (cluster is not None):
        raise BadInput("your own cluster has a suite of its own: suite cluster FILE")
    whole = suites.suite(name, seed) if cluster is None else suites.of_cluster(str(cluster), seed)
    declared = suites.sliced(whole, words(lock) if lock else [], words(fault) if fault else [])
    if part is not None:
        declared = suites.part(declared, part)
    console = err if as_json else out
    console.print(f"suite {name}: {declared.duration}; {declared.summary}")
    recorded = elsewhere.agreed(declared.cases, yes)
    said = [f"lockbench suite {name}" + (f" {cluster}" if cluster else "")]
    said += [f"--{option} '{word}'" for option, word in (("lock", lock), ("fault", fault)) if word]
    said += [f"--part {part}"] if part else []
    said += [f"--seed {seed}"] if seed else []
    command = " ".join(said)
    play(
        list(declared.cases),
        name,
        as_json,
        command=command,
        resume=resume,
        recorded=recorded,
        runs=runs or RUNS,
    )
