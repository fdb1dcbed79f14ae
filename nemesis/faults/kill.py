"""``kill``: SIGKILL of servers, and a restart with their data.

SIGKILL keeps the page cache: what was written is there again, synced or not, so this is a crash of
the process and not of the machine (that is ``power-loss``). Verified by a write that must fail;
healed by the restart itself. Can hurt only if a promise outlives the restart while others try, so
by default the servers are down for a tenth of a lease; ``restart`` waits longer than the lease.
"""

from __future__ import annotations

from time import monotonic_ns
from typing import ClassVar

from lockbench.clusters.base import Cluster, Delaying, Killable
from lockbench.nemesis.base import SERVERS, Arena, Asked, Fault, NemesisError
from lockbench.nemesis.probes import serving, silent
from lockbench.nemesis.targets import WHO, nobody, note_deciding, note_head_during, resolve


class Kill(Fault):
    """See the module."""

    name = "kill"
    summary = "SIGKILL of servers, restarted at once with their data"
    during = "when servers were killed"
    suites = frozenset({"quick", "full"})
    rules: ClassVar[tuple[str, ...]] = ("proven", "grants-around", "promise-outlives-restart")
    # Short: the promise has to outlive the restart, which takes a good part of a second.
    lasts_leases = 0.1
    outlived = True
    touches = frozenset({SERVERS})
    ends_servers = True
    parameters: ClassVar = {"who": WHO}
    # Whether it takes away what each node keeps for itself (``lockbench.nemesis.targets``).
    kept: ClassVar[bool] = False

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Killable):
            return "its servers cannot be killed"
        return nobody(cluster, str(asked["who"]), kept=self.kept)

    def aim(self, arena: Arena) -> None:
        arena.targets = resolve(arena, arena.word("who"), kept=self.kept)
        if self.kept:
            note_deciding(arena)

    def begin(self, arena: Arena) -> None:
        killable(arena).kill(arena.targets)

    def took_effect(self, arena: Arena) -> bool:
        return silent(arena, arena.targets)

    def heal(self, arena: Arena) -> None:
        if isinstance(arena.cluster, Delaying):
            arena.facts.restart_delay_s = arena.cluster.restart_delay_s
        killable(arena).restart(arena.targets)
        arena.facts.restarted_ns = monotonic_ns()

    def recovered(self, arena: Arena) -> bool:
        note_head_during(arena)
        return serving(arena, arena.targets)


def killable(arena: Arena) -> Killable:
    """The cluster as one whose servers can be killed. Raises NemesisError."""
    if not isinstance(arena.cluster, Killable):
        raise NemesisError("the cluster's servers cannot be killed")
    return arena.cluster


FAULT = Kill()
