"""``partition-drop``: bytes are lost; connections, new ones too, hang until the heal closes them.

A partition that outlives TCP's and the application's time limits.
"""

from __future__ import annotations

from lockbench.nemesis.partition import Partition


class PartitionDrop(Partition):
    """See the module."""

    name = "partition-drop"
    summary = "cuts links: what is sent is lost, and connections hang until the heal closes them"
    during = "under a partition"
    suites = frozenset({"quick", "full", "variants"})
    how = "drop"


FAULT = PartitionDrop()
