"""``SETNX key token``, then ``PEXPIRE key ttl``: a time to live, but in two commands.

A client that dies between them, or whose second command is lost, has locked the key for ever. And a
release is ``DEL``, so it has the defect of ``redis-no-owner`` too. Both were the usual advice until
Redis 2.6.12 gave SET its options.

Does not guarantee: that the lock is ever free again; that a release leaves a successor's hold
alone; anything once the server has lost its data, or its clock has jumped.

Errors mean what ``lockbench.locks.redis.recipe`` says for the first command. Whatever happens to
the second one, the key is there and may stay: Unknown.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, TOKEN, TTL_MS, Bare
from lockbench.locks.base import Hold, System
from lockbench.locks.redis import no_owner as redis_no_owner
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.expectations import LOCK_DOC
from lockbench.locks.redis.recipe import COMMAND_OUTCOMES, ERRORS, RedisRecipe, Taken, Unsure
from lockbench.locks.shared.expectations import ANSWERS_LOST, RESTARTED, may_break, with_changes


class NoTimeToLive(Unsure):
    """The key is set and may never end."""


class RedisSetnxExpire(RedisRecipe):
    """One client of the lock."""

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key unless it is there, and then gives it a time to live."""
        if not self._link.call("SETNX", key, token):
            return None
        try:
            self._link.call("PEXPIRE", key, ttl_ms)
        except exceptions.RedisError as error:
            raise NoTimeToLive(f"PEXPIRE: {type(error).__name__}: {error}") from error
        return Taken(self._link.sent_ns)

    def free(self, hold: Hold) -> bool:
        """Deletes the key, whoever holds it."""
        return bool(self._link.call("DEL", hold.key))


SET_DOC = (
    "https://redis.io/docs/latest/commands/set/#patterns: 'The command SET resource-name "
    "anystring NX EX max-lock-time is a simple way to implement a locking system with Redis'; "
    f"{LOCK_DOC} has no such two steps"
)

_BETWEEN = may_break(SET_DOC, "leaked-lock", kind="control")
_FAULTS = ("client-pause", "client-gc", "client-kill", *ANSWERS_LOST, *RESTARTED, "wipe")

SYSTEM: System = redis_no_owner.SYSTEM.derived(
    name="redis-setnx-expire",
    elsewhere=True,
    source=SET_DOC,
    connect=RedisSetnxExpire,
    expectations=with_changes(redis_no_owner.SYSTEM.expectations, dict.fromkeys(_FAULTS, _BETWEEN)),
    outcomes={
        **COMMAND_OUTCOMES,
        **{f"between: {error}": "Unknown" for error in ERRORS},
    },
    bare=(Bare("redis", (f"SETNX {KEY} {TOKEN}", f"PEXPIRE {KEY} {TTL_MS}", f"DEL {KEY}")),),
    not_owed={"a_hold_lives_on_while_it_is_kept_alive": "nothing keeps it alive"},
)
