"""Two systems side by side, for locks that use both: five Redis nodes that know nothing of each
other (1 to 5) and a ZooKeeper ensemble of three (6 to 8), each as in its own topology.

Only what both can do is offered: they are started, verified and reached. Their servers cannot be
broken one by one here; faults of clients apply.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clusters import images, redis, zookeeper
from clusters.base import HARNESS, Cluster, ClusterPlan, Topology, Usage
from clusters.zookeeper import ZooKeeperCluster

REDIS_NODES = 5
ZOOKEEPER_NODES = 3


class HybridCluster(Cluster):
    """Both clusters, numbered through."""

    def __init__(self, plan: ClusterPlan) -> None:
        self.plan = plan
        self._redis = redis.make(replace(plan, topology="redlock", size=REDIS_NODES))
        self._zookeeper = ZooKeeperCluster(
            replace(plan, topology="zookeeper", size=ZOOKEEPER_NODES)
        )

    @property
    def nodes(self) -> Sequence[int]:
        return range(1, REDIS_NODES + ZOOKEEPER_NODES + 1)

    def start(self) -> None:
        """One after the other; if one fails, nothing of either is left."""
        # A topology names one image; this is the other.
        images.ensure(["zookeeper"], say=lambda _: None)
        self._redis.start()
        try:
            self._zookeeper.start()
        except BaseException:
            self._redis.stop()
            raise

    def verify(self) -> None:
        self._redis.verify()
        self._zookeeper.verify()

    def stop(self) -> None:
        self._redis.stop()
        self._zookeeper.stop()

    def addresses(self, group: int) -> Sequence[tuple[str, int]]:
        """The Redis nodes first."""
        return [*self._redis.addresses(group), *self._zookeeper.addresses(group)]

    def node_name(self, node: int) -> str:
        cluster, number = self._of(node)
        return cluster.node_name(number)

    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        cluster, number = self._of(node)
        return cluster.serves(number, timeout_s, group)

    def usage(self) -> Usage:
        """Both together; commands of the one and packets of the other are requests alike."""
        return Usage.total([self._redis.usage(), self._zookeeper.usage()])

    def _of(self, node: int) -> tuple[Cluster, int]:
        if node <= REDIS_NODES:
            return self._redis, node
        return self._zookeeper, node - REDIS_NODES


TOPOLOGY = Topology(
    name="redlock-zookeeper",
    sizes=(REDIS_NODES + ZOOKEEPER_NODES,),
    default_size=REDIS_NODES + ZOOKEEPER_NODES,
    image="redis",
    settings={**redis.SETTINGS, **zookeeper.SETTINGS},
    make=HybridCluster,
    quorum=False,
)
