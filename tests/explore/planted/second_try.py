"""An acquire that was not answered looks whose the key is. Two ways to get that wrong:

``wrong-second-try`` sends the acquire again, and is denied by its own first one. Shown where a free
key is acquired and the answer is lost: the key is its own. opposite-answer.

``wrong-second-silence`` is denied when the look is not answered either. Shown where a free key is
acquired, the answer is lost, and that to the look too. opposite-answer, of two faults.
"""

from __future__ import annotations

from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import NotSent
from lockbench.locks.redis.recipe import Taken, Unsure, named
from lockbench.locks.redis.token import RedisToken


class Right(RedisToken):
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        try:
            return super().take(key, token, ttl_ms)
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            sent_ns = self._link.sent_ns
        try:
            self._link.open()
            return self.look(key, token, ttl_ms, sent_ns)
        except (NotSent, exceptions.RedisError) as error:
            raise Unsure(f"the second try: {named(error)}") from error

    def look(self, key: str, token: str, ttl_ms: int, sent_ns: int) -> Taken | None:
        if self._link.call("GET", key) == token.encode():
            return Taken(sent_ns)
        raise Unsure("not answered, and not there yet")


class Again(Right):
    def look(self, key: str, token: str, ttl_ms: int, sent_ns: int) -> Taken | None:
        return RedisToken.take(self, key, token, ttl_ms)


class Silence(Right):
    def look(self, key: str, token: str, ttl_ms: int, sent_ns: int) -> Taken | None:
        try:
            return super().look(key, token, ttl_ms, sent_ns)
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            return None


RIGHT = redis_token.SYSTEM.derived(name="right-second-try", connect=Right)
AGAIN = RIGHT.derived(name="wrong-second-try", connect=Again)
SILENCE = RIGHT.derived(name="wrong-second-silence", connect=Silence)
SYSTEMS = (RIGHT, AGAIN, SILENCE)
