"""python-redis-lock's ``Lock``, as its user drives it.

Defaults: ``Lock(client, name)``, so no time to live and no renewal. ``safe``: the lease as
``expire`` (whole seconds), ``auto_renewal``, no retries, and a limit for every request that is
longer than it may wait for a signal.

A renewal that the server acknowledged is told; that the renewal thread died is not, for the library
tells nobody. Waits are whole seconds, at least one.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import redis
from lockbench_sidecar import (
    Acquired,
    Client,
    Denied,
    Extended,
    Freed,
    Granted,
    NotHeld,
    Released,
    Setup,
    Tell,
    serve,
)
from redis_lock import Lock, NotAcquired
from redis_sends import Sends, noting, settings

WAIT_S_MOST = 10.0  # longer than any wait of the bench


class Telling(Lock):  # type: ignore[misc]
    """A lock that says when it was renewed."""

    def __init__(self, *args: Any, tell: Tell, hold: str, sends: Sends, **options: Any) -> None:
        super().__init__(*args, **options)
        self._tell = tell
        self._hold = hold
        self._sends = sends

    def extend(self, expire: int | None = None) -> None:
        """As the library's; its renewal thread calls it with the time to live."""
        super().extend(expire)
        if expire:
            sent_ns = self._sends.last_ns
            until_ns = sent_ns + expire * 1_000_000_000
            self._tell.extended(self._hold, sent_ns=sent_ns, valid_until_ns=until_ns)


class PythonRedisLock(Client):
    """One client: one ``Redis`` object, one ``Lock`` per hold."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._sends = Sends()
        ((host, port),) = setup.nodes
        how = settings(replace(setup, timeout_s=WAIT_S_MOST + setup.timeout_s))
        self._redis = noting(redis.Redis(host, port, **how), self._sends)
        self._holds: dict[str, Telling] = {}

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``acquire`` of a new lock object."""
        how: dict[str, Any] = {}
        if self._setup.safe:
            how = {"expire": math.ceil(ttl_s), "auto_renewal": True}
        lock = Telling(self._redis, key, tell=self._setup.tell, hold=hold, sends=self._sends, **how)
        if wait_s > 0:
            gotten = lock.acquire(timeout=math.ceil(wait_s))
        else:
            gotten = lock.acquire(blocking=False)
        if not gotten:
            return Denied("gave-up: acquire() returned False" if wait_s > 0 else "held")
        self._holds[hold] = lock
        sent_ns = self._sends.last_ns
        until_ns = sent_ns + math.ceil(ttl_s) * 1_000_000_000
        return Granted(sent_ns, until_ns if self._setup.safe else None)

    def release(self, key: str, hold: str) -> Freed:
        """``release``: NotAcquired says that it was not held any more."""
        lock = self._holds.pop(hold, None)
        if lock is None:
            return NotHeld()
        try:
            lock.release()
        except NotAcquired:
            return NotHeld()
        return Released()

    def extend(self, key: str, hold: str, ttl_s: float) -> Extended:
        """``extend`` by the time to live that the lock was made with."""
        try:
            self._holds[hold].extend()
        except NotAcquired:
            return NotHeld()
        sent_ns = self._sends.last_ns
        return Granted(sent_ns, sent_ns + math.ceil(ttl_s) * 1_000_000_000)

    def close(self) -> None:
        """Drops the connections."""
        self._redis.close()


if __name__ == "__main__":
    serve("python-redis-lock", PythonRedisLock)
