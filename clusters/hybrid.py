"""Two systems side by side, for locks that use both: five Redis nodes that know nothing of each
other (1 to 5) and a ZooKeeper ensemble of three (6 to 8), each as in its own topology.

What can be done to a part can be done to it here, under these numbers. Only Redis nodes can be
wiped or lose their power. There are no links between the parts. Clocks can be moved where both
images are ours.

Whom a fault strikes (``lockbench.nemesis.targets`` sees it from the links): what stops or cuts off
a process strikes the ensemble, which has the leader; what takes away the data or the clock that a
node has for itself strikes a majority of the Redis nodes, for which nobody else remembers. Neither
hurts the ensemble: it replicates its data and counts sessions in elapsed time. The replies
that ``reply-lost`` drops are those of both. A combination strikes both, too (``clock-jump+kill``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lockbench.clusters.base import (
    HARNESS,
    Clocked,
    Cluster,
    ClusterError,
    ClusterPlan,
    Cut,
    Edge,
    Shape,
    Syncing,
    Topology,
    Usage,
)
from lockbench.clusters.engine.docker import Act
from lockbench.clusters.pods import compose
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.redis import nodes as redis
from lockbench.clusters.zookeeper import ensemble as zookeeper

REDIS_NODES = 5
ZOOKEEPER_NODES = 3


class HybridCluster(Cluster):
    """Both clusters under one numbering."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self._redis = redis.make(replace(plan, topology="redlock", size=REDIS_NODES))
        self._zookeeper = zookeeper.make(replace(plan, topology="zookeeper", size=ZOOKEEPER_NODES))
        self._both: Sequence[PodCluster] = (self._redis, self._zookeeper)

    @property
    def nodes(self) -> Sequence[int]:
        return range(1, REDIS_NODES + ZOOKEEPER_NODES + 1)

    @property
    def quorums(self) -> Sequence[Sequence[int]]:
        return [self.independent, self.nodes[REDIS_NODES:]]

    @property
    def independent(self) -> Sequence[int]:
        return self.nodes[:REDIS_NODES]

    def start(self) -> None:
        """One after the other; if one fails, nothing of either is left."""
        self._redis.start()
        try:
            self._zookeeper.start()
        except BaseException:
            self._redis.stop()
            raise

    def verify(self) -> None:
        self._redis.verify()
        self._zookeeper.verify()

    def empty(self) -> None:
        self._redis.empty()
        self._zookeeper.empty()

    def stop(self) -> Sequence[str]:
        return [*self._redis.stop(), *self._zookeeper.stop()]

    def acts(self) -> Sequence[Act]:
        """Of both."""
        return [*self._redis.acts(), *self._zookeeper.acts()]

    def compose(self) -> str:
        """Both, each in a network of its own."""
        parts = [*self._redis.parts(), *self._zookeeper.parts()]
        return compose.text(self.plan.topology, parts)

    def addresses(self, group: int) -> Sequence[tuple[str, int]]:
        """The Redis nodes first."""
        return [*self._redis.addresses(group), *self._zookeeper.addresses(group)]

    def node_name(self, node: int) -> str:
        cluster, number = self._of(node)
        return cluster.node_name(number)

    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        cluster, number = self._of(node)
        return cluster.serves(number, timeout_s, group)

    def leader(self) -> int | None:
        """The ensemble's."""
        number = self._zookeeper.leader()
        return None if number is None else number + REDIS_NODES

    def usage(self) -> Usage:
        """Both together; commands of the one and packets of the other are requests alike."""
        return Usage.total([self._redis.usage(), self._zookeeper.usage()])

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """Node 1 is a Redis."""
        return self._redis.link_overhead_us(rounds)

    # --- processes ---

    def pause(self, nodes: Iterable[int]) -> None:
        """The Redis nodes among them first, here and below: the parts do not wait together."""
        for cluster, numbers in self._parts(nodes):
            cluster.pause(numbers)

    def unpause(self, nodes: Iterable[int]) -> None:
        for cluster, numbers in self._parts(nodes):
            cluster.unpause(numbers)

    def frozen(self, node: int) -> bool:
        cluster, number = self._of(node)
        return cluster.frozen(number)

    def kill(self, nodes: Iterable[int]) -> None:
        for cluster, numbers in self._parts(nodes):
            cluster.kill(numbers)

    def restart(self, nodes: Iterable[int]) -> None:
        for cluster, numbers in self._parts(nodes):
            cluster.restart(numbers)

    def wipe(self, nodes: Iterable[int]) -> None:
        """Remove the data of killed Redis nodes. ClusterError: one is not a Redis node."""
        self._redis.wipe(self._of_redis(nodes, "keeps its data"))

    # --- links ---

    def edges(self) -> Sequence[Edge]:
        """Those of the parts; none lead from one to the other."""
        return [
            *self._redis.edges(),
            *(_moved(edge, REDIS_NODES) for edge in self._zookeeper.edges()),
        ]

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        for cluster, mine in self._links(edges):
            cluster.cut(mine, how)

    def cut_one_way(self, edges: Iterable[Edge], how: Cut) -> None:
        for cluster, mine in self._links(edges):
            cluster.cut_one_way(mine, how)

    def shape(self, edges: Iterable[Edge], shape: Shape) -> None:
        for cluster, mine in self._links(edges):
            cluster.shape(mine, shape)

    def reset(self, edges: Iterable[Edge]) -> int:
        return sum(cluster.reset(mine) for cluster, mine in self._links(edges))

    def broken_links(self) -> Sequence[str]:
        return [*self._redis.broken_links(), *self._zookeeper.broken_links()]

    def heal(self) -> None:
        """The ensemble's links are healed even if those of Redis cannot be."""
        try:
            self._redis.heal()
        finally:
            self._zookeeper.heal()

    # --- numbers ---

    def _of(self, node: int) -> tuple[PodCluster, int]:
        if node not in self.nodes:
            raise ClusterError(f"{self.plan.topology} has no node {node}")
        if node <= REDIS_NODES:
            return self._redis, node
        return self._zookeeper, node - REDIS_NODES

    def _parts(self, nodes: Iterable[int]) -> list[tuple[PodCluster, list[int]]]:
        """The parts that have some of these nodes, and which, under their own numbers."""
        chosen = [self._of(node) for node in nodes]
        parts = ((part, [n for of, n in chosen if of is part]) for part in self._both)
        return [(part, numbers) for part, numbers in parts if numbers]

    def _of_redis(self, nodes: Iterable[int], otherwise: str) -> list[int]:
        chosen = list(nodes)
        for node in chosen:
            if self._of(node)[0] is not self._redis:
                raise ClusterError(f"{self.node_name(node)} {otherwise}")
        return chosen

    def _links(self, edges: Iterable[Edge]) -> list[tuple[PodCluster, list[Edge]]]:
        """The parts that have some of these links, and which, under their own numbers."""
        mine: dict[PodCluster, list[Edge]] = defaultdict(list)
        for edge in edges:
            parts = [self._of(end)[0] for end in (edge.source, edge.target) if end > 0]
            if not parts or parts[0] is not parts[-1]:
                raise ClusterError(f"{self.plan.topology} has no link {edge}")
            mine[parts[0]].append(_moved(edge, 0 if parts[0] is self._redis else -REDIS_NODES))
        return list(mine.items())


class OurHybridCluster(HybridCluster):
    """Both clusters of our own images, whose servers read a clock that can be moved."""

    def shift_clock(self, nodes: Iterable[int], offset_s: float) -> None:
        for cluster, numbers in self._parts(nodes):
            assert isinstance(cluster, Clocked)
            cluster.shift_clock(numbers, offset_s)

    def clock_offset_s(self, node: int, timeout_s: float) -> float:
        cluster, number = self._of(node)
        assert isinstance(cluster, Clocked)
        return cluster.clock_offset_s(number, timeout_s)

    def lose_unsynced(self, nodes: Iterable[int]) -> Mapping[int, int]:
        """Of killed Redis nodes. ClusterError: one is not a Redis node."""
        assert isinstance(self._redis, Syncing)
        return self._redis.lose_unsynced(self._of_redis(nodes, "does not tell what is synced"))


def make(plan: ClusterPlan) -> HybridCluster:
    """Make a cluster that can do what its images can."""
    swapped = any(map(plan.is_swapped, ("redis", "zookeeper")))
    return HybridCluster(plan) if swapped else OurHybridCluster(plan)


def _moved(edge: Edge, by: int) -> Edge:
    """The same link where nodes are numbered from elsewhere; client groups keep their numbers."""
    source, target = (end + by if end > 0 else end for end in (edge.source, edge.target))
    return Edge(source, target)


TOPOLOGY = Topology(
    name="redlock-zookeeper",
    sizes=(REDIS_NODES + ZOOKEEPER_NODES,),
    default_size=REDIS_NODES + ZOOKEEPER_NODES,
    images=("redis", "zookeeper"),
    settings={**redis.SETTINGS, **zookeeper.SETTINGS},
    make=make,
    quorum=False,
)
