"""``lockbench alerts``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.cli.options import Done, Json, path
from lockbench.report.console import out, say
from lockbench.results.errors import BadInput


def alerts(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help="Folders of finished runs.", parser=path),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print the alert rules for Prometheus instead.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show which alerts would have fired in stored runs."""
    if rules == bool(runs):
        raise BadInput("give either run folders, or --rules for the file of alert rules")
    if rules:
        from lockbench.results.alert_metrics import rules as file_of_rules

        say(file_of_rules(), end="")
        return
    from lockbench.cli.alerts import alerts as replay

    raise Done(replay(runs or [], as_json=as_json, out=out))
