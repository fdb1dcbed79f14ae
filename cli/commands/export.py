"""``lockbench export``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import Run, path
from lockbench.report.console import say


def export(
    folder: Run,
    form: Annotated[str, typer.Option("--format", help="The format: csv, json, parquet or edn.")],
    out_dir: Annotated[
        Path, typer.Option("--out", help="The folder to write into, new or empty.", parser=path)
    ],
) -> None:
    """Export every table and every history of a run."""
    from lockbench.report import commands

    say(commands.export(folder, form, out_dir))
