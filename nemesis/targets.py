"""Which nodes a fault strikes: by role, resolved at the moment it begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from clusters.base import Cluster, Led, Replicated
from nemesis.base import Arena, NemesisError, Parameter

DECISIVE: Final = "decisive"
WHO: Final = (
    DECISIVE,
    "one",
    "leader",
    "primary",
    "replica",
    "minority",
    "majority",
    "all",
)


def who() -> Parameter:
    """The parameter that names the nodes."""
    return Parameter(
        "which servers; decisive: the leader, the primary, the only node, or a majority of "
        "independent nodes",
        DECISIVE,
        WHO,
    )


def nobody(cluster: Cluster, role: str) -> str | None:
    """Why a cluster has no such nodes, or None."""
    if role == "leader" and not isinstance(cluster, Led):
        return "it has no leader"
    if role in ("primary", "replica") and not isinstance(cluster, Replicated):
        return f"it has no {role}"
    if role == "minority" and len(cluster.nodes) < 3:
        return f"its {len(cluster.nodes)} nodes have no minority"
    return None


def resolve(arena: Arena, role: str) -> tuple[int, ...]:
    """The nodes of a role, now. Draws come from the injection's seed. Raises NemesisError."""
    cluster = arena.cluster
    head = note_head(arena, "before")
    nodes = list(cluster.nodes)
    if role in ("leader", "primary") or (role == DECISIVE and headed(cluster)):
        if head is None:
            raise NemesisError(f"no {role} to aim at: the cluster was not healthy")
        return (head,)
    if role == "replica":
        replicas = cluster.replicas() if isinstance(cluster, Replicated) else ()
        if not replicas:
            raise NemesisError("no replica to aim at: the cluster was not healthy")
        return (arena.rng.choice(sorted(replicas)),)
    count = {"one": 1, "minority": minority(nodes), "all": len(nodes)}.get(role, majority(nodes))
    return tuple(sorted(arena.rng.sample(nodes, count)))


def majority(nodes: Sequence[int]) -> int:
    """How many are more than half."""
    return len(nodes) // 2 + 1


def minority(nodes: Sequence[int]) -> int:
    """The most that are fewer than half."""
    return (len(nodes) - 1) // 2


def headed(cluster: Cluster) -> bool:
    """Whether one node is above the others."""
    return isinstance(cluster, Led | Replicated)


def head_of(cluster: Cluster) -> int | None:
    """The leader or primary now, or None."""
    if isinstance(cluster, Led):
        return cluster.leader()
    return cluster.primary() if isinstance(cluster, Replicated) else None


def note_head(arena: Arena, when: str) -> int | None:
    """Writes down who leads now, where anybody does."""
    if not headed(arena.cluster):
        return None
    head = head_of(arena.cluster)
    arena.facts[f"leader_{when}"] = head
    return head


def note_due(arena: Arena) -> None:
    """Writes down whether a new leader is due: the old one is struck for longer than its followers
    wait, which every topology sets below the lease."""
    arena.facts["leader_due"] = (
        isinstance(arena.cluster, Led)
        and arena.facts.get("leader_before") in arena.targets
        and arena.injection.duration_s >= arena.lease_ttl_s
    )
