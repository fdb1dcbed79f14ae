"""What commands do before they put load on a cluster of somebody else: look, say and ask."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import typer

from lockbench.bench.plan import Case, expected_s, site_of
from lockbench.bench.run import clients_of
from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere import cluster
from lockbench.clusters.elsewhere.site import OPPOSITES
from lockbench.nemesis.registry import faults
from lockbench.report.console import err
from lockbench.results import wording
from lockbench.results.errors import BadInput, Failed

# No client asks again sooner than after the shortest pause of a recipe that polls.
PAUSE_S = 0.002
LONG_S = 100


def agreed(cases: Sequence[Case], said: bool) -> None:
    """Looks whether the cluster is what its file says and has nothing under its prefix, says what
    is going to be done there, and asks for it unless it was ``said`` already. Raises BadInput for
    all that is wrong, where nobody can be asked, and where the answer is no."""
    file = next((case.cluster for case in cases if case.cluster is not None), None)
    if file is None:
        return
    site = site_of(file)
    try:
        version = cluster.look(file)
    except ClusterError as error:
        raise BadInput(str(error)) from error
    clients = max(map(clients_of, cases))
    hosts = ", ".join(map(str, site.nodes))
    seconds = sum(map(expected_s, cases))
    lasts = f"{seconds:.0f} seconds" if seconds < LONG_S else f"{seconds / 60:.0f} minutes"
    struck = {injection.fault for case in cases for injection in case.injections}
    commands = [
        verb
        for verb in site.hands.verbs
        if any(name == verb or (verb == "kill" and faults()[name].ends_servers) for name in struck)
    ]
    err.print(
        f"{hosts} ({site.topology} {version}) gets {wording.times(len(cases), 'case')} of up to"
        f" {clients} clients in about {lasts}: at most {clients / PAUSE_S:,.0f}"
        " requests a second on each server, and one client alone as many as it is answered; keys"
        f" under {site.prefix}, removed afterwards"
        + (f"; servers are struck by the commands for {', '.join(commands)}" if commands else ""),
        soft_wrap=True,
        highlight=False,
    )
    _ask(said, "this may hurt who uses that cluster", "Run it there?")


def clean(file: Path, said: bool) -> None:
    """Removes what a killed run has left on a cluster of somebody else, once that is agreed to.
    Raises BadInput, Failed."""
    site = site_of(str(file))
    where = ", ".join(map(str, site.nodes))
    try:
        count = cluster.undo(str(file))
        verbs = [OPPOSITES[verb] for verb in site.hands.verbs]
        if verbs:
            err.print(f"{where}: {' and '.join(verbs)} was run on every node", soft_wrap=True)
        if count:
            what = "tables of Lockbench" if site.topology == "postgres" else repr(site.prefix)
            err.print(f"{where}: what is under {what} ({count}) is removed", soft_wrap=True)
            _ask(said, "this removes data", "Remove it?")
            cluster.clear(str(file))
    except ClusterError as error:
        raise Failed(str(error)) from error
    err.print(f"{where}: nothing is left there", soft_wrap=True)


def _ask(said: bool, why: str, question: str) -> None:
    """Asks, unless it was ``said`` already. Raises BadInput where nobody can be asked and where the
    answer is no."""
    if said:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(f"nothing was done: {why}; --yes says it may")
    if not typer.confirm(question, err=True):
        raise BadInput("nothing was done")
