"""redis-lock-py's ``RedisLock``, as its user drives it.

Defaults: ``RedisLock(client, name)``, so no time to live; waits by subscription. It cannot be asked
not to wait, so a try waits for a hundredth of a second. ``safe``: the lease as ``expire_timeout``
(whole seconds), no retries, a limit for every request.
"""

from __future__ import annotations

import math
from typing import Any

from lockbench_sidecar import (
    Acquired,
    Client,
    Extended,
    Freed,
    Released,
    Setup,
    refused,
    serve,
)
from redis_lock import RedisLock
from redis_lock.exceptions import ExtendFailedError, LockNotOwnedError
from redis_sends import NotingRedis, settings

TRY_S = 0.01


class RedisLockPy(Client):
    """One client: one ``Redis`` object, one ``RedisLock`` per hold."""

    not_held = (LockNotOwnedError, ExtendFailedError)

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        ((host, port),) = setup.nodes
        self._redis = NotingRedis(host, port, **settings(setup))

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``acquire`` of a new lock object."""
        how: dict[str, Any] = {"expire_timeout": math.ceil(ttl_s)} if self._safe else {}
        lock = RedisLock(self._redis, key, blocking_timeout=wait_s or TRY_S, **how)
        if not lock.acquire():
            return refused(wait_s, "acquire() returned False")
        return self._redis.granted(math.ceil(ttl_s) * 1000 if self._safe else None, lock)

    def release(self, hold: str, lock: RedisLock) -> Freed:
        """``release``."""
        lock.release()
        return Released()

    def extend(self, hold: str, lock: RedisLock, ttl_s: float) -> Extended:
        """``extend``, which adds to the time that is left."""
        lock.extend(math.ceil(ttl_s))
        return self._redis.granted(math.ceil(ttl_s) * 1000)

    def close(self) -> None:
        """Drops the connections."""
        self._redis.close()


if __name__ == "__main__":
    serve("redis-lock-py", RedisLockPy)
