"""``lockbench alerts``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.options import Done, Json, path
from report.console import out, say
from results.errors import BadInput


def alerts(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="RUN...", help="Finished runs' folders.", parser=path),
    ] = None,
    rules: Annotated[
        bool, typer.Option("--rules", help="Print the rules for Prometheus, nothing else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Replay stored runs against alert rules, and show which alerts would have fired."""
    if rules == bool(runs):
        raise BadInput("give either run folders, or --rules for the file of alert rules")
    from cli import alerts as replaying

    if rules:
        say(replaying.file_of_rules(), end="")
        return
    raise Done(replaying.alerts(runs or [], as_json=as_json, out=out))
