"""Whether a cluster is what its file says, and nobody is at work there, before anything is
written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere import claim
from lockbench.clusters.elsewhere.kept import Kept, ways
from lockbench.clusters.elsewhere.place import place_of
from lockbench.clusters.elsewhere.site import Site, SiteError
from lockbench.clusters.wire import PROBE_FAILURES, Address


def look(site: Site) -> str:
    """The servers' version. Raises ClusterError."""
    with ways(site) as (at, keeper):
        return examine(site, at, keeper)


def examine(site: Site, at: Mapping[int, Address], keeper: Kept) -> str:
    """The same, through these ways of the keeper's."""
    place = place_of(site)
    with asking(site, keeper):
        version = place.identify(site, list(at.values()))
        claims = {node: place.claimed(site, address) for node, address in at.items()}
        found = {node: place.count(site, address) for node, address in at.items()}
    for node, word in claims.items():
        if word:
            raise ClusterError(f"{site.nodes[node - 1]} {_in_use(site, word)}")
    for node, count in found.items():
        if count:
            raise ClusterError(_not_empty(site, node, count))
    return version


@contextmanager
def asking(site: Site, keeper: Kept) -> Iterator[None]:
    """What servers do not answer, or not as they should, raises ClusterError with the reason."""
    try:
        yield
    except PROBE_FAILURES as error:
        raise ClusterError(_why(site, error, keeper)) from error
    except SiteError as error:
        raise ClusterError(str(error)) from error


def _in_use(site: Site, word: str) -> str:
    """What a claim under the prefix means; goes on after a server's name."""
    if claim.is_dead(word):
        return (
            f"has the claim of {claim.told(word)}, which has ended: `lockbench clean --cluster"
            f" {site.file.name}` removes what it has left"
        )
    return (
        f"is in use under {site.prefix!r} by {claim.told(word)}: wait for its end, or choose"
        " another prefix"
    )


def _why(site: Site, error: Exception, keeper: Kept) -> str:
    """Why a server did not answer as it should: what the relay was told, or the error itself."""
    for node, at in enumerate(site.nodes, 1):
        if why := keeper.ask(why=node)["why"]:
            return f"{at} {why}"
    who = ", ".join(map(str, site.nodes))
    said = site.hidden(str(error)) or type(error).__name__
    return f"{who}: a server does not answer as it should: {said}{site.without_tls}"


def _not_empty(site: Site, node: int, count: int) -> str:
    clean = f"`lockbench clean --cluster {site.file.name}` removes what a run has left"
    if site.topology == "postgres":
        return f"{site.nodes[node - 1]} already has tables of Lockbench (lockbench_…): {clean}"
    keys = "a key" if count == 1 else f"{count:,} keys"
    return (
        f"{site.nodes[node - 1]} already has {keys} under {site.prefix!r}: {clean}; if that is not"
        " what it is, choose another prefix"
    )
