"""``client-kill``: SIGKILL of the victim's process while it holds.

Nobody releases what it held; the lock is free when its lease has ended or the service has noticed.
How long that takes is the measurement ``leaked-lock``. The process does not come back in this case.
Verified by the kernel: the process is gone. There is nothing to heal.
"""

from __future__ import annotations

from lockbench.nemesis.base import VICTIM, Arena, Fault


class ClientKill(Fault):
    """See the module."""

    name = "client-kill"
    summary = "kills the process of a client that holds the lock"
    suites = frozenset({"nightly", "full"})
    rules = ("proven", "grants-around", "holder-killed")
    lasts_leases = 1.5
    touches = frozenset({VICTIM})
    repeatable = False

    def begin(self, arena: Arena) -> None:
        arena.clients.kill((arena.clients.victim_worker,))

    def took_effect(self, arena: Arena) -> bool:
        return arena.clients.killed(arena.clients.victim_worker)

    def heal(self, arena: Arena) -> None:
        """The dead stay dead."""

    def recovered(self, arena: Arena) -> bool:
        return True


FAULT = ClientKill()
