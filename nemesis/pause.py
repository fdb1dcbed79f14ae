"""``pause``: the decisive servers are frozen (cgroup freezer), as a stalled host would be.

Their sockets stay open, the kernel goes on to acknowledge bytes, their clocks and TTLs run. Applies
to every cluster whose servers can be paused. Verified by a write that the frozen node must not
answer; healed by unpausing.
"""

from __future__ import annotations

from clusters.base import Cluster, Led, Pausable
from nemesis.base import Arena, Fault, NemesisError
from nemesis.targets import decisive, note_leader

PROBE_S = 0.4


class Pause(Fault):
    """See the module."""

    name = "pause"
    summary = "freezes the leader, the only node, or a majority of independent nodes"
    rules = ("proven", "grants-around", "hold-across", "leader-changed")

    def unfit(self, cluster: Cluster) -> str | None:
        return None if isinstance(cluster, Pausable) else "its servers cannot be paused"

    def duration_s(self, lease_ttl_s: float) -> float:
        return 2.0 * lease_ttl_s

    def aim(self, arena: Arena) -> None:
        arena.targets = decisive(arena)
        arena.facts["leader_due"] = isinstance(arena.cluster, Led)

    def begin(self, arena: Arena) -> None:
        _pausable(arena).pause(arena.targets)

    def took_effect(self, arena: Arena) -> bool:
        return not any(arena.cluster.serves(node, PROBE_S) for node in arena.targets)

    def heal(self, arena: Arena) -> None:
        try:
            note_leader(arena, "leader_during")
        finally:
            _pausable(arena).unpause(arena.targets)

    def recovered(self, arena: Arena) -> bool:
        return all(arena.cluster.serves(node, PROBE_S) for node in arena.targets)


def _pausable(arena: Arena) -> Pausable:
    if not isinstance(arena.cluster, Pausable):
        raise NemesisError("the cluster's servers cannot be paused")
    return arena.cluster


FAULT = Pause()
