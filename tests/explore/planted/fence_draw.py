"""A fence that is drawn before the key is taken. The right one draws it while it holds the key.

Shown where a key is acquired, the client frozen at the answer to INCR while another has the key and
gives it back: the later grant has the smaller fence. fence-order. With one rival: of two, the
second has the key when the client goes on.
"""

from __future__ import annotations

from lockbench.locks.redis import fence as redis_fence
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.recipe import Taken, Unsure, named
from lockbench.locks.redis.token import RedisToken


class Right(RedisToken):
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        taken = super().take(key, token, ttl_ms)
        if taken is None:
            return None
        try:
            return taken._replace(fence=int(self._link.call("INCR", f"{key}:fence")))
        except exceptions.RedisError as error:
            raise Unsure(f"INCR: {named(error)}") from error


class Wrong(RedisToken):
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        fence = int(self._link.call("INCR", f"{key}:fence"))
        taken = super().take(key, token, ttl_ms)
        return taken and taken._replace(fence=fence)


RIGHT = redis_token.SYSTEM.derived(
    name="right-fence-draw",
    connect=Right,
    fence="INCR",
    expectations=redis_fence.SYSTEM.expectations,  # a counter is lost with the data
)
WRONG = RIGHT.derived(name="wrong-fence-draw", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
