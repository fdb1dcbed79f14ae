"""A release that was not answered is told as done.

Shown where a holder gives back and the request is lost: the key stays its own until the lease ends.
opposite-answer.
"""

from __future__ import annotations

from lockbench.locks.base import Freed, Hold, Released, Unknown
from lockbench.locks.redis import pubsub
from lockbench.locks.redis.pubsub import RedisPubsub


class Wrong(RedisPubsub):
    def release(self, hold: Hold) -> Freed:
        answer = super().release(hold)
        return Released() if isinstance(answer, Unknown) else answer


RIGHT = pubsub.SYSTEM.derived(name="right-failed-release")
WRONG = RIGHT.derived(
    name="wrong-failed-release",
    connect=Wrong,
    not_owed={"paused_servers_make_a_release_unknown": "a fault that shows it"},
)
SYSTEMS = (RIGHT, WRONG)
