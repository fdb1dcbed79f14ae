"""``lockbench doctor``."""

from __future__ import annotations

from lockbench.cli.options import Done
from lockbench.report.console import out


def doctor() -> None:
    """Show what this machine lacks."""
    from lockbench.cli.upkeep import doctor as look

    raise Done(look(out))
