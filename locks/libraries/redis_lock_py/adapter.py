"""redis-lock-py's ``RedisLock``, as its user drives it.

Defaults: ``RedisLock(client, name)``, so no time to live; waits by subscription. It cannot be asked
not to wait, so a try waits for a hundredth of a second. ``safe``: the lease as ``expire_timeout``
(whole seconds), no retries, a limit for every request.
"""

from __future__ import annotations

import math
from typing import Any

import redis
from lockbench_sidecar import (
    Acquired,
    Client,
    Denied,
    Extended,
    Freed,
    Granted,
    NotHeld,
    Released,
    Setup,
    serve,
)
from redis_lock import RedisLock
from redis_lock.exceptions import ExtendFailedError, LockNotOwnedError
from redis_sends import Sends, noting, settings

TRY_S = 0.01


class RedisLockPy(Client):
    """One client: one ``Redis`` object, one ``RedisLock`` per hold."""

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        self._sends = Sends()
        ((host, port),) = setup.nodes
        self._redis = noting(redis.Redis(host, port, **settings(setup)), self._sends)
        self._holds: dict[str, RedisLock] = {}

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``acquire`` of a new lock object."""
        how: dict[str, Any] = {"expire_timeout": math.ceil(ttl_s)} if self._safe else {}
        lock = RedisLock(self._redis, key, blocking_timeout=wait_s or TRY_S, **how)
        if not lock.acquire():
            return Denied("gave-up: acquire() returned False" if wait_s > 0 else "held")
        self._holds[hold] = lock
        return self._granted(ttl_s)

    def release(self, key: str, hold: str) -> Freed:
        """``release``: LockNotOwnedError says that it was not held any more."""
        lock = self._holds.pop(hold, None)
        if lock is None:
            return NotHeld()
        try:
            lock.release()
        except LockNotOwnedError:
            return NotHeld()
        return Released()

    def extend(self, key: str, hold: str, ttl_s: float) -> Extended:
        """``extend``, which adds to the time that is left."""
        try:
            self._holds[hold].extend(math.ceil(ttl_s))
        except ExtendFailedError:
            return NotHeld()
        return self._granted(ttl_s)

    def close(self) -> None:
        """Drops the connections."""
        self._redis.close()

    def _granted(self, ttl_s: float) -> Granted:
        sent_ns = self._sends.last_ns
        return Granted(sent_ns, sent_ns + math.ceil(ttl_s) * 1_000_000_000 if self._safe else None)


if __name__ == "__main__":
    serve("redis-lock-py", RedisLockPy)
