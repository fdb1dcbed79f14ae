"""sherlock's ``RedisLock``, as its user drives it; what is set stands in ``lock.py``.

The promise (``sherlock/lock.py`` of 0.4.1): ``_acquire`` is one script that sets the key and then
its time, and ``renew`` another one that sets the whole time, so both run from the last script that
was sent. The scripts count whole seconds: with ``expire=3.5`` the first one sets the key, fails at
EXPIRE and leaves it there for ever, and ``acquire`` raises.
"""

from __future__ import annotations

import math

from lockbench_sidecar import Acquired, Extended, Freed, NotHeld, Released, refused, serve
from redis_sends import OnRedis
from sherlock import RedisLock
from sherlock.lock import LockException, LockTimeoutException


class Sherlock(OnRedis):
    """One client: one ``Redis`` object, one ``RedisLock`` per hold."""

    gave_up = (LockTimeoutException,)
    not_held = (LockException,)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        expire_s = math.ceil(ttl_s)
        lock = RedisLock(key, client=self._redis, expire=expire_s, timeout=wait_s)
        if not lock.acquire(blocking=wait_s > 0):
            return refused(wait_s, "acquire() returned False")
        return self._redis.granted(1000 * expire_s, lock)

    def release(self, hold: str, lock: RedisLock) -> Freed:
        try:
            lock.release()
        except Exception:
            # Or it releases once more when the object is dropped (BaseLock.__del__).
            lock._owner = None  # noqa: SLF001
            raise
        return Released()

    def extend(self, hold: str, lock: RedisLock, ttl_s: float) -> Extended:
        """``renew``, for the time that the lock was made with."""
        return self._redis.granted(1000 * lock.expire) if lock.renew() else NotHeld()


if __name__ == "__main__":
    serve("sherlock", Sherlock)
