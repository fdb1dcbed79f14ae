"""A key and its time to live in two commands. The right one runs both in one script.

Shown where a free key is acquired and the client is killed at the answer to SETNX: the key stays
for ever. leaked-lock.
"""

from __future__ import annotations

from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import Script
from lockbench.locks.redis.recipe import Taken, Unsure, named
from lockbench.locks.redis.token import RedisToken

TAKE = Script.of(
    "if redis.call('setnx', KEYS[1], ARGV[1]) == 0 then return 0 end "
    "return redis.call('pexpire', KEYS[1], ARGV[2])"
)


class Right(RedisToken):
    by_script = True

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        taken = self._link.run(TAKE, key, token, ttl_ms)
        return Taken(self._link.sent_ns) if taken else None


class Wrong(RedisToken):
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        if not self._link.call("SETNX", key, token):
            return None
        try:
            self._link.call("PEXPIRE", key, ttl_ms)
        except exceptions.RedisError as error:
            raise Unsure(f"PEXPIRE: {named(error)}") from error
        return Taken(self._link.sent_ns)


RIGHT = redis_token.SYSTEM.derived(name="right-expiry", connect=Right)
WRONG = RIGHT.derived(
    name="wrong-expiry",
    connect=Wrong,
    not_owed={"paused_servers_make_a_release_unknown": "a fault that shows it"},
)
SYSTEMS = (RIGHT, WRONG)
