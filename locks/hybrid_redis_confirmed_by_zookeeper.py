"""Redlock as a cheap filter, and ZooKeeper's word on top: a grant needs both.

Most who ask are turned away by a majority of the Redis nodes and never reach the ensemble; who gets
that majority then has to get ZooKeeper's lock. So Redis may forget, expire or jump as it likes:
ZooKeeper alone excludes, and its promise and its fence are the grant's. What is paid for it: both
latencies.

The filter lives for a third of the lease and is not renewed. It only spares the ensemble questions,
so what a client leaves behind need not keep others out for longer; and who holds for longer has
others behind it in ZooKeeper's queue. A fault of the ensemble therefore meets some who ask it.

Does not guarantee: what ``zookeeper`` does not; a grant while either of the two is away.

Errors mean what they mean for ``zookeeper``. Those of Redis come before anything was granted: a
token may stay until its time is over, and hinders, but holds nothing. Denied.
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
    Expectation,
    Freed,
    Granted,
    Hold,
    Observer,
    Unknown,
)
from locks.redis_expectations import but
from locks.redlock import Redlock
from locks.zookeeper import ZooKeeper

REDIS_NODES = 5
FILTER_SHARE = 1 / 3  # of the lease


class Handle(NamedTuple):
    """The two holds that make one."""

    filter: Hold
    lock: Hold


class HybridRedisConfirmedByZooKeeper:
    """One client of both."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self._filter = Redlock(
            nodes[:REDIS_NODES], timeout_s=timeout_s, ttl_s=ttl_s, observer=observer
        )
        self._lock = ZooKeeper(
            nodes[REDIS_NODES:], timeout_s=timeout_s, ttl_s=ttl_s, observer=observer
        )

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """The filter first, then, in what is left of the wait, the lock."""
        deadline = Deadline(wait_s)
        first = self._filter.acquire(
            key, hold_id=hold_id, ttl_s=FILTER_SHARE * ttl_s, wait_s=wait_s
        )
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
        """The lock decides; the filter, if it cannot be given back, ends by itself."""
        handle: Handle = hold.handle
        answer = self._lock.release(handle.lock)
        self._filter.release(handle.filter)
        return answer

    def close(self) -> None:
        """Drops the connections."""
        self._filter.close()
        self._lock.close()


_STILL_ASKED = (
    "by construction: a filter that forgot, or whose time to live ended early, lets nobody in, for "
    f"whoever passes it still has to queue in ZooKeeper ({zookeeper.RECIPE})"
)
_FILTER_FAILED = {"double-grant": Expectation("holds", _STILL_ASKED)}

SYSTEM = replace(
    zookeeper.SYSTEM,
    name="hybrid-redis-confirmed-by-zookeeper",
    topologies=("redlock-zookeeper",),
    family="hybrid",
    waits_by="polling for a majority, then ZooKeeper's queue",
    connect=HybridRedisConfirmedByZooKeeper,
    outcomes={
        **zookeeper.OUTCOMES,
        "filter: no node connected": "Denied: no-effect",
        "filter: majority silent": "Denied: gave-up",
        "filter: majority closes": "Denied: gave-up",
    },
    # On a mixture what is kept by one node alone is taken from the Redis nodes; everything else
    # strikes the ensemble (``clusters.hybrid``), and ZooKeeper's own expectations stand.
    expectations=but(
        zookeeper.EXPECTATIONS,
        wipe=_FILTER_FAILED,
        power_loss=_FILTER_FAILED,
        clock_jump=_FILTER_FAILED,
        clock_drift=_FILTER_FAILED,
        clock_strobe=_FILTER_FAILED,
    ),
)
