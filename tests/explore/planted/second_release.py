"""A release that is sent again when it was not answered, and told as done when it is not answered
again.

Shown where a holder gives back and both requests are lost: the key stays its own until the lease
ends. opposite-answer, of two faults.
"""

from __future__ import annotations

from lockbench.locks.base import Hold
from lockbench.locks.redis import token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.token import RedisToken


class Right(RedisToken):
    def free(self, hold: Hold) -> bool:
        try:
            return super().free(hold)
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            self._link.open()
            return self.free_again(hold)

    def free_again(self, hold: Hold) -> bool:
        if super().free(hold):
            return True
        raise exceptions.RedisError("not there, perhaps since the first try")


class Wrong(Right):
    def free_again(self, hold: Hold) -> bool:
        try:
            return super().free_again(hold)
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            return True


RIGHT = token.SYSTEM.derived(name="right-second-release", connect=Right)
WRONG = RIGHT.derived(name="wrong-second-release", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
