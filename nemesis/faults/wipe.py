"""``wipe``: like ``kill``, but the servers come back without their data.

What a restart does to a server without persistence, or with it on a disk that was lost. Applies to
independent nodes that can be wiped; a majority of them is, because a minority breaks nothing.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.clusters.base import Cluster, Led, Wipeable
from lockbench.nemesis.base import Arena, Asked, Impossible, NemesisError
from lockbench.nemesis.faults.kill import Kill
from lockbench.nemesis.targets import headed


class Wipe(Kill):
    """See the module."""

    name = "wipe"
    summary = "SIGKILL of servers, restarted at once without their data"
    during = "when nodes lost their data"
    suites = frozenset({"quick", "full"})
    kept = True
    rules: ClassVar[tuple[str, ...]] = (*Kill.rules, "data-lost")

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if isinstance(cluster, Led) and headed(cluster, kept=True):
            return Impossible(
                "a majority keeps what one server loses, and a member that lost its disk has to be "
                "replaced, not started again"
            )
        if not isinstance(cluster, Wipeable):
            return "its data cannot be wiped"
        if headed(cluster, kept=True):
            return "its nodes replicate, and only data of independent nodes is wiped"
        return super().unfit(cluster, asked)

    def begin(self, arena: Arena) -> None:
        super().begin(arena)
        if not isinstance(arena.cluster, Wipeable):
            raise NemesisError("the cluster's data cannot be wiped")
        arena.cluster.wipe(arena.targets)


FAULT = Wipe()
