"""``redis-sentinel`` that trusts a grant only when the replica has it too.

After SET, ``WAIT 1`` asks until a replica has acknowledged everything written so far on this
connection. With one replica, the only server that can be promoted knows of every grant. If none
acknowledges within half of the client's time limit, the grant is given back: while replication is
broken nobody is granted anything. https://redis.io/docs/latest/commands/wait/

Does not guarantee: one holder where a server restarts without its newest writes, or where several
replicas exist and one that did not acknowledge is promoted; that a holder stops when its time is
over; a fence.

What errors mean stands in ``lockbench.locks.redis.recipe``. Beyond that:

- WAIT says that nobody acknowledged, and giving back is confirmed: gave-up.
- An error of WAIT or of the giving back: the key is set on a server that may yet be followed.
  Unknown.
- An extension that nobody acknowledged: Unknown.
"""

from __future__ import annotations

from lockbench.locks.bare import TIMEOUT_S, Bare
from lockbench.locks.base import ANY, Acquired, Denied, Hold
from lockbench.locks.redis import sentinel as redis_sentinel
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.expectations import PERSISTENCE_DOC
from lockbench.locks.redis.link import BARE_CYCLE, DELETE_OWN
from lockbench.locks.redis.recipe import Taken, Unsure, named
from lockbench.locks.redis.sentinel import RedisSentinel
from lockbench.locks.shared.expectations import CUT, holds, may_break, with_changes

REPLICAS = 1
WAIT_SHARE = 0.5  # of the client's time limit, so that WAIT ends before the connection does


class NotReplicated(Exception):
    """Nobody acknowledged the grant, and it is given back."""


class RedisSentinelWait(RedisSentinel):
    """One client of the lock."""

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """Sets the key unless it is there, and sees it replicated or deletes it again."""
        taken = super().take(key, token, ttl_ms)
        if taken is None:
            return None
        try:
            if self._replicated():
                return taken
            self._link.run(DELETE_OWN, key, token)
        except exceptions.RedisError as error:
            raise Unsure(f"after SET: {named(error)}") from error
        raise NotReplicated("no replica acknowledged")

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        """Starts the time to live again, and sees that replicated."""
        sent_ns = super().lengthen(hold, ttl_ms)
        if sent_ns is not None and not self._replicated():
            raise Unsure("no replica acknowledged")
        return sent_ns

    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        try:
            return super()._try(key, hold_id, ttl_s)
        except NotReplicated as error:
            return Denied(f"gave-up: {error}")

    def _replicated(self) -> bool:
        return bool(self._link.call("WAIT", REPLICAS, _wait_ms(self._timeout_s)) >= REPLICAS)


def _wait_ms(timeout_s: float) -> int:
    return int(1000 * WAIT_SHARE * timeout_s)


WAIT_DOC = (
    "https://redis.io/docs/latest/commands/wait/: 'WAIT does not make Redis a strongly consistent "
    "store', but on failover it 'improves the real world data safety'"
)
_ONLY_CANDIDATE = f"{WAIT_DOC}; the one replica has acknowledged every grant"
_HOLDS = holds(_ONLY_CANDIDATE, "double-grant", "lost-update")
# The same primary comes back before it is missed, and may have forgotten what the replica knew.
_FORGETS = may_break(PERSISTENCE_DOC, "double-grant", "lost-update")

_BARE_WAIT = f"WAIT {REPLICAS} {_wait_ms(TIMEOUT_S)}"

SYSTEM = redis_sentinel.SYSTEM.derived(
    name="redis-sentinel-wait",
    elsewhere=True,
    suites={"nightly": ("none", "failover"), "capacity": (ANY,)},
    source=WAIT_DOC,
    replicas_max=REPLICAS,
    connect=RedisSentinelWait,
    # A promoted primary has no replica until Sentinel demotes the old one, ten seconds after that
    # one is back.
    settles_s=12.0,
    bare=(Bare("sentinel", (BARE_CYCLE[0], _BARE_WAIT, BARE_CYCLE[1])),),
    outcomes={
        **redis_sentinel.SYSTEM.outcomes,
        "acquire: nobody acknowledges, deleted": "Denied: gave-up",
        "acquire: nobody acknowledges, not deleted": "Unknown",
        "acquire: WAIT breaks": "Unknown",
    },
    expectations=with_changes(
        redis_sentinel.REPLICATED_LEASE,
        dict.fromkeys(("pause", *CUT, "failover", "restart"), _HOLDS),
        {"kill": _FORGETS},
    ),
)
