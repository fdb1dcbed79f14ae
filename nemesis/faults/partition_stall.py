"""``partition-stall``: bytes are held and delivered after the heal, so stale commands land late.

A short partition, in which the kernels retransmit: the dangerous one for locks. Exposed only if
something that was sent during it was held back.
"""

from __future__ import annotations

from lockbench.nemesis.partition import Partition


class PartitionStall(Partition):
    """See the module."""

    name = "partition-stall"
    summary = "cuts links: what is sent is held back and delivered after the heal"
    during = "under a partition that delivered late"
    suites = frozenset({"nightly", "full"})
    how = "stall"


FAULT = PartitionStall()
