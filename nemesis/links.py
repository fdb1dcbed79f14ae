"""What the faults of links share: which links there are to choose from, and what can be done to
them."""

from __future__ import annotations

from typing import Final

from lockbench.clusters.base import Cluster, CutByCommand, Cuttable, Edge, Shapable
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena, Asked, Impossible, NemesisError
from lockbench.nemesis.targets import headed

CLIENTS, SERVERS, EVERYTHING = "clients", "servers", "all"


def on(default: str) -> Parameter:
    """The parameter that names the links."""
    return Parameter(
        "which links: from clients, between servers, or all",
        default,
        (CLIENTS, SERVERS, EVERYTHING),
    )


ON: Final = on(EVERYTHING)


def joined(cluster: Cuttable) -> bool:
    """Whether the nodes talk to each other."""
    return any(edge.source > 0 for edge in cluster.edges())


def unlinked(cluster: Cluster, otherwise: str) -> str:
    """Why there are no links between its nodes: they do not talk to each other, or ``otherwise``,
    where the bench has no way to what they say."""
    if headed(cluster) and len(cluster.nodes) > 1:
        return otherwise
    return Impossible("its nodes do not talk to each other")


def unfit(cluster: Cluster, asked: Asked, otherwise: str) -> str | None:
    """Why the links of the parameter ``on`` cannot be worked on, or None; ``otherwise`` is said of
    a cluster that offers nothing of the kind."""
    if not isinstance(cluster, Shapable) or not isinstance(cluster, Cuttable):
        return otherwise
    if asked["on"] == SERVERS and not _shaped_between(cluster):
        return unlinked(cluster, "the links between its servers can only be cut or left alone")
    return None


def chosen(arena: Arena) -> list[Edge]:
    """The links of the parameter ``on``."""
    which, cluster = arena.word("on"), cuttable_of(arena)
    between = _shaped_between(cluster)
    return [
        edge
        for edge in cluster.edges()
        if (edge.source < 0 or between)
        and (which == EVERYTHING or (edge.source > 0) == (which == SERVERS))
    ]


def _shaped_between(cluster: Cuttable) -> bool:
    """Whether links between nodes can be made slow."""
    return joined(cluster) and not isinstance(cluster, CutByCommand)


def all_broken(arena: Arena, count: int | None) -> bool:
    """The proxies' own word that as many links as this are not in their base state."""
    return count is not None and len(cuttable_of(arena).broken_links()) >= count


def cuttable_of(arena: Arena) -> Cuttable:
    """The cluster as one whose links can be cut. Raises NemesisError."""
    if not isinstance(arena.cluster, Cuttable):
        raise NemesisError("the cluster's links cannot be cut")
    return arena.cluster


def shapable_of(arena: Arena) -> Shapable:
    """The cluster as one whose links can be made slow. Raises NemesisError."""
    if not isinstance(arena.cluster, Shapable):
        raise NemesisError("the cluster's links cannot be made slow")
    return arena.cluster
