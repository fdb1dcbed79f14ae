"""``restart``: servers are killed and come back with their data after more than a lease.

The counterpart of ``kill``, which restarts within the lease: every promise of before is over when
they are back. What delayed restarts are recommended for (Redis, "Distributed Locks with Redis",
section on crash recovery).
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.nemesis.base import Arena
from lockbench.nemesis.faults.kill import Kill
from lockbench.nemesis.targets import leader_due, resolve


class Restart(Kill):
    """See the module."""

    name = "restart"
    summary = "SIGKILL of servers, restarted with their data after more than a lease"
    during = ""
    suites = frozenset({"nightly"})
    rules: ClassVar[tuple[str, ...]] = ("proven", "grants-around", "hold-across")
    lasts_leases = 1.5
    outlived = False

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, arena.word("who"))

    def rules_for(self, arena: Arena) -> tuple[str, ...]:
        # Without a majority nobody is elected.
        due = leader_due(arena) and arena.word("who") not in ("all", "majority")
        return (*self.rules, "leader-changed") if due else self.rules


FAULT = Restart()
