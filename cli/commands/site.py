"""``lockbench site``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import path
from lockbench.report.console import say


def site(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A new folder, or one that has a site.", parser=path),
    ],
) -> None:
    """Write every lock, fault and defect with what was observed as pages: DIR/index.html."""
    from lockbench.evidence.site.material import material
    from lockbench.evidence.site.pages import write

    say(f"{folder / 'index.html'} and {write(folder, material()) - 1} more pages")
