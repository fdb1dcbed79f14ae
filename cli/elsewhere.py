"""What commands do before they put load on a cluster of somebody else: look, say and ask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import typer
from msgspec.structs import replace

from lockbench.bench.plan import Case, expected_s, site_of
from lockbench.bench.run import clients_of
from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere import claim, leftovers
from lockbench.clusters.elsewhere.examine import look
from lockbench.clusters.elsewhere.site import OPPOSITES, Verb
from lockbench.nemesis.base import Injection
from lockbench.nemesis.partition import Partition
from lockbench.nemesis.registry import faults
from lockbench.report.console import err
from lockbench.results import wording
from lockbench.results.documents import Versions
from lockbench.results.errors import BadInput, Failed

# No client asks again sooner than after the shortest pause of a recipe that polls.
PAUSE_S = 0.002
LONG_S = 100


Recorded = Callable[[Versions], Versions]


def agreed(cases: Sequence[Case], said: bool) -> Recorded:
    """Looks whether the cluster is what its file says and has nothing under its prefix, says what
    is going to be done there, and asks for it unless it was ``said`` already. Returns what adds its
    version to those of a run. Raises BadInput for all that is wrong, where nobody can be asked, and
    where the answer is no."""
    there = next((case for case in cases if case.cluster is not None), None)
    if there is None or there.cluster is None:
        return lambda versions: versions
    site = site_of(there.cluster)
    try:
        version = look(site)
    except ClusterError as error:
        raise BadInput(str(error)) from error
    clients = max(map(clients_of, cases))
    hosts = ", ".join(map(str, site.nodes))
    seconds = sum(map(expected_s, cases))
    lasts = f"{seconds:.0f} seconds" if seconds < LONG_S else f"{seconds / 60:.0f} minutes"
    struck = {injection for case in cases for injection in case.injections}
    commands = [verb for verb in site.hands.verbs if any(_needs(verb, one) for one in struck)]
    err.print(
        f"{hosts} ({version}) gets {wording.times(len(cases), 'case')} of up to"
        f" {clients} clients in about {lasts}: at most {clients / PAUSE_S:,.0f}"
        " requests a second on each server, and one client alone as many as it is answered; keys"
        f" under {site.prefix}, removed afterwards"
        + (f"; servers are struck by the commands for {', '.join(commands)}" if commands else ""),
        soft_wrap=True,
        highlight=False,
    )
    _ask(said, "this may disturb whoever uses that cluster", "Run it there?")
    servers = {there.topology: version}
    return lambda versions: replace(versions, servers=servers)


def _needs(verb: Verb, injection: Injection) -> bool:
    """Whether a fault has this command run."""
    fault = faults()[injection.fault]
    if verb == "kill":
        return fault.ends_servers
    if verb == "cut":
        return isinstance(fault, Partition) and fault.cuts_servers(dict(injection.parameters))
    return fault.name == verb


def clean(file: Path, said: bool) -> None:
    """Undoes and removes what a killed run has left on a cluster of somebody else, once that is
    agreed to. Raises BadInput, Failed."""
    site = site_of(str(file))
    where = ", ".join(map(str, site.nodes))

    def tell(text: str) -> None:
        err.print(f"{where}: {text}", soft_wrap=True, highlight=False)

    try:
        for word in leftovers.claims(site):
            if claim.is_here(word):
                raise Failed(f"{where}: {claim.told(word)}, is still at work: end it first")
        if verbs := [OPPOSITES[verb] for verb in site.hands.verbs]:
            tell(f"the commands for {wording.listed(verbs)} of {file.name} are run for every node")
            _ask(said, "this runs commands", "Run them?")
            leftovers.undo(site)
        count, words = leftovers.left(site)
        if count or words:
            what = "tables of Lockbench" if site.topology == "postgres" else repr(site.prefix)
            by = "".join(f", and the claim of {claim.told(word)}," for word in sorted(words))
            tell(f"what is under {what} ({count}){by} is removed")
            _ask(said, "this removes data", "Remove it?")
            leftovers.clear(site, words)
    except ClusterError as error:
        raise Failed(str(error)) from error
    tell("nothing is left there")


def _ask(said: bool, why: str, question: str) -> None:
    """Asks, unless it was ``said`` already. Raises BadInput where nobody can be asked and where the
    answer is no."""
    if said:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise BadInput(f"nothing was done: {why}; --yes says it may")
    if not typer.confirm(question, err=True):
        raise BadInput("nothing was done")
