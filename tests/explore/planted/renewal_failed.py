"""A watchdog that takes every renewal for a success, whatever the server says.

Shown where a hold is renewed in the background, the client frozen at a renewal until another has
the key: both are promised it. double-grant.
"""

from __future__ import annotations

import time

from lockbench.locks.base import Extended, Granted, Hold
from lockbench.locks.redis import watchdog
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.redis.watchdog import RedisWatchdog


class Believes(RedisToken):
    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        sent_ns = time.monotonic_ns()
        super().extend(hold, ttl_s)
        return Granted(hold, None, sent_ns, sent_ns + int(ttl_s * 1e9))


class Wrong(RedisWatchdog):
    renews_with = Believes


RIGHT = watchdog.SYSTEM.derived(name="right-renewal-failed")
WRONG = RIGHT.derived(name="wrong-renewal-failed", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
