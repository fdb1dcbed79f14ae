"""``client-pause``: the victim's process is frozen while it holds, for longer than its lease.

What a garbage collection, a suspended virtual machine or an overloaded host does (Kleppmann, "How
to do distributed locking", 2016). Applies to every lock. Verified by the kernel's own word on the
process; healed by SIGCONT. Can hurt only if the victim held when it froze, somebody else was
granted the lock before it woke, and it acted afterwards.
"""

from __future__ import annotations

from clusters.base import Cluster
from nemesis.base import Arena, Fault


class ClientPause(Fault):
    """See the module."""

    name = "client-pause"
    summary = "freezes the process of a client that holds the lock, for longer than the lease"
    rules = ("proven", "grants-around", "holder-frozen")

    def unfit(self, cluster: Cluster) -> str | None:
        return None

    def duration_s(self, lease_ttl_s: float) -> float:
        return 1.6 * lease_ttl_s

    def aim(self, arena: Arena) -> None:
        arena.targets = ()
        arena.facts["worker"] = arena.clients.victim_worker

    def begin(self, arena: Arena) -> None:
        arena.clients.freeze()

    def took_effect(self, arena: Arena) -> bool:
        return arena.clients.frozen()

    def heal(self, arena: Arena) -> None:
        # So that it goes on with what it was about to do as soon as it wakes.
        arena.clients.let_go()
        arena.clients.thaw()

    def recovered(self, arena: Arena) -> bool:
        return not arena.clients.frozen()


FAULT = ClientPause()
