"""``lockbench list``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.cli.options import Json
from lockbench.report.console import say_json


def list_(
    kind: Annotated[
        str | None,
        typer.Option(
            help="List only: lock, no-lock, resource, topology, fault, workload or suite."
        ),
    ] = None,
    system: Annotated[
        str | None,
        typer.Option(help="List only what belongs to a system: redis, zookeeper, sentinel …"),
    ] = None,
    fault: Annotated[
        str | None,
        typer.Option(help="List only what this fault applies to, and which locks it may break."),
    ] = None,
    only_undeclared: Annotated[
        bool,
        typer.Option(
            "--undeclared",
            help="List, for each lock, the faults that its declaration does not mention.",
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """List every lock, resource, topology, fault, workload and suite."""
    from lockbench.cli.list import Wanted, catalogue, show, show_undeclared

    wanted = Wanted(kind, system, fault)
    if only_undeclared:
        show_undeclared(wanted, as_json=as_json)
        return
    found = catalogue(wanted)
    if as_json:
        say_json(found)
    else:
        show(found, fault)
