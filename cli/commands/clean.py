"""``lockbench clean``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import path
from lockbench.report.console import out


def clean(
    old_images: Annotated[
        bool, typer.Option("--images", help="Also remove outdated images.")
    ] = False,
    cluster: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also remove what they left on your own servers, which this file describes.",
            parser=path,
        ),
    ] = None,
    machines: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also what they left on the machines that this file names.",
            parser=path,
        ),
    ] = None,
    hosts: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also what they left on the Docker engines that this file names.",
            parser=path,
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask before removing it there.")
    ] = False,
) -> None:
    """Remove what dead runs left behind: containers, networks and processes."""
    from lockbench.cli.upkeep import clean as tidy

    tidy(out, old_images=old_images)
    if cluster is not None:
        from lockbench.cli.elsewhere import clean as there

        there(cluster, yes)
    if machines is not None:
        from lockbench.cli.machines import clean as on

        on(machines)
    if hosts is not None:
        from lockbench.cli.hosts import clean as at

        at(hosts, old_images=old_images)
