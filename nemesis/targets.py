"""Which nodes a fault strikes: resolved by role at the moment it begins."""

from __future__ import annotations

from clusters.base import Cluster, Led, Replicated
from nemesis.base import Arena, NemesisError


def decisive(arena: Arena) -> tuple[int, ...]:
    """The fewest nodes whose loss matters at once: the leader or the primary where there is one,
    the node where there is only one, else a majority drawn by the seed."""
    cluster = arena.cluster
    if isinstance(cluster, Led):
        leader = cluster.leader()
        if leader is None:
            raise NemesisError("no leader to aim at: the cluster was not healthy before the fault")
        arena.facts["leader_before"] = leader
        return (leader,)
    if isinstance(cluster, Replicated):
        primary = cluster.primary()
        if primary is None:
            raise NemesisError("no primary to aim at: the cluster was not healthy before the fault")
        arena.facts["primary_before"] = primary
        return (primary,)
    return majority(cluster, arena)


def majority(cluster: Cluster, arena: Arena) -> tuple[int, ...]:
    """More than half of the nodes, drawn by the seed."""
    nodes = list(cluster.nodes)
    return tuple(sorted(arena.rng.sample(nodes, len(nodes) // 2 + 1)))


def note_leader(arena: Arena, fact: str) -> None:
    """Writes down who leads now, where anybody does."""
    if isinstance(arena.cluster, Led):
        arena.facts[fact] = arena.cluster.leader()
