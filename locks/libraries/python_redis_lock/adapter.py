"""python-redis-lock's ``Lock``, as its user drives it; what is set stands in ``lock.py``. The limit
for requests is longer than one may wait for a signal.

The promise (``redis_lock/__init__.py`` of 4.0.1): ``acquire`` is GET, then SET NX EX, again after
each BLPOP; ``extend`` and its renewal thread run EXTEND_SCRIPT, which sets the whole time to live.
So it runs from the last SET, or script, that this thread sent.

A renewal that the server acknowledged is told; that the renewal thread died is not, for the library
tells nobody. Waits are whole seconds, at least one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from lockbench_sidecar import Acquired, Extended, Freed, Released, Setup, Tell, refused, serve
from redis_lock import Lock, NotAcquired
from redis_sends import NotingRedis, OnRedis

WAIT_S_MOST = 10.0  # longer than any wait of the bench


class Telling(Lock):  # type: ignore[misc]
    """A lock that says when it was renewed."""

    def __init__(self, redis: NotingRedis, key: str, tell: Tell, hold: str, **options: Any) -> None:
        super().__init__(redis, key, **options)
        self._redis = redis
        self._tell = tell
        self._hold = hold

    def extend(self, expire: int | None = None) -> None:
        """As the library's; its renewal thread calls it with the time to live."""
        super().extend(expire)
        if expire:
            sent_ns = self._redis.last_ns
            until_ns = sent_ns + expire * 1_000_000_000
            self._tell.extended(self._hold, sent_ns=sent_ns, valid_until_ns=until_ns)


class PythonRedisLock(OnRedis):
    """One client: one ``Redis`` object, one ``Lock`` per hold."""

    not_held = (NotAcquired,)

    def __init__(self, setup: Setup) -> None:
        super().__init__(replace(setup, timeout_s=WAIT_S_MOST + setup.timeout_s))
        self._tell = setup.tell

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        expire = math.ceil(ttl_s)
        how = {"expire": expire, "auto_renewal": True} if self._safe else {}
        lock = Telling(self._redis, key, self._tell, hold, **how)
        if wait_s > 0:
            gotten = lock.acquire(timeout=math.ceil(wait_s))
        else:
            gotten = lock.acquire(blocking=False)
        if not gotten:
            return refused(wait_s, "acquire() returned False")
        return self._redis.granted(expire * 1000 if self._safe else None, lock)

    def release(self, hold: str, lock: Lock) -> Freed:
        lock.release()
        return Released()

    def extend(self, hold: str, lock: Lock, ttl_s: float) -> Extended:
        """``extend`` by the time to live that the lock was made with."""
        lock.extend()
        return self._redis.granted(math.ceil(ttl_s) * 1000)


if __name__ == "__main__":
    serve("python-redis-lock", PythonRedisLock)
