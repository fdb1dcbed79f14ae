"""What the hybrids share: a client of Redlock and one of ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.locks.base import Address, Observer
from lockbench.locks.redis.redlock import Redlock
from lockbench.locks.zookeeper.mutex import ZooKeeper

REDIS_NODES = 5  # the first of the nodes


class Hybrid:
    """One client of both."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        redis, ensemble = nodes[:REDIS_NODES], nodes[REDIS_NODES:]
        self._redlock = Redlock(redis, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        self._zookeeper = ZooKeeper(ensemble, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)

    def close(self) -> None:
        self._redlock.close()
        self._zookeeper.close()
