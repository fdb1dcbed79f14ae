"""``lockbench adr``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.options import Done, Json, path, target
from report.console import out


def adr(
    runs: Annotated[
        list[Path], typer.Argument(help="Run folders, or folders of runs.", parser=path)
    ],
    needs: Annotated[
        str | None, typer.Option(help="What the lock is for: correctness or efficiency.")
    ] = None,
    p99_ms: Annotated[
        float | None,
        typer.Option("--p99-ms", help="The highest p99 that an uncontended acquire may have."),
    ] = None,
    ops_per_second: Annotated[
        float | None, typer.Option(help="How many locks per second you need, over all keys.")
    ] = None,
    already_have: Annotated[
        str | None, typer.Option(help="What you run already, separated by commas.")
    ] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Combine even runs of different machines.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option(help="Write the record into this file.", parser=target)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write a decision record from stored runs. In a terminal it asks for missing answers."""
    from cli.adr import adr as write
    from cli.adr import answers, asked_for

    asked = answers(needs, p99_ms, ops_per_second, already_have)
    if sys.stdin.isatty() and not as_json:
        asked = asked_for(asked)
    raise Done(write(runs, asked, anyway=anyway, output=output, as_json=as_json, out=out))
