"""``lockbench report``."""

from __future__ import annotations

from cli.options import Run
from report.console import say


def report(folder: Run) -> None:
    """Write the report of a run again: RUN/report.html and RUN/report.md."""
    from report import commands

    say(commands.report(folder))
