"""redis-lock-py's ``RedisLock``, as its user drives it; ``lock.py`` says what is set. It
cannot be asked not to wait, so a try waits for a hundredth of a second.

The promise (``redis_lock/lock.py`` of 1.3.0): ``_try_acquire`` is one SET NX EX, so it runs from
the last one that was sent. ``extend`` adds to what is left: ``LUA_EXTEND`` in ``base.py`` sets TTL
and n seconds, and Redis rounds TTL to the nearest second (``ttlGenericCommand``, src/expire.c). So
the end that the server keeps depends on the one before. The promise is the earliest end that the
promise before and the times of the request allow; where these do not tell which way Redis rounded,
the key may live for a second longer. Rounded down, it ends up to half a second before what the
library's words say, and the library tells nobody.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from typing import Any

from lockbench_sidecar import Acquired, Extended, Freed, Granted, Released, refused, serve
from redis_lock import RedisLock
from redis_lock.exceptions import ExtendFailedError, LockNotOwnedError
from redis_sends import OnRedis

TRY_S = 0.01
SECOND_NS = 1_000_000_000
CLOCK_NS = 1_000_000  # Redis counts whole milliseconds


@dataclass
class Held:
    """``until_ns``: the server keeps the key at least for so long; None: it has no end."""

    lock: RedisLock
    until_ns: int | None


def end_after(until_ns: int, sent_ns: int, answered_ns: int, added_s: int) -> int:
    """The earliest end of a key that would have lived until ``until_ns`` or longer, when seconds
    were added to its TTL between the two times. The later that was, the later is the end, but for
    the moment from which on the TTL is a second less: half a second before the TTL and those."""
    added_ns = added_s * SECOND_NS
    first_s, last_s = (_ttl_s(until_ns - CLOCK_NS - at_ns) for at_ns in (sent_ns, answered_ns))
    end_ns = sent_ns + first_s * SECOND_NS + added_ns
    if first_s != last_s:
        end_ns = min(end_ns, until_ns - CLOCK_NS - SECOND_NS // 2 + added_ns)
    return end_ns


def _ttl_s(left_ns: int) -> int:
    """As Redis rounds it."""
    return max(0, (left_ns + SECOND_NS // 2) // SECOND_NS)


class RedisLockPy(OnRedis):
    """One client: one ``Redis`` object, one ``RedisLock`` per hold."""

    not_held = (LockNotOwnedError, ExtendFailedError)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        how: dict[str, Any] = {"expire_timeout": math.ceil(ttl_s)} if self._safe else {}
        lock = RedisLock(self._redis, key, blocking_timeout=wait_s or TRY_S, **how)
        if not lock.acquire():
            return refused(wait_s, "acquire() returned False")
        granted = self._redis.granted(math.ceil(ttl_s) * 1000 if self._safe else None)
        return replace(granted, lock=Held(lock, granted.valid_until_ns))

    def release(self, hold: str, lock: Held) -> Freed:
        lock.lock.release()
        return Released()

    def extend(self, hold: str, lock: Held, ttl_s: float) -> Extended:
        """``extend``, which adds to the time that is left."""
        added_s = math.ceil(ttl_s)
        lock.lock.extend(added_s)
        sent_ns, answered_ns = self._redis.last_ns, time.monotonic_ns()
        assert lock.until_ns is not None  # it refuses to extend a key without an end
        lock.until_ns = end_after(lock.until_ns, sent_ns, answered_ns, added_s)
        return Granted(sent_ns, lock.until_ns)


if __name__ == "__main__":
    serve("redis-lock-py", RedisLockPy)
