"""``redis-token`` on a Redis that fails over: the primary is found through Sentinel.

Replication is asynchronous. A grant that the primary has acknowledged and no replica has seen is
forgotten when a replica is promoted, and given to somebody else. A primary that was cut off takes
writes until it is told otherwise, so clients that still talk to it are granted locks there too.

Does not guarantee: one holder, once there was a failover; that a holder stops when its time is
over; a fence.

What errors mean stands in ``lockbench.locks.redis.recipe``. No Sentinel that answers, or one that
names a server which is no primary, is the same as no connection: nothing was sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.locks.bare import Bare
from lockbench.locks.base import Address
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.expectations import LEASE_WITH_REPLICAS, LOCK_DOC
from lockbench.locks.redis.link import BARE_CYCLE, Link
from lockbench.locks.redis.recipe import OUTCOMES
from lockbench.locks.redis.sentinel_link import SentinelLink
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import (
    CUT,
    grants_twice,
    may_break,
    may_grant_twice,
    with_changes,
)


class RedisSentinel(RedisToken):
    """One client of the lock."""

    def link(self, nodes: Sequence[Address], timeout_s: float) -> Link:
        """The primary, as the Sentinels name it."""
        return SentinelLink(nodes, timeout_s=timeout_s)


FAILOVER_DOC = (
    f"{LOCK_DOC}#why-failover-based-implementations-are-not-enough: 'The master crashes before the "
    "write to the key is transmitted to the replica' and 'Client B acquires the lock'"
)
SENTINEL_DOC = (
    "https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/: 'does not guarantee "
    "that acknowledged writes are retained during failures, since Redis uses asynchronous "
    "replication'"
)
# The old primary is made a replica ten seconds after it is back. Until then it confirms releases of
# holds that the new one may have given to others (seen under ``server-frozen`` of ``explore``).
OLD_PRIMARY = may_break(f"{SENTINEL_DOC}; a release, too, is a write", "false-release")
EMPTY_PRIMARY_DOC = (
    "https://redis.io/docs/latest/operate/oss_and_stack/management/replication/"
    "#safety-of-replication-when-master-has-persistence-turned-off: a primary that is back without "
    "data before it is missed makes its replicas drop theirs"
)

# With the replica cut off first, the grant that is lost is certain to be.
NOT_REPLICATED = grants_twice(FAILOVER_DOC)
# Whether the empty primary is back before the Sentinels miss it is a race.
EMPTIED = may_grant_twice(EMPTY_PRIMARY_DOC)

# Under which the Sentinels may miss the primary.
_MISSED = ("pause", *CUT, "kill", "restart")

REPLICATED_LEASE = with_changes(
    LEASE_WITH_REPLICAS,
    # A failover is a race between the newest grant and its way to the replica.
    dict.fromkeys(_MISSED, may_grant_twice(SENTINEL_DOC)),
    {"wipe": EMPTIED, "failover": NOT_REPLICATED},
    dict.fromkeys((*_MISSED, "failover"), OLD_PRIMARY),
)

SYSTEM = redis_token.SYSTEM.derived(
    name="redis-sentinel",
    elsewhere=True,
    topologies=("sentinel",),
    suites={"quick": ("failover",)},
    source=SENTINEL_DOC,
    connect=RedisSentinel,
    outcomes={
        **OUTCOMES,
        "acquire: no Sentinel answers": "Denied: no-effect",
        "acquire: not a primary": "Denied: no-effect",
        "acquire: ReadOnlyError": "Denied: no-effect",
    },
    expectations=REPLICATED_LEASE,
    entry=None,
    bare=(Bare("sentinel", BARE_CYCLE),),
)
