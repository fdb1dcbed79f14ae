"""An acquire that hands out a grant however old its answer is.

Shown where a free key is acquired, the client frozen at the answer beyond the lease. late-grant.
"""

from __future__ import annotations

from locks.base import Acquired, Granted, Hold
from locks.redis import fence
from locks.redis.fence import RedisFence
from locks.redis.recipe import milliseconds


class Wrong(RedisFence):
    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        self._ttl_ns = milliseconds(ttl_s) * 1_000_000
        return super()._try(key, hold_id, ttl_s)

    def _too_late(self, hold: Hold) -> Acquired:
        sent_ns, fence_drawn, _ = hold.handle
        return Granted(hold, fence_drawn, sent_ns, sent_ns + self._ttl_ns)


RIGHT = fence.SYSTEM.derived(name="right-late-answer")
WRONG = RIGHT.derived(name="wrong-late-answer", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
