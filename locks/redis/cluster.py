"""``redis-token`` on a Redis Cluster: the key's slot decides which primary grants.

Replication is asynchronous, as with Sentinel: a grant that no replica has seen is forgotten when
the replica takes over. A primary that is cut off from the majority stops taking writes after
``cluster-node-timeout``; until then, and so for a moment beside its successor, it grants.

Does not guarantee: one holder, once there was a failover; that a holder stops when its time is
over; a fence.

What errors mean stands in ``lockbench.locks.redis.recipe``. Beyond that, MOVED is followed: the
command was not run. CLUSTERDOWN, and an owner that cannot be found or reached, mean that nothing
was run.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.locks.bare import Bare
from lockbench.locks.base import ANY, Acquired, Address, Extended, Freed, Hold
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.cluster_link import ClusterLink
from lockbench.locks.redis.expectations import LEASE_WITH_REPLICAS
from lockbench.locks.redis.link import BARE_CYCLE
from lockbench.locks.redis.recipe import OUTCOMES
from lockbench.locks.redis.sentinel import NOT_REPLICATED
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import CUT, may_grant_twice, with_changes


class RedisClusterLock(RedisToken):
    """One client of the lock."""

    _link: ClusterLink

    def link(self, nodes: Sequence[Address], timeout_s: float) -> ClusterLink:
        """The owner of the key that it is aimed at."""
        return ClusterLink(nodes, timeout_s=timeout_s)

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls at the owner of the key."""
        self._link.aim(key)
        return super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)

    def release(self, hold: Hold) -> Freed:
        """Gives the hold back, wherever its key is now."""
        self._link.aim(hold.key)
        return super().release(hold)

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Lets the hold live on, wherever its key is now."""
        self._link.aim(hold.key)
        return super().extend(hold, ttl_s)


WRITES_LOST_DOC = (
    "https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/#write-safety: "
    "asynchronous replication, and 'There is always a window of time when it is possible to lose "
    "writes during partitions'"
)

SYSTEM = redis_token.SYSTEM.derived(
    name="redis-cluster",
    elsewhere=True,
    suites={"capacity": (ANY,)},
    topologies=("redis-cluster",),
    source=WRITES_LOST_DOC,
    connect=RedisClusterLock,
    outcomes={
        **OUTCOMES,
        "acquire: MOVED": "Granted",
        "acquire: MOVED in circles": "Denied: no-effect",
        "acquire: CLUSTERDOWN": "Denied: no-effect",
        "acquire: nobody knows the owner": "Denied: no-effect",
    },
    expectations=with_changes(
        LEASE_WITH_REPLICAS,
        # A race between the newest grant and its way to the replica, or the old primary's last
        # moments.
        dict.fromkeys(("pause", *CUT, "kill", "restart"), may_grant_twice(WRITES_LOST_DOC)),
        {"failover": NOT_REPLICATED},
    ),
    entry=None,
    bare=(Bare("redis-cluster", BARE_CYCLE),),
)
