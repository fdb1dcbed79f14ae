"""An extend that lengthens the key's time to live without looking whose key it is.

Shown where a holder extends when its lease is over and another has the key: both are promised it.
double-grant.
"""

from __future__ import annotations

from lockbench.locks.base import Hold
from lockbench.locks.redis import token
from lockbench.locks.redis.token import RedisToken


class Wrong(RedisToken):
    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        return self._link.sent_ns if self._link.call("PEXPIRE", hold.key, ttl_ms) else None


RIGHT = token.SYSTEM.derived(name="right-extend-owner")
WRONG = RIGHT.derived(name="wrong-extend-owner", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
