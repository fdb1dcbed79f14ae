"""``lockbench report``."""

from __future__ import annotations

from lockbench.cli.options import Run
from lockbench.report.console import say


def report(folder: Run) -> None:
    """Write the report of a run again: RUN/report.html and RUN/report.md."""
    from lockbench.report import commands

    say(commands.report(folder))
