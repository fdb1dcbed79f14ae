"""A control: Redlock for speed, and ZooKeeper when Redlock refuses, for safety.

Two locks of one name that know nothing of each other. Whoever is refused by the first, because
somebody holds it, is granted by the second at once: contention alone lets two in, without any
fault. The bench must catch this; if it does not, the bench is broken.

Errors mean what they mean for the two. An unknown outcome of Redlock asks ZooKeeper too, which may
grant: what Redlock keeps then, hinders others for a time to live.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lockbench.locks.base import Acquired, Freed, Granted, Hold, Lock, System
from lockbench.locks.hybrid import (
    redis_confirmed_by_zookeeper as hybrid_redis_confirmed_by_zookeeper,
)
from lockbench.locks.hybrid.both import Hybrid
from lockbench.locks.redis import redlock
from lockbench.locks.redis.expectations import REDLOCK
from lockbench.locks.shared.expectations import UNMINDED, breaks, may_break, with_verdicts
from lockbench.locks.zookeeper import mutex as zookeeper
from lockbench.locks.zookeeper.expectations import ZOOKEEPER


class Handle(NamedTuple):
    """Which of the two granted, and its own hold."""

    lock: Lock
    hold: Hold


class HybridRedlockElseZooKeeper(Hybrid):
    """One client of both."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """One try at Redlock, then ZooKeeper's queue. The second step is the defect."""
        lock: Lock = self._redlock
        answer = lock.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=0)
        if not isinstance(answer, Granted):
            lock = self._zookeeper
            answer = lock.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if not isinstance(answer, Granted):
            return answer
        hold = Hold(hold_id, key, Handle(lock, answer.hold))
        return replace(answer, hold=hold, fence=None)  # the fences of two services do not compare

    def release(self, hold: Hold) -> Freed:
        """Gives it back to whoever granted it."""
        handle: Handle = hold.handle
        return handle.lock.release(handle.hold)


_TWO_LOCKS = (
    "by construction, whatever else breaks: mutual exclusion (https://redis.io/docs/latest/develop/clients/patterns/"
    "distributed-locks/#safety-and-liveness-guarantees, 'only one client can hold a lock') is "
    "promised by each service for its own grants, and nobody excludes the holder of the other"
)

SYSTEM = System(
    name="hybrid-redlock-else-zookeeper",
    topologies=("redlock-zookeeper",),
    family="hybrid",
    fence=None,
    waits_by="ZooKeeper's queue",
    source=_TWO_LOCKS,
    connect=HybridRedlockElseZooKeeper,
    outcomes={
        **{f"zookeeper, {row}": said for row, said in zookeeper.OUTCOMES.items()},
        **{f"redlock, {row}": said for row, said in redlock.SYSTEM.outcomes.items()},
    },
    expectations=with_verdicts(
        {**REDLOCK, **ZOOKEEPER},
        {
            **breaks(_TWO_LOCKS, "double-grant", kind="control"),
            **may_break(_TWO_LOCKS, "lost-update", "wrong-release", "wrong-extend", kind="control"),
        },
        *UNMINDED,
    ),
    pace=hybrid_redis_confirmed_by_zookeeper.SYSTEM.pace,
    # Nobody is refused by the first of the two while the key is free.
    bare=hybrid_redis_confirmed_by_zookeeper.SYSTEM.bare[:1],
)
