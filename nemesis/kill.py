"""``kill``: SIGKILL of the decisive servers, and a restart with their data.

SIGKILL keeps the page cache: what was written is there again, synced or not, so this is a crash of
the process and not of the machine. Verified by a write that must fail; healed by the restart
itself. Can hurt only if a promise outlives the restart while others try.
"""

from __future__ import annotations

from time import monotonic_ns

from clusters.base import Cluster, Killable, Led
from nemesis.base import Arena, Fault, NemesisError
from nemesis.targets import decisive, note_leader

PROBE_S = 0.4


class Kill(Fault):
    """See the module."""

    name = "kill"
    summary = "SIGKILL of the leader, the only node, or a majority of independent nodes; data kept"
    rules = ("proven", "grants-around", "promise-outlives-restart")
    outlived = True

    def unfit(self, cluster: Cluster) -> str | None:
        return None if isinstance(cluster, Killable) else "its servers cannot be killed"

    def duration_s(self, lease_ttl_s: float) -> float:
        """Short: the promise has to outlive the restart, which takes a good part of a second."""
        return 0.1 * lease_ttl_s

    def aim(self, arena: Arena) -> None:
        arena.targets = decisive(arena)
        arena.facts["leader_due"] = False

    def begin(self, arena: Arena) -> None:
        killable(arena).kill(arena.targets)

    def took_effect(self, arena: Arena) -> bool:
        return not any(arena.cluster.serves(node, PROBE_S) for node in arena.targets)

    def heal(self, arena: Arena) -> None:
        killable(arena).restart(arena.targets)
        arena.facts["restarted_ns"] = monotonic_ns()

    def recovered(self, arena: Arena) -> bool:
        if isinstance(arena.cluster, Led):
            note_leader(arena, "leader_during")
        return all(arena.cluster.serves(node, PROBE_S) for node in arena.targets)


def killable(arena: Arena) -> Killable:
    """The cluster as one whose servers can be killed. Raises NemesisError."""
    if not isinstance(arena.cluster, Killable):
        raise NemesisError("the cluster's servers cannot be killed")
    return arena.cluster


FAULT = Kill()
