"""A lock that its holder may take again: a hash of the owner and how often it holds.

The owner is the client, not the hold. A grant to the owner of a held key counts one up and lets the
key live at least for the time to live again; a release counts one down, and the last one deletes
the key. As Redisson's RLock does it
(https://redisson.pro/docs/data-and-services/locks-and-synchronizers/).

After an unknown outcome a client does not know how often it holds. It goes on under a new name, so
what may be left behind ends with its time to live and not with a release that counts wrongly.

Does not guarantee: what ``redis-token`` does not.

Errors mean what ``lockbench.locks.redis.recipe`` says for scripts.
"""

from __future__ import annotations

from typing import TypeVar

from lockbench.locks.bare import KEY, TOKEN, TTL_MS, Bare
from lockbench.locks.base import Acquired, Extended, Freed, Hold, Unknown, new_hold_id, token_of
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.link import Script
from lockbench.locks.redis.recipe import SCRIPT_OUTCOMES, Taken
from lockbench.locks.redis.token import RedisToken

# An inner grant never shortens what an outer one was promised.
TAKE = Script.of("""
if redis.call('exists', KEYS[1]) == 1 and redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return 0
end
redis.call('hincrby', KEYS[1], ARGV[1], 1)
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
""")
FREE = Script.of("""
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('hincrby', KEYS[1], ARGV[1], -1) == 0 then redis.call('del', KEYS[1]) end
return 1
""")
LENGTHEN = Script.of("""
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
if redis.call('pttl', KEYS[1]) < tonumber(ARGV[2]) then
  redis.call('pexpire', KEYS[1], ARGV[2])
end
return 1
""")

A = TypeVar("A")


class RedisReentrant(RedisToken):
    """One client of the lock, and one owner; another one after an outcome that is unknown, as whose
    depth may be another one than it counts."""

    by_script = True
    _owner = ""  # drawn when it is needed

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls until the key is free or this client's own."""
        self._owner = self._owner or token_of(new_hold_id())
        return self._told(super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s))

    def release(self, hold: Hold) -> Freed:
        """Gives one of the holds back."""
        return self._told(super().release(hold))

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Lets all holds live on."""
        return self._told(super().extend(hold, ttl_s))

    def _told(self, answer: A) -> A:
        if isinstance(answer, Unknown):
            self._owner = ""
        return answer

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Counts one up, if the key is free or this client's own."""
        taken = self._link.run(TAKE, key, self._owner, ttl_ms)
        return Taken(self._link.sent_ns, of=self._owner) if taken else None

    def free(self, hold: Hold) -> bool:
        """Counts one down."""
        return bool(self._link.run(FREE, hold.key, hold.handle.of))

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        """Lets all holds of the key live on."""
        done = self._link.run(LENGTHEN, hold.key, hold.handle.of, ttl_ms)
        return self._link.sent_ns if done else None


SYSTEM = redis_token.SYSTEM.derived(
    name="redis-reentrant",
    elsewhere=True,
    connect=RedisReentrant,
    source="https://redisson.pro/docs/data-and-services/locks-and-synchronizers/ (RLock)",
    outcomes=SCRIPT_OUTCOMES,
    kind="reentrant",
    entry=None,
    bare=(Bare("redis", (TAKE.called(KEY, TOKEN, TTL_MS), FREE.called(KEY, TOKEN))),),
)
