"""An acquire that was not answered is told as granted.

Shown where a free key is acquired and the request is lost: another is granted the key beside it.
double-grant.
"""

from __future__ import annotations

from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.recipe import Taken
from lockbench.locks.redis.token import RedisToken


class Wrong(RedisToken):
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        try:
            return super().take(key, token, ttl_ms)
        except (exceptions.ConnectionError, exceptions.TimeoutError):
            return Taken(self._link.sent_ns)


RIGHT = redis_token.SYSTEM.derived(name="right-silence-is-yes")
WRONG = RIGHT.derived(
    name="wrong-silence-is-yes",
    connect=Wrong,
    not_owed={"paused_servers_make_a_release_unknown": "a fault that shows it"},
)
SYSTEMS = (RIGHT, WRONG)
