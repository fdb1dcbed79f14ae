"""``lockbench bugreport``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.cli.options import Run
from lockbench.report.console import say


def bugreport(
    folder: Run,
    every: Annotated[
        bool, typer.Option("--all", help="Also of what the lock's declaration says that it breaks.")
    ] = False,
) -> None:
    """Write a report for each verdict that broke and was not declared to: RUN/bugreports/."""
    from lockbench.evidence import bugreport as reporting

    say(reporting.sentence(folder, reporting.bugreport(folder, declared_too=every)))
