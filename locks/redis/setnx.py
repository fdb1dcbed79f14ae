"""``SETNX key token`` and ``DEL key``: the first lock that everybody writes.

The key has no time to live. A holder keeps the lock for as long as it likes, so freezing it harms
nobody; a holder that dies, or an acquire whose answer was lost, locks the key for ever.
https://redis.io/docs/latest/commands/setnx/#design-pattern-locking-with-setnx

Does not guarantee: that the lock is ever free again; anything once the server has lost its data.

Errors mean what ``lockbench.locks.redis.recipe`` says. After an Unknown acquire nobody may ever get
the key.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, TOKEN, Bare
from lockbench.locks.base import Hold
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.expectations import no_lease
from lockbench.locks.redis.recipe import COMMAND_OUTCOMES, RedisRecipe, Taken


class RedisSetnx(RedisRecipe):
    """One client of the lock."""

    limited = False

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key unless it is there; nothing will remove it but its holder."""
        return Taken(self._link.sent_ns) if self._link.call("SETNX", key, token) else None

    def free(self, hold: Hold) -> bool:
        """Deletes the key. Nobody else can hold it, unless the server forgot it."""
        return bool(self._link.call("DEL", hold.key))


SETNX_DOC = "https://redis.io/docs/latest/commands/setnx/#design-pattern-locking-with-setnx"
_NEVER_ENDS = f"{SETNX_DOC}: without a time to live a hold ends by its release alone"

SYSTEM = redis_token.SYSTEM.derived(
    name="redis-setnx",
    elsewhere=True,
    topologies=("redis",),
    source=SETNX_DOC,
    connect=RedisSetnx,
    outcomes={r: o for r, o in COMMAND_OUTCOMES.items() if r != "acquire: granted too late"},
    expectations=no_lease(_NEVER_ENDS),
    limited=False,
    bare=(Bare("redis", (f"SETNX {KEY} {TOKEN}", f"DEL {KEY}")),),
)
