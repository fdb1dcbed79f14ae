"""``lockbench clean``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.report.console import out


def clean(
    old_images: Annotated[
        bool, typer.Option("--images", help="Also remove outdated images.")
    ] = False,
) -> None:
    """Remove what dead runs left behind: containers, networks and processes."""
    from lockbench.cli.upkeep import clean as tidy

    tidy(out, old_images=old_images)
