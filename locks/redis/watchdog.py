"""``redis-token`` with a watchdog: a hold is renewed in the background every third of its time to
live, until it is released. So a hold may last longer than its time to live, and a holder that dies
still leaves the key for no longer than that. As Redisson's
https://redisson.pro/docs/data-and-services/locks-and-synchronizers/

The watchdog has a connection of its own. Each renewal that is acknowledged lengthens the promise; a
renewal that finds the key gone, or another's, tells the holder that the lock is lost.

Does not guarantee: what ``redis-token`` does not. The watchdog sleeps when its process does, so a
frozen holder loses the lock, and is told only when it has already begun to act again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockbench.locks.base import Acquired, Address, Freed, Granted, Hold, Observer
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.shared.expectations import breaks, may_break, with_changes
from lockbench.locks.shared.renewals import Renewals

RENEWALS_PER_TTL = 3


class RedisWatchdog(RedisToken):
    """One client of the lock."""

    renews_with: type[RedisToken] = RedisToken

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,
        observer: Observer,
        **how: Any,  # as ``RedisToken`` takes it
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer, **how)
        self._watchdog = self.renews_with(
            nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer
        )
        self._renewals = Renewals(
            lambda hold: self._watchdog.extend(hold, ttl_s),
            observer,
            period_s=ttl_s / RENEWALS_PER_TTL,
        )

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls until the key is free; what is granted is renewed from then on."""
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if isinstance(answer, Granted):
            self._renewals.add(answer.hold)
        return answer

    def release(self, hold: Hold) -> Freed:
        """Calls the watchdog off and gives the hold back."""
        self._renewals.discard(hold)
        return super().release(hold)

    def close(self) -> None:
        """Drops the connections; holds are not renewed any more."""
        self._renewals.close(self._timeout_s)
        self._watchdog.close()
        super().close()


WATCHDOG_DOC = (
    "https://redisson.pro/docs/data-and-services/locks-and-synchronizers/ (lock watchdog)"
)
_TOLD = (
    f"{WATCHDOG_DOC}: it 'prolongs lock expiration while lock holder Redisson instance is alive'; "
    "of a key that is gone it can only tell, and nothing stops a holder that was told"
)

SYSTEM = redis_token.SYSTEM.derived(
    name="redis-watchdog",
    elsewhere=True,
    connect=RedisWatchdog,
    source=WATCHDOG_DOC,
    expectations=with_changes(
        LEASE,
        # A server that forgets gives the key away within the promise. The next round finds that out
        # and ends the promise, well before the holder, who does not ask, writes and lets go.
        dict.fromkeys(("wipe", "clock-jump"), breaks(_TOLD, "stale-holder")),
        dict.fromkeys(
            ("clock-drift", "clock-strobe", "kill", "power-loss", "rolling-restart"),
            may_break(_TOLD, "stale-holder"),
        ),
    ),
)
