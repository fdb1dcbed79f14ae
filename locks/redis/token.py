"""One Redis, a random token, a time to live.

Acquire is ``SET key token NX PX ttl``; release and extend compare the token inside a script, so
they touch nobody else's hold. Waiting is polling, with pauses that grow and are jittered; other
ways to pause can be asked for (``redis-token:backoff=fixed``).
https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

Does not guarantee: anything once the server has lost its data, or its clock has jumped; that a
holder stops when its time is over; a fence.

What errors mean stands in ``lockbench.locks.redis.recipe``.
"""

from __future__ import annotations

from lockbench.locks.bare import Bare
from lockbench.locks.base import ANY, Extended, Granted, Hold, NotHeld, System, Unknown, token_of
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.expectations import LEASE, LOCK_DOC
from lockbench.locks.redis.link import BARE_CYCLE, DELETE_OWN, EXTEND_OWN, NotSent
from lockbench.locks.redis.recipe import (
    OUTCOMES,
    PARAMETERS,
    WAITS_BY,
    RedisRecipe,
    Taken,
    Unsure,
    milliseconds,
    named,
)
from lockbench.locks.shared.tenures import redis_entry


class RedisToken(RedisRecipe):
    """One client of the lock."""

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        if not self._link.call("SET", key, token, "NX", "PX", ttl_ms):
            return None
        return Taken(self._link.sent_ns)

    def free(self, hold: Hold) -> bool:
        """Deletes the key if it still carries this hold's token."""
        return bool(self._link.run(DELETE_OWN, hold.key, token_of(hold.id)))

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        """Starts the time to live again if the key still carries this hold's token. When the
        command was sent that did so; None: it does not."""
        done = self._link.run(EXTEND_OWN, hold.key, token_of(hold.id), ttl_ms)
        return self._link.sent_ns if done else None

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Lets the hold live ``ttl_s`` from now. Any error leaves it unknown whether it does."""
        ttl_ms = milliseconds(ttl_s)
        try:
            self._link.open()
            sent_ns = self.lengthen(hold, ttl_ms)
        except (NotSent, Unsure, exceptions.RedisError) as error:
            return Unknown(f"extend: {named(error)}")
        if sent_ns is None:
            return NotHeld()
        return Granted(hold, hold.handle.fence, sent_ns, sent_ns + ttl_ms * 1_000_000)


SYSTEM = System(
    name="redis-token",
    topologies=("redis", "redis-fsync"),
    suites={"quick": (ANY,)},
    family="redis",
    fence=None,
    waits_by=WAITS_BY,
    source=LOCK_DOC,
    connect=RedisToken,
    outcomes=OUTCOMES,
    elsewhere=True,
    expectations=LEASE,
    parameters=PARAMETERS,
    entry=redis_entry,
    bare=(Bare("redis", BARE_CYCLE),),
)
