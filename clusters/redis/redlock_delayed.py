"""Redlock's nodes, kept away after a crash until every lease of before is over.

'We can use delayed restarts': a node that comes back later than the longest time to live has
nothing left to forget, whatever it has lost
(https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/). In production this is a
setting of whatever starts the servers again; here the restart waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from lockbench.clusters.base import ClusterPlan, Topology
from lockbench.clusters.pods.shim import by_image
from lockbench.clusters.redis.nodes import SETTINGS, OurRedisNodes, RedisNodes

DELAY_PER_LEASE = 1.1  # 'for at least a bit more than the max TTL we use'


class DelayedRestarts(RedisNodes):
    """Independent nodes that come back late."""

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan, SETTINGS)
        self._killed_s = 0.0

    @property
    def restart_delay_s(self) -> float:
        return DELAY_PER_LEASE * self.plan.lease_ttl_s

    def kill(self, nodes: Iterable[int]) -> None:
        """The delay begins when the last of them is gone."""
        super().kill(nodes)
        self._killed_s = time.monotonic()

    def restart(self, nodes: Iterable[int]) -> None:
        """Waits until the delay is over."""
        self._given_up.wait(max(0.0, self._killed_s + self.restart_delay_s - time.monotonic()))
        super().restart(nodes)


class OurDelayedRestarts(DelayedRestarts, OurRedisNodes):
    """The same of our own image."""


TOPOLOGY = Topology(
    name="redlock-delayed-restart",
    sizes=(3, 5, 7),
    default_size=5,
    images=("redis",),
    settings={**SETTINGS, "restart delay": f"{DELAY_PER_LEASE:g} leases"},
    make=by_image(DelayedRestarts, OurDelayedRestarts),
    quorum=False,
)
