"""``partition-reject``: connections are closed, new ones refused, as by a firewall that answers.

Clients notice at once, so this is the gentle partition.
"""

from __future__ import annotations

from lockbench.nemesis.partition import Partition


class PartitionReject(Partition):
    """See the module."""

    name = "partition-reject"
    summary = "cuts links: connections are closed and new ones refused"
    how = "reject"


FAULT = PartitionReject()
