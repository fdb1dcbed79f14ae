"""An acquire that was not answered deletes its token and is told as denied, whether there was one
to delete or not. The right one is denied only where it was there; else the acquire may come later.

Shown where a key that nobody else asks for is acquired and the request is orphaned: it is delivered
after the deletion, which comes on a new connection. opposite-answer.
"""

from __future__ import annotations

from lockbench.locks.base import Acquired, Denied, Unknown, token_of
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import DELETE_OWN, NotSent
from lockbench.locks.redis.token import RedisToken


class Right(RedisToken):
    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        answer = super()._try(key, hold_id, ttl_s)
        if not isinstance(answer, Unknown):
            return answer
        try:
            self._link.open()
            deleted = bool(self._link.run(DELETE_OWN, key, token_of(hold_id)))
        except (NotSent, exceptions.RedisError):
            return answer
        return Denied("gave-up: not answered, deleted") if self.is_over(deleted) else answer

    def is_over(self, deleted: bool) -> bool:
        return deleted


class Wrong(Right):
    def is_over(self, deleted: bool) -> bool:
        return True


RIGHT = redis_token.SYSTEM.derived(name="right-clean-up", connect=Right)
WRONG = RIGHT.derived(name="wrong-clean-up", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
