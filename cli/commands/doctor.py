"""``lockbench doctor``."""

from __future__ import annotations

from cli.options import Done
from report.console import out


def doctor() -> None:
    """Show what this machine lacks."""
    from cli.upkeep import doctor as look

    raise Done(look(out))
