"""An acquire that was not answered is told as denied, without effect.

Shown where a free key is acquired and the answer is lost: the key is its own. opposite-answer.
"""

from __future__ import annotations

from lockbench.locks.redis import fair
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.fair import RedisFair
from lockbench.locks.redis.link import NotSent


class Wrong(RedisFair):
    def _refused(self) -> tuple[type[Exception], ...]:
        return NotSent, exceptions.RedisError


RIGHT = fair.SYSTEM.derived(name="right-silence-is-no")
WRONG = RIGHT.derived(name="wrong-silence-is-no", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
