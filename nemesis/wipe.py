"""``wipe``: like ``kill``, but the servers come back without their data.

What a restart does to a server without persistence, or with it on a disk that was lost. Applies to
independent nodes that can be wiped; a majority of them is, because a minority breaks nothing.
"""

from __future__ import annotations

from clusters.base import Cluster, Led, Wipeable
from nemesis.base import Arena, NemesisError
from nemesis.kill import Kill


class Wipe(Kill):
    """See the module."""

    name = "wipe"
    summary = "SIGKILL of the only node or a majority of independent nodes, restarted without data"

    def unfit(self, cluster: Cluster) -> str | None:
        if not isinstance(cluster, Wipeable):
            return "its data cannot be wiped"
        if isinstance(cluster, Led):
            return "its nodes replicate: wiping the leader alone is what consensus is made for"
        return super().unfit(cluster)

    def begin(self, arena: Arena) -> None:
        super().begin(arena)
        if not isinstance(arena.cluster, Wipeable):
            raise NemesisError("the cluster's data cannot be wiped")
        arena.cluster.wipe(arena.targets)


FAULT = Wipe()
