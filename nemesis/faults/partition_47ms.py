"""``partition-47ms``: the network is gone for 47 ms in the middle of somebody's work.

Too short for any timeout, long enough for what was sent to arrive late and for an answer to be
waited for in vain. What is sent meanwhile is held back and delivered, as kernels that retransmit
do. The victim holds the lock as it begins, between its read and its write.
"""

from __future__ import annotations

from lockbench.clusters.base import Cluster
from lockbench.nemesis.base import Arena, Asked, Impossible
from lockbench.nemesis.faults.partition_stall import PartitionStall
from lockbench.nemesis.partition import serves_alone
from lockbench.nemesis.shapes import OF_CLIENTS

SECONDS = 0.047


class Partition47ms(PartitionStall):
    """See the module."""

    name = "partition-47ms"
    summary = "cuts links for 47 ms in the middle of a hold; what is sent arrives late"
    during = ""
    suites = frozenset({"nightly"})

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        if serves_alone(cluster) and asked["shape"] not in OF_CLIENTS:
            return Impossible(
                "its primary answers without the others, so no request would be held back"
            )
        return super().unfit(cluster, asked)

    def duration_s(self, lease_ttl_s: float, kept_leases: float = 1.0) -> float:
        return SECONDS

    def rules_for(self, arena: Arena) -> tuple[str, ...]:
        """What was sent in 47 ms is on its way; nobody has to have been refused meanwhile."""
        return ("proven", "grants-around", "held-back")


FAULT = Partition47ms()
