"""``lockbench compare``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import Done, Json, Junit, path
from lockbench.report.console import out


def compare(
    base: Annotated[
        Path, typer.Argument(help="The old side, a run folder or a folder of runs.", parser=path)
    ],
    new: Annotated[
        Path,
        typer.Argument(help="The new side, a run folder or a folder of runs.", parser=path),
    ],
    anyway: Annotated[
        bool,
        typer.Option("--anyway", help="Compare what both have, even if the experiments differ."),
    ] = False,
    junit: Junit = None,
    as_json: Json = False,
) -> None:
    """Show how two stored runs differ. Verdicts are judged, numbers only shown."""
    from lockbench.evidence.compare import compare as compare_runs

    raise Done(compare_runs(base, new, anyway=anyway, as_json=as_json, junit=junit, out=out))
