"""A lease that is counted from the answer and not from the sending.

Shown where a free key is acquired, the client frozen at the answer beyond the lease: the server has
given the key to another when the client begins to count. double-grant.
"""

from __future__ import annotations

import time

from lockbench.locks.redis import fence
from lockbench.locks.redis.fence import RedisFence
from lockbench.locks.redis.recipe import Taken


class Wrong(RedisFence):
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        taken = super().take(key, token, ttl_ms)
        return taken and taken._replace(sent_ns=time.monotonic_ns())


RIGHT = fence.SYSTEM.derived(name="right-lease-start")
WRONG = RIGHT.derived(name="wrong-lease-start", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
