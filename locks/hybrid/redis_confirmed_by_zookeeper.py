"""Redlock as a cheap filter, and ZooKeeper's word on top, which every grant needs.

Most who ask are turned away by a majority of the Redis nodes and never reach the ensemble; who gets
that majority then has to get ZooKeeper's lock. So Redis may forget, expire or jump as it likes:
ZooKeeper alone excludes, and its promise and its fence are the grant's. What is paid for it: both
latencies.

The filter lives for a third of the lease and is not renewed. It only spares the ensemble questions,
so what a client leaves behind need not keep others out for longer; and who holds for longer has
others behind it in ZooKeeper's queue. A fault of the ensemble therefore meets some who ask it.

A filter that does not answer, or cannot be reached, lets everybody pass: only its refusal keeps
somebody out. What its token leaves behind may hinder others until its time is over.

Does not guarantee: what ``zookeeper`` does not.

Errors mean what they mean for ``zookeeper``; those of Redis mean nothing.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from lockbench.locks.bare import Bare
from lockbench.locks.base import Acquired, Backoff, Deadline, Denied, Freed, Granted, Hold, Unknown
from lockbench.locks.hybrid.both import REDIS_NODES, Hybrid
from lockbench.locks.redis.link import BARE_CYCLE
from lockbench.locks.redis.recipe import POLL_MAX_S, POLL_MIN_S
from lockbench.locks.redis.redlock import NO_MAJORITY
from lockbench.locks.shared.expectations import SERVER_CLOCKS, holds, with_changes
from lockbench.locks.zookeeper import mutex as zookeeper

FILTER_SHARE = 1 / 3  # of the lease
SILENT = ("no-effect", NO_MAJORITY)


class Handle(NamedTuple):
    """The two holds that make one."""

    filter: Hold | None  # None: it did not answer
    lock: Hold


class HybridRedisConfirmedByZooKeeper(Hybrid):
    """One client of both."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """The filter first, then, in what is left of the wait, the lock."""
        deadline = Deadline(wait_s)
        passed = self._pass_filter(key, hold_id, FILTER_SHARE * ttl_s, deadline)
        if isinstance(passed, Denied):
            return passed
        left_s = max(0.0, deadline.left_s())
        answer = self._zookeeper.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=left_s)
        if isinstance(answer, Granted):
            return replace(answer, hold=Hold(hold_id, key, Handle(passed, answer.hold)))
        if passed is not None:
            self._redlock.release(passed)
        return answer

    def release(self, hold: Hold) -> Freed:
        """The lock decides; the filter, if it cannot be given back, ends by itself."""
        handle: Handle = hold.handle
        answer = self._zookeeper.release(handle.lock)
        if handle.filter is not None:
            self._redlock.release(handle.filter)
        return answer

    def _pass_filter(
        self, key: str, hold_id: int, ttl_s: float, deadline: Deadline
    ) -> Hold | Denied | None:
        """Polls until it lets pass or the wait is over. None: it has nothing to say."""
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S)
        tries = 0
        while True:
            last = deadline.over()
            answer = self._redlock.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=0)
            if isinstance(answer, Granted):
                return answer.hold
            if isinstance(answer, Unknown) or answer.reason.startswith(SILENT):
                return None
            if last:
                waited = tries > 0 and not answer.reason.startswith("gave-up")
                return Denied(f"gave-up: {answer.reason}") if waited else answer
            tries += 1
            backoff.pause(deadline.left_s())


_STILL_ASKED = (
    "by construction: a filter that forgot, or whose time to live ended early, lets nobody in, for "
    f"whoever passes it still has to queue in ZooKeeper ({zookeeper.RECIPE})"
)

SYSTEM = zookeeper.SYSTEM.derived(
    name="hybrid-redis-confirmed-by-zookeeper",
    topologies=("redlock-zookeeper",),
    family="hybrid",
    waits_by="polling for a majority, then ZooKeeper's queue",
    connect=HybridRedisConfirmedByZooKeeper,
    outcomes={
        **zookeeper.OUTCOMES,
        "filter: majority refuses": "Denied: held",
    },
    # On a mixture what is kept by one node alone is taken from the Redis nodes; everything else
    # strikes the ensemble (``lockbench.clusters.hybrid``), and ZooKeeper's own expectations stand.
    expectations=with_changes(
        zookeeper.SYSTEM.expectations,
        dict.fromkeys(("wipe", "power-loss", *SERVER_CLOCKS), holds(_STILL_ASKED)),
    ),
    # Beside seven other servers a ZooKeeper takes almost three seconds to restart: a promise of
    # three would not outlive it.
    pace={"lease_ttl_s": 5.0},
    bare=(
        Bare("redlock", BARE_CYCLE, slice(REDIS_NODES)),
        zookeeper.SYSTEM.bare[0]._replace(nodes=slice(REDIS_NODES, None)),
    ),
)
