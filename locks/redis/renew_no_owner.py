"""A control: ``redis-watchdog`` whose renewal is a bare ``PEXPIRE``.

It does not look whose key it is. A watchdog that wakes after the time to live prolongs its
successor's key, is told that it succeeded, and the old holder believes to hold on. The bench must
catch this; if it does not, the bench is broken.

Errors mean what they mean for ``redis-token``.
"""

from __future__ import annotations

from dataclasses import replace

from locks.base import Expectation, Hold
from locks.redis import watchdog as redis_watchdog
from locks.redis.expectations import LEASE, LOCK_DOC
from locks.redis.token import RedisToken
from locks.shared.expectations import with_changes


class PlainExpire(RedisToken):
    """A watchdog's connection."""

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        """Starts the key's time to live again, whoever holds it. This is the defect."""
        return self._link.sent_ns if self._link.call("PEXPIRE", hold.key, ttl_ms) else None


class RedisRenewNoOwner(redis_watchdog.RedisWatchdog):
    """One client of the lock."""

    renews_with = PlainExpire


EXTENSION_DOC = (
    f"{LOCK_DOC}#making-the-algorithm-more-reliable-extending-the-lock: 'extends the TTL of "
    "the key if the key exists and its value is still the random value the client assigned'"
)
_MAY = Expectation("may-break", EXTENSION_DOC, "control")
_BELIEVES = {"wrong-extend": _MAY, "double-grant": _MAY}
# The key is given away for certain. The next round renews the successor's and goes on to believe,
# or meets the moment between two holders and is told.
_GIVEN_AWAY = {"wrong-extend": _MAY, "stale-holder": _MAY}
_EITHER = {**_BELIEVES, "stale-holder": _MAY}
# The holder sleeps for longer than the watchdog's round, so a round is due as it wakes; the holder
# writes first, and the renewal goes out while it waits for that. It is acknowledged, so the promise
# never ended: what the holder does is a double grant, and stale only where the round came too late.
_SHOWS = Expectation("breaks", EXTENSION_DOC, "control", tries=3)
_WAKES = {"wrong-extend": _SHOWS, "double-grant": _SHOWS, "stale-holder": _MAY}

SYSTEM = replace(
    redis_watchdog.SYSTEM,
    name="redis-renew-no-owner",
    connect=RedisRenewNoOwner,
    expectations=with_changes(
        LEASE,
        client_pause=_WAKES,
        client_gc=_BELIEVES,
        wipe=_GIVEN_AWAY,
        clock_jump=_GIVEN_AWAY,
        clock_drift=_EITHER,
        clock_strobe=_EITHER,
        kill=_EITHER,
        rolling_restart=_EITHER,
        power_loss=_EITHER,
        pause=_BELIEVES,
        partition_drop=_BELIEVES,
        partition_stall=_BELIEVES,
    ),
)
