"""A control: ``redis-watchdog`` whose renewal is a bare ``PEXPIRE``.

It does not look whose key it is. A watchdog that wakes after the time to live prolongs its
successor's key, is told that it succeeded, and the old holder believes to hold on. The bench must
catch this; if it does not, the bench is broken.

Errors mean what they mean for ``redis-token``.
"""

from __future__ import annotations

from functools import partial

from lockbench.locks.base import Hold
from lockbench.locks.redis import watchdog as redis_watchdog
from lockbench.locks.redis.expectations import LEASE, LOCK_DOC
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import ANSWERS_LOST, breaks, may_break, with_changes


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
_MAY = partial(may_break, EXTENSION_DOC, kind="control")

SYSTEM = redis_watchdog.SYSTEM.derived(
    name="redis-renew-no-owner",
    elsewhere=True,
    connect=RedisRenewNoOwner,
    expectations=with_changes(
        LEASE,
        # The holder sleeps for longer than the watchdog's round, so a round is due as it wakes; the
        # holder writes first, and the renewal goes out while it waits for that. It is acknowledged,
        # so the promise never ended: what the holder does is a double grant, and stale only where
        # the round came too late.
        {
            "client-pause": {
                **breaks(EXTENSION_DOC, "wrong-extend", "double-grant", kind="control"),
                **_MAY("stale-holder"),
            }
        },
        # The key is given away for certain. The next round renews the successor's and goes on to
        # believe, or meets the moment between two holders and is told.
        dict.fromkeys(("wipe", "clock-jump"), _MAY("wrong-extend", "stale-holder")),
        dict.fromkeys(
            ("clock-drift", "clock-strobe", "kill", "rolling-restart", "power-loss"),
            _MAY("wrong-extend", "double-grant", "stale-holder"),
        ),
        dict.fromkeys(
            ("client-gc", "pause", "partition-drop", "partition-stall"),
            _MAY("wrong-extend", "double-grant"),
        ),
        # While the release is kept on its way, its effect may be there and a round goes out: it
        # renews the successor's key, and is answered for a hold that is not over yet.
        dict.fromkeys(ANSWERS_LOST, _MAY("linearizable")),
    ),
)
