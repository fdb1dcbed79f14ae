"""redis-py's own ``Lock``, as its user drives it.

Defaults: ``Redis(host, port)`` and ``client.lock(name)``, so no time to live, ten retries of every
command, sockets' timeouts as redis-py has them. A try is ``blocking=False``, a wait is
``blocking_timeout``. ``safe``: the lease as ``timeout``, no retries, the client timeout on sockets.

``acquire`` returning False is what the library says to its user: not held. Its errors are not
mapped: whatever it raises is Unknown.
"""

from __future__ import annotations

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
from redis.exceptions import LockError
from redis.lock import Lock
from redis_sends import Sends, noting, settings


class RedisPy(Client):
    """One client: one ``Redis`` object, one ``Lock`` per hold."""

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        self._sends = Sends()
        ((host, port),) = setup.nodes
        self._redis = noting(redis.Redis(host, port, **settings(setup)), self._sends)
        self._holds: dict[str, Lock] = {}

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``acquire`` of a new lock object."""
        lock = self._redis.lock(key, timeout=ttl_s) if self._safe else self._redis.lock(key)
        how: dict[str, Any] = {"blocking_timeout": wait_s} if wait_s > 0 else {"blocking": False}
        if not lock.acquire(**how):
            return Denied("gave-up: acquire() returned False" if wait_s > 0 else "held")
        self._holds[hold] = lock
        return self._granted(ttl_s)

    def release(self, key: str, hold: str) -> Freed:
        """``release``: a LockError says that it was not held any more."""
        lock = self._holds.pop(hold, None)
        if lock is None:
            return NotHeld()
        try:
            lock.release()
        except LockError:
            return NotHeld()
        return Released()

    def extend(self, key: str, hold: str, ttl_s: float) -> Extended:
        """``extend`` with the time to live replaced."""
        try:
            self._holds[hold].extend(ttl_s, replace_ttl=True)
        except LockError:
            return NotHeld()
        return self._granted(ttl_s)

    def close(self) -> None:
        """Drops the connections."""
        self._redis.close()

    def _granted(self, ttl_s: float) -> Granted:
        sent_ns = self._sends.last_ns
        return Granted(sent_ns, sent_ns + int(ttl_s * 1000) * 1_000_000 if self._safe else None)


if __name__ == "__main__":
    serve("redis", RedisPy)
