"""``lockbench bugreport``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.cli.options import Run
from lockbench.report.console import say


def bugreport(
    folder: Run,
    every: Annotated[
        bool, typer.Option("--all", help="Also for breaks that the lock declares.")
    ] = False,
) -> None:
    """Write a bug report for each break that was not declared: RUN/bugreports/."""
    from lockbench.evidence import bugreport as reporting

    say(reporting.sentence(folder, reporting.bugreport(folder, declared_too=every)))
