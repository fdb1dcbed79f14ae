"""``power-loss``: like ``kill``, but what was written after the last sync is gone.

SIGKILL alone keeps the page cache, a loss of power does not. Applies where it is known what a
server has synced. A system that syncs before it answers loses nothing that it acknowledged, so
``kill`` says the same of it. Exposed only if something unsynced was lost.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Cluster, Syncing
from lockbench.nemesis.base import Arena, Asked, NemesisError
from lockbench.nemesis.faults.kill import Kill


class PowerLoss(Kill):
    """See the module."""

    name = "power-loss"
    summary = "SIGKILL of servers, restarted at once without what they had not synced"
    during = "when servers lost what they had not synced"
    suites = frozenset({"nightly"})
    kept = True
    rules: ClassVar[tuple[str, ...]] = (*Kill.rules, "unsynced-lost")

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if not isinstance(cluster, Syncing):
            return (
                "what its servers have synced is not known from outside; those that sync before "
                "they answer lose no more than by kill"
            )
        return super().unfit(cluster, asked)

    def begin(self, arena: Arena) -> None:
        super().begin(arena)
        if not isinstance(arena.cluster, Syncing):
            raise NemesisError("what the servers have synced is not known")
        lost = arena.cluster.lose_unsynced(arena.targets)
        arena.facts.bytes_lost = {arena.cluster.node_name(n): b for n, b in lost.items()}


FAULT = PowerLoss()
