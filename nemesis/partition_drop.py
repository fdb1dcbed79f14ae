"""``partition-drop``: the decisive servers are cut off; bytes are lost, connections hang.

The leader is cut from the other servers (its clients still reach it: the dangerous side to be on);
independent nodes are cut from every client. Both directions of every link, each at its own proxy.
Connections stay open and new ones open and hang; healing closes them. This is a partition that
outlives TCP's and the application's time limits. Verified by a write that the cut node must not
complete; healed by restoring every link to its base state.
"""

from __future__ import annotations

from collections.abc import Iterable

from clusters.base import HARNESS, Cluster, Cuttable, Edge, Led
from nemesis.base import Arena, Fault, NemesisError
from nemesis.targets import decisive, note_leader

PROBE_S = 0.4


class PartitionDrop(Fault):
    """See the module."""

    name = "partition-drop"
    summary = (
        "cuts the leader from the other servers, or a majority of independent nodes from clients"
    )
    rules = ("proven", "grants-around", "hold-across", "leader-changed")

    def unfit(self, cluster: Cluster) -> str | None:
        return None if isinstance(cluster, Cuttable) else "its links cannot be cut"

    def duration_s(self, lease_ttl_s: float) -> float:
        return 2.0 * lease_ttl_s

    def aim(self, arena: Arena) -> None:
        arena.targets = decisive(arena)
        arena.facts["leader_due"] = isinstance(arena.cluster, Led)

    def begin(self, arena: Arena) -> None:
        cuttable = _cuttable(arena)
        edges = tuple(_around(cuttable.edges(), arena))
        arena.facts["links_cut"] = len(edges)
        cuttable.cut(edges, "drop")

    def took_effect(self, arena: Arena) -> bool:
        return not any(_serves(arena, node) for node in arena.targets)

    def heal(self, arena: Arena) -> None:
        try:
            note_leader(arena, "leader_during")
        finally:
            _cuttable(arena).heal()

    def recovered(self, arena: Arena) -> bool:
        return all(_serves(arena, node) for node in arena.targets)


def _serves(arena: Arena, node: int) -> bool:
    """Asked from the side that the node was cut from: its clients', or (where it was cut from the
    other servers) the harness', whose link is never cut."""
    group = HARNESS if isinstance(arena.cluster, Led) else 1
    return arena.cluster.serves(node, PROBE_S, group)


def _around(edges: Iterable[Edge], arena: Arena) -> Iterable[Edge]:
    """Every link between the targets and the side that they are cut from. Sources of 0 and below
    are client groups."""
    targets = set(arena.targets)
    led = isinstance(arena.cluster, Led)
    for edge in edges:
        from_server = edge.source > 0
        if (from_server and (edge.source in targets) != (edge.target in targets)) or (
            not from_server and not led and edge.target in targets
        ):
            yield edge


def _cuttable(arena: Arena) -> Cuttable:
    if not isinstance(arena.cluster, Cuttable):
        raise NemesisError("the cluster's links cannot be cut")
    return arena.cluster


FAULT = PartitionDrop()
