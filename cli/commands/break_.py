"""``lockbench break``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lockbench.bench import interruption
from lockbench.cli.options import target
from lockbench.report.console import out
from lockbench.results.errors import BadInput


def break_(
    topology: Annotated[str | None, typer.Option(help="The cluster to start.")] = None,
    lock: Annotated[str | None, typer.Option(help="The lock that Locust's clients take.")] = None,
    workload: Annotated[
        str, typer.Option(help="What Locust's clients do under the lock.")
    ] = "mutex",
    nodes: Annotated[int | None, typer.Option(help="How many nodes the cluster has.")] = None,
    compose: Annotated[
        Path | None,
        typer.Option(
            help="Write what was started into this docker-compose.yml, for use without Lockbench.",
            parser=target,
        ),
    ] = None,
    do: Annotated[str | None, typer.Option(help="Send a command to the running cluster.")] = None,
) -> None:
    """Start a cluster that you break by hand, at a prompt. Ctrl-C removes it."""
    if (do is None) == (topology is None):
        raise BadInput("give either --topology T, or --do COMMAND for the running cluster")
    if do is not None and compose is not None:
        raise BadInput("--compose writes what --topology T starts; leave --do out")
    from lockbench.cli import break_by_hand

    if do is not None:
        out.print(break_by_hand.tell(do).rstrip())
        return
    assert topology is not None
    try:
        break_by_hand.serve(topology, lock, nodes, out, workload, compose=compose)
    except KeyboardInterrupt:
        out.print()
    if interruption.cleared() is None:
        out.print("the cluster is gone")
