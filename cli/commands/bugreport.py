"""``lockbench bugreport``."""

from __future__ import annotations

from cli.options import Run
from report.console import say


def bugreport(folder: Run) -> None:
    """Write a report for each broken verdict, for the maintainer: RUN/bugreports/."""
    from evidence import bugreport as reporting

    say(reporting.sentence(folder, reporting.bugreport(folder)))
