"""Valkey in the place of Redis: alone, for Redlock, with Sentinel, as a cluster.

Debian's ``valkey-server``, which speaks Redis' protocol, and reads and writes its files. Settings,
faults and record are those of Redis, and so are the expectations of every lock: Valkey is a fork of
Redis 7.2, and promises nothing else of what locks use (https://valkey.io/topics/migration/).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar, cast

from lockbench.clusters.base import Topology
from lockbench.clusters.pods.shim import by_image
from lockbench.clusters.redis import cluster, nodes, redlock_delayed, sentinel
from lockbench.clusters.redis.nodes import RedisPods

KIND = "valkey"

P = TypeVar("P", bound=RedisPods)


def _of_valkey(pods: type[P]) -> type[P]:
    return cast("type[P]", type(f"Valkey{pods.__name__}", (pods,), {"kind": KIND}))


def _instead(
    topology: Topology, swapped: type[RedisPods], ours: type[RedisPods], **how: Any
) -> Topology:
    """The same topology with other servers. ``swapped`` and ``ours`` as of ``by_image``."""
    name = topology.name.removeprefix("redis").removeprefix("-")
    return replace(
        topology,
        name=f"{KIND}-{name}" if name else KIND,
        images=(KIND,),
        make=by_image(_of_valkey(swapped), _of_valkey(ours), **how),
        in_place_of=topology.name,
    )


TOPOLOGIES = (
    *(
        _instead(one, nodes.RedisNodes, nodes.OurRedisNodes, settings=one.settings)
        for one in nodes.TOPOLOGIES
    ),
    _instead(sentinel.TOPOLOGY, sentinel.SentinelCluster, sentinel.OurSentinelCluster),
    _instead(cluster.TOPOLOGY, cluster.ShardedRedis, cluster.OurShardedRedis),
    _instead(
        redlock_delayed.TOPOLOGY,
        redlock_delayed.DelayedRestarts,
        redlock_delayed.OurDelayedRestarts,
    ),
)
