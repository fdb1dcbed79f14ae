"""What is left on a cluster of somebody else, and its removal: by a keeper of its own, which at its
end undoes commands and empties the prefix."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere.examine import asking
from lockbench.clusters.elsewhere.kept import ways
from lockbench.clusters.elsewhere.place import place_of
from lockbench.clusters.elsewhere.site import Site, SiteError, Whom
from lockbench.clusters.wire import PROBE_FAILURES


def claims(site: Site) -> set[str]:
    """The claims under the prefix, as far as servers answer. Raises ClusterError."""
    place, found = place_of(site), set()
    with ways(site) as (at, _):
        for address in at.values():
            with suppress(*PROBE_FAILURES, SiteError):
                found.add(place.claimed(site, address))
    return found - {""}


def left(site: Site) -> tuple[int, set[str]]:
    """How much is under the prefix, and whose claims. Raises ClusterError."""
    place = place_of(site)
    with ways(site) as (at, keeper), asking(site, keeper):
        found = {place.claimed(site, address) for address in at.values()} - {""}
        return sum(place.count(site, address) for address in at.values()), found


def undo(site: Site) -> None:
    """Undo every command that the file names, everywhere. Raises ClusterError."""
    done = {(verb, whom) for verb in site.hands.verbs for whom in site.everybody(verb)}
    if remains := end_all(site, done):
        raise ClusterError("; ".join(remains))


def clear(site: Site, words: Iterable[str]) -> None:
    """Remove what is under the prefix, and these claims. Raises ClusterError."""
    if remains := end_all(site, (), claims=words):
        raise ClusterError(f"left behind: {'; '.join(remains)}")


def end_all(
    site: Site, undo: Iterable[tuple[str, Whom]], *, claims: Iterable[str] | None = None
) -> list[str]:
    """What a keeper does at its end; ``claims``: those in whose name the prefix is emptied, None:
    it is not. What is left. Raises ClusterError."""
    remains: list[str] | None = []
    with ways(site) as (_, keeper):
        keeper.ask(undo=list(undo))
        if claims is not None:
            keeper.ask(ours=list(claims))
        remains = keeper.end()
    return ["the keeper of the cluster ended"] if remains is None else remains
