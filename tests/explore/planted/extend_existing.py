"""An extend that sets the key anew, whether it is still there or not, or another's.

Shown where a holder extends, frozen at the request, which is delivered when another has the key:
both are promised it. double-grant; linearizable where the extend was not answered in time.
"""

from __future__ import annotations

from lockbench.locks.base import Hold, token_of
from lockbench.locks.redis import pubsub
from lockbench.locks.redis.pubsub import RedisPubsub


class Wrong(RedisPubsub):
    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        self._link.call("SET", hold.key, token_of(hold.id), "PX", ttl_ms)
        return self._link.sent_ns


RIGHT = pubsub.SYSTEM.derived(name="right-extend-existing")
WRONG = RIGHT.derived(name="wrong-extend-existing", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
