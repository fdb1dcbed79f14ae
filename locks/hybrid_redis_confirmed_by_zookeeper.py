"""A Redis key as a cheap filter, and ZooKeeper's word on top: a grant needs both.

Most who ask are turned away by one Redis command and never reach the ensemble; who gets the key
then has to get ZooKeeper's lock. So Redis may forget, expire or jump as it likes: ZooKeeper alone
excludes, and its promise and its fence are the grant's. What is paid for it: both latencies.

Does not guarantee: what ``zookeeper`` does not; a grant while either of the two is away.

Errors mean what they mean for ``zookeeper``. Those of Redis come before anything was granted: the
key may stay for a time to live, and hinders, but holds nothing. Denied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from locks import zookeeper
from locks.base import (
    Acquired,
    Address,
    Deadline,
    Denied,
    Freed,
    Granted,
    Hold,
    Observer,
    Unknown,
)
from locks.redis_token import RedisToken
from locks.zookeeper import ZooKeeper

REDIS_NODES = 5  # of which one is used


class Handle(NamedTuple):
    """The two holds that make one."""

    filter: Hold
    lock: Hold


class HybridRedisConfirmedByZooKeeper:
    """One client of both."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self._filter = RedisToken(nodes[:1], timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        self._lock = ZooKeeper(
            nodes[REDIS_NODES:], timeout_s=timeout_s, ttl_s=ttl_s, observer=observer
        )

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """The key first, then, in what is left of the wait, the lock."""
        deadline = Deadline(wait_s)
        first = self._filter.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if isinstance(first, Unknown):
            return Denied(f"gave-up: the filter: {first.reason}")
        if isinstance(first, Denied):
            return first
        left_s = max(0.0, deadline.left_s())
        answer = self._lock.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=left_s)
        if not isinstance(answer, Granted):
            self._filter.release(first.hold)
            return answer
        return replace(answer, hold=Hold(hold_id, key, Handle(first.hold, answer.hold)))

    def release(self, hold: Hold) -> Freed:
        """The lock decides; the key, if it cannot be deleted, ends by itself."""
        handle: Handle = hold.handle
        answer = self._lock.release(handle.lock)
        self._filter.release(handle.filter)
        return answer

    def close(self) -> None:
        """Drops the connections."""
        self._filter.close()
        self._lock.close()


SYSTEM = replace(
    zookeeper.SYSTEM,
    name="hybrid-redis-confirmed-by-zookeeper",
    topologies=("redlock-zookeeper",),
    family="hybrid",
    waits_by="polling for the key, then ZooKeeper's queue",
    connect=HybridRedisConfirmedByZooKeeper,
    outcomes={
        **zookeeper.OUTCOMES,
        "filter: no connection": "Denied: no-effect",
        "filter: TimeoutError": "Denied: gave-up",
    },
)
