"""An acquire that hands out a grant however old its answer is.

Shown where a free key is acquired, the client frozen at the answer beyond the lease. late-grant.
"""

from __future__ import annotations

from lockbench.locks.base import Acquired, Granted
from lockbench.locks.redis import fence
from lockbench.locks.redis.fence import RedisFence


class Wrong(RedisFence):
    def _in_time(self, granted: Granted) -> Acquired:
        return granted


RIGHT = fence.SYSTEM.derived(name="right-late-answer")
WRONG = RIGHT.derived(name="wrong-late-answer", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
