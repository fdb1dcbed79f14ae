"""``lockbench bugreport``."""

from __future__ import annotations

from cli.options import Run
from report.console import say


def bugreport(folder: Run) -> None:
    """Write what a maintainer needs for every broken verdict: RUN/bugreports/."""
    from evidence import bugreport as reporting

    say(reporting.sentence(folder, reporting.bugreport(folder)))
