"""``lockbench adr``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lockbench.cli.options import RUNS, Done, Json, Runs, path, target
from lockbench.report.console import err, out

if TYPE_CHECKING:
    from rich.console import Console

    from lockbench.cli.adr import Runner


def adr(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run folders, or folders of runs; with none, it says what to measure.", parser=path
        ),
    ] = None,
    needs: Annotated[
        str | None, typer.Option(help="What the lock is for: correctness or efficiency.")
    ] = None,
    p99_ms: Annotated[
        float | None,
        typer.Option(
            "--p99-ms", help="The highest p99 that you accept for an acquire on a free key."
        ),
    ] = None,
    ops_per_second: Annotated[
        float | None, typer.Option(help="How many locks per second you need, over all keys.")
    ] = None,
    already_have: Annotated[
        str | None, typer.Option(help="Locks or systems that you already run, separated by commas.")
    ] = None,
    costs: Annotated[
        str | None, typer.Option(help="What each option would cost, as NAME=NUMBER, in any unit.")
    ] = None,
    skills: Annotated[
        str | None, typer.Option(help="Systems that your people know, separated by commas.")
    ] = None,
    without: Annotated[
        str | None,
        typer.Option(help="Faults that you accept, whatever they do, separated by commas."),
    ] = None,
    collect: Annotated[
        bool, typer.Option("--collect", help="First run what the decision still needs.")
    ] = False,
    kept: Runs = None,
    anyway: Annotated[
        bool,
        typer.Option(
            "--anyway", help="Combine runs even if machines, versions or settings differ."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the record into this file.", parser=target)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a decision record from stored runs. In a terminal it asks for missing answers."""
    from lockbench.cli.adr import adr as write
    from lockbench.cli.adr import answers, asked_for

    asked = answers(
        needs, p99_ms, ops_per_second, already_have, costs=costs, skills=skills, without=without
    )
    if sys.stdin.isatty() and not as_json:
        asked = asked_for(asked)
    console = err if as_json else out
    raise Done(
        write(
            runs or [],
            asked,
            anyway=anyway,
            output=output,
            as_json=as_json,
            out=console,
            runner=_runner(console, kept or RUNS) if collect else None,
        )
    )


def _runner(console: Console, runs: Path) -> Runner:
    """Runs cases as ``lockbench run``, ``suite`` and ``sweep`` do."""
    from lockbench.bench.suite import run_cases

    return lambda cases, name: run_cases(cases, name, console, runs=runs).folder
