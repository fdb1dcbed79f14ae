"""What the tests of real clusters share: waiting for a condition, roles, links around a node."""

from __future__ import annotations

from functools import partial

from clusters.base import Edge, Replicated
from clusters.pods.cluster import PodCluster
from tests.eventually import eventually

LIMIT_S = 20.0
PROBE_S = 0.5  # for what is to fail, and what is asked again
SURE_S = 10.0  # for what has one try and is to succeed
soon = partial(eventually, limit_s=LIMIT_S)  # an election takes its time


def roles(cluster: Replicated) -> tuple[int, int]:
    """The primary and its replica, when each is what it should be."""
    soon(lambda: cluster.primary() is not None and len(cluster.replicas()) == 1)
    primary = cluster.primary()
    (replica,) = cluster.replicas()
    assert primary is not None
    return primary, replica


def around(cluster: PodCluster, node: int) -> list[Edge]:
    """The links between a node and the other nodes."""
    return [e for e in cluster.edges() if e.source > 0 and node in {e.source, e.target}]
