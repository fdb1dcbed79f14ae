"""``lockbench report``."""

from __future__ import annotations

from cli.options import Run
from report.console import say


def report(folder: Run) -> None:
    """Write RUN/report.html and RUN/report.md again from what was recorded."""
    from report import commands

    say(commands.report(folder))
