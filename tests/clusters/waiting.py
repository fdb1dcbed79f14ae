"""What the tests of real clusters share: waiting for a condition, roles, links around a node."""

from __future__ import annotations

import time
from collections.abc import Callable

from clusters.base import Edge, Replicated
from clusters.pods import PodCluster

LIMIT_S = 20.0


def soon(what: Callable[[], object], limit_s: float = LIMIT_S) -> bool:
    """Whether it comes true in time."""
    until = time.monotonic() + limit_s
    while not what():
        if time.monotonic() > until:
            return False
        time.sleep(0.02)
    return True


def roles(cluster: Replicated) -> tuple[int, int]:
    """The primary and its replica, when each is what it should be."""
    assert soon(lambda: cluster.primary() is not None and len(cluster.replicas()) == 1)
    primary = cluster.primary()
    (replica,) = cluster.replicas()
    assert primary is not None
    return primary, replica


def around(cluster: PodCluster, node: int) -> list[Edge]:
    """The links between a node and the other nodes."""
    return [e for e in cluster.edges() if e.source > 0 and node in {e.source, e.target}]
