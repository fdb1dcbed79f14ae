"""One token for all holds of a client, in place of one for each.

Shown where a client gives back, the request is delivered after the lease, and meanwhile the client
has acquired the key again: the release of its first hold ends the second. double-grant.
"""

from __future__ import annotations

from lockbench.locks.base import Hold, new_hold_id, token_of
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.link import DELETE_OWN, EXTEND_OWN
from lockbench.locks.redis.recipe import Taken
from lockbench.locks.redis.token import RedisToken


class Wrong(RedisToken):
    _mine = ""

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        self._mine = self._mine or token_of(new_hold_id())
        return super().take(key, self._mine, ttl_ms)

    def free(self, hold: Hold) -> bool:
        return bool(self._link.run(DELETE_OWN, hold.key, self._mine))

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        done = self._link.run(EXTEND_OWN, hold.key, self._mine, ttl_ms)
        return self._link.sent_ns if done else None


RIGHT = redis_token.SYSTEM.derived(name="right-token-per-hold")
# Its tokens name no hold.
WRONG = RIGHT.derived(name="wrong-token-per-hold", connect=Wrong, entry=None)
SYSTEMS = (RIGHT, WRONG)
