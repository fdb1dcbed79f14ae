"""A watchdog that goes on renewing after a release that was not answered.

Shown where a holder gives back and the request is lost: the key lives for as long as the client.
leaked-lock.
"""

from __future__ import annotations

from lockbench.locks.base import Freed, Hold, Unknown
from lockbench.locks.redis import watchdog
from lockbench.locks.redis.watchdog import RedisWatchdog


class Wrong(RedisWatchdog):
    def release(self, hold: Hold) -> Freed:
        answer = super().release(hold)
        if isinstance(answer, Unknown):
            self._renewals.add(hold)
        return answer


RIGHT = watchdog.SYSTEM.derived(name="right-renewal-end")
WRONG = RIGHT.derived(name="wrong-renewal-end", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
