"""A waiter that looks, subscribes, and sleeps; what was published between is lost. The right one
looks again once it has subscribed.

Shown where a waiter is frozen at the answer to its first look, or its SUBSCRIBE is late, until the
holder has given back: it sleeps for the rest of a lease beside a free key. lost-wakeup.
"""

from __future__ import annotations

from lockbench.locks.base import Acquired, Deadline
from lockbench.locks.redis import pubsub
from lockbench.locks.redis.pubsub import RedisPubsub


class Wrong(RedisPubsub):
    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        self._wait = Deadline(wait_s)
        return super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)

    def _listen(self, key: str) -> bool:
        return super()._listen(key) and self._sleep(self._wait)


RIGHT = pubsub.SYSTEM.derived(name="right-listen-first")
WRONG = RIGHT.derived(name="wrong-listen-first", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
