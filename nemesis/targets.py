"""Which nodes a fault strikes: by role, resolved at the moment it begins.

A cluster may be a mixture: some nodes talk to each other, others stand alone, as its links tell.
A fault then chooses among one kind. What stops a process or cuts it off strikes those that talk to
each other, which have the head if there is one. What is ``kept`` by each node for itself, its data
and its clock, is taken from those that stand alone, for which nobody else remembers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lockbench.clusters.base import Cluster, Cuttable, Led, Replicated
from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena, Impossible, NemesisError

DECISIVE: Final = "decisive"
WHO: Final = Parameter(
    "which servers; decisive: the leader, the primary, the only node, or a majority of "
    "independent nodes",
    DECISIVE,
    (DECISIVE, "one", "leader", "primary", "replica", "minority", "majority", "all"),
)


def nobody(cluster: Cluster, role: str, *, kept: bool = False) -> str | None:
    """Why a cluster has no such nodes, or None."""
    if role in ("leader", "primary", "replica") and _mixed(cluster) and kept:
        return Impossible(f"its nodes that stand alone have no {role}")
    if role == "leader" and not isinstance(cluster, Led):
        return Impossible("it has no leader")
    if role in ("primary", "replica") and not isinstance(cluster, Replicated):
        return Impossible(f"it has no {role}")
    if role == "minority" and len(eligible(cluster, kept=kept)) < 3:
        return Impossible(f"its {len(cluster.nodes)} nodes have no minority")
    return None


def resolve(arena: Arena, role: str, *, kept: bool = False) -> tuple[int, ...]:
    """The nodes of a role, now. Draws come from the injection's seed. Raises NemesisError."""
    cluster = arena.cluster
    head = note_head(arena)
    nodes = list(eligible(cluster, kept=kept))
    if role in ("leader", "primary") or (role == DECISIVE and headed(cluster, kept=kept)):
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


def eligible(cluster: Cluster, *, kept: bool = False) -> Sequence[int]:
    """The nodes that a fault chooses among: all, but of a mixture only one kind (see above)."""
    if not _mixed(cluster):
        return cluster.nodes
    alone = _alone(cluster)
    return [node for node in cluster.nodes if (node in alone) == kept]


def _mixed(cluster: Cluster) -> bool:
    return 0 < len(_alone(cluster)) < len(cluster.nodes)


def _alone(cluster: Cluster) -> frozenset[int]:
    """The nodes that no link joins to another node; none where links cannot be seen."""
    if not isinstance(cluster, Cuttable):
        return frozenset()
    between = [edge for edge in cluster.edges() if edge.source > 0]
    return frozenset(cluster.nodes).difference(*((edge.source, edge.target) for edge in between))


def majority(nodes: Sequence[int]) -> int:
    """How many are more than half."""
    return len(nodes) // 2 + 1


def minority(nodes: Sequence[int]) -> int:
    """The most that are fewer than half."""
    return (len(nodes) - 1) // 2


def headed(cluster: Cluster, *, kept: bool = False) -> bool:
    """Whether one of the nodes that a fault chooses among is above the others."""
    return isinstance(cluster, Led | Replicated) and not (kept and _mixed(cluster))


def head_of(cluster: Cluster) -> int | None:
    """The leader or primary now, or None."""
    if isinstance(cluster, Led):
        return cluster.leader()
    return cluster.primary() if isinstance(cluster, Replicated) else None


def note_head(arena: Arena) -> int | None:
    """Writes down who leads before the fault, where anybody does."""
    if headed(arena.cluster):
        arena.facts.leader_before = head_of(arena.cluster)
    return arena.facts.leader_before


def note_head_during(arena: Arena) -> None:
    """Writes down who leads while the fault is on, where anybody does."""
    if headed(arena.cluster):
        arena.facts.leader_during = head_of(arena.cluster)


def note_deciding(arena: Arena) -> None:
    """Writes down which servers decide by what each keeps for itself, its data and its clock: the
    leader or primary; of independent nodes all, of which a majority is needed."""
    head = note_head(arena)
    led = headed(arena.cluster, kept=True)
    decide = [head] if led and head is not None else eligible(arena.cluster, kept=True)
    arena.facts.deciding = [arena.cluster.node_name(node) for node in decide]


def leader_due(arena: Arena) -> bool:
    """Whether a new leader is due: the old one is struck for longer than its followers wait, which
    every topology sets below the lease."""
    return (
        isinstance(arena.cluster, Led)
        and arena.facts.leader_before in arena.targets
        and arena.injection.duration_s >= arena.lease_ttl_s
    )
