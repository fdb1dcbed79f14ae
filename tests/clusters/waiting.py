"""What the tests of real clusters share: waiting, roles, and what is broken for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from lockbench.clusters.base import Cut, Edge, Led, Pausable, Replicated
from lockbench.clusters.pods.cluster import PodCluster
from tests.eventually import eventually

PROBE_S = 0.5  # for what is to fail, and what is asked again
SURE_S = 10.0  # for what has one try and is to succeed


def roles(cluster: Replicated) -> tuple[int, int]:
    """The primary and its replica, when each is what it should be."""
    eventually(lambda: cluster.primary() is not None and len(cluster.replicas()) == 1)
    primary = cluster.primary()
    (replica,) = cluster.replicas()
    assert primary is not None
    return primary, replica


def leader_of(cluster: PodCluster) -> int | None:
    assert isinstance(cluster, Led)
    return cluster.leader()


def leader_and_others(cluster: PodCluster) -> tuple[int, list[int]]:
    eventually(lambda: leader_of(cluster) is not None)
    leader = leader_of(cluster)
    assert leader is not None
    return leader, [node for node in cluster.nodes if node != leader]


def serve(
    cluster: PodCluster, nodes: Iterable[int] | None = None, limit_s: float = PROBE_S
) -> bool:
    """Whether each of these nodes, or every node, serves."""
    return all(cluster.serves(node, limit_s) for node in nodes or cluster.nodes)


def around(cluster: PodCluster, node: int) -> list[Edge]:
    """The links between a node and the other nodes."""
    return [e for e in cluster.edges() if e.source > 0 and node in {e.source, e.target}]


def between(cluster: PodCluster, *nodes: int) -> list[Edge]:
    """The links among these nodes, or among all."""
    chosen = set(nodes or cluster.nodes)
    return [e for e in cluster.edges() if {e.source, e.target} <= chosen]


@contextmanager
def cut(cluster: PodCluster, edges: Iterable[Edge], how: Cut = "drop") -> Iterator[None]:
    """These links are cut inside, and all are whole afterwards."""
    cluster.cut(edges, how)
    try:
        yield
    finally:
        cluster.heal()


@contextmanager
def frozen(cluster: Pausable, node: int) -> Iterator[None]:
    cluster.pause([node])
    try:
        yield
    finally:
        cluster.unpause([node])
