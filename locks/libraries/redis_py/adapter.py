"""redis-py's own ``Lock``, as its user drives it; what is set stands in ``lock.py``.

The promise (``redis/lock.py`` of 8.1.0): ``do_acquire`` is one SET NX PX and ``do_extend`` with
``replace_ttl`` one script that sets the whole time to live, so both run from the last one that was
sent. Not sent are ``register_script`` and what ``get_connection`` does before (HELLO, CLIENT).

``acquire`` returning False is what the library says to its user: not held. Its errors are not
mapped: whatever it raises is Unknown.
"""

from __future__ import annotations

from typing import Any

from lockbench_sidecar import Acquired, Extended, Freed, Released, refused, serve
from redis.exceptions import LockError
from redis.lock import Lock
from redis_sends import OnRedis


class RedisPy(OnRedis):
    """One client: one ``Redis`` object, one ``Lock`` per hold."""

    not_held = (LockError,)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        lock = self._redis.lock(key, timeout=ttl_s) if self._safe else self._redis.lock(key)
        how: dict[str, Any] = {"blocking_timeout": wait_s} if wait_s > 0 else {"blocking": False}
        if not lock.acquire(**how):
            return refused(wait_s, "acquire() returned False")
        return self._redis.granted(int(ttl_s * 1000) if self._safe else None, lock)

    def release(self, hold: str, lock: Lock) -> Freed:
        lock.release()
        return Released()

    def extend(self, hold: str, lock: Lock, ttl_s: float) -> Extended:
        """``extend`` with the time to live replaced."""
        lock.extend(ttl_s, replace_ttl=True)
        return self._redis.granted(int(ttl_s * 1000))


if __name__ == "__main__":
    serve("redis", RedisPy)
