"""pottery's ``Redlock``, as its user drives it; what is set stands in ``lock.py``.

The promise (``pottery/redlock.py`` of 3.0.1): ``_acquire_masters`` counts ``validity_time`` from
before the first SET, less its drift, and so does ``rounds``. Every round has a value of its own, so
a SET that an earlier round left to its threads belongs to no other. ``extend`` looks at no clock:
when it returns, a majority has run PEXPIRE after its call, so the promise runs from that call, less
nothing. It counts neither the loading of the script nor a retry, which may come before the PEXPIRE.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from lockbench_sidecar import (
    Acquired,
    Client,
    Extended,
    Freed,
    Granted,
    NotHeld,
    Released,
    Setup,
    Unknown,
    named,
    refused,
    serve,
)
from pottery import ExtendUnlockedLock, Redlock, ReleaseUnlockedLock
from redis_sends import settings
from rounds import Node, Rounds

NODE_TIMEOUT_SHARE = 0.1  # of the lease


class Pottery(Client):
    """One client: one ``Redis`` object per node, one ``Redlock`` per hold."""

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        self._rounds = Rounds()
        how = settings(replace(setup, timeout_s=NODE_TIMEOUT_SHARE * setup.ttl_s))
        self._masters = {Node(host, port, rounds=self._rounds, **how) for host, port in setup.nodes}

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        how: dict[str, Any] = {"auto_release_time": ttl_s}
        if self._safe:
            how["raise_on_redis_errors"] = True
        lock = Redlock(key=key, masters=self._masters, **how)
        self._rounds.clear()
        if not (lock.acquire(timeout=wait_s) if wait_s > 0 else lock.acquire(blocking=False)):
            return refused(wait_s, "acquire() returned False")
        value = lock._uuid  # noqa: SLF001 - of the round that granted
        return self._rounds.granted(value, lock.auto_release_time, lock)

    def release(self, hold: str, lock: Redlock) -> Freed:
        """``release``: ReleaseUnlockedLock says that no majority held it."""
        try:
            lock.release()
        except ReleaseUnlockedLock as error:
            return _not_held(error)
        return Released()

    def extend(self, hold: str, lock: Redlock, ttl_s: float) -> Extended:
        """``extend``: by the time to live that the lock was made with."""
        began_ns = time.monotonic_ns()
        try:
            lock.extend()
        except ExtendUnlockedLock as error:
            return _not_held(error)
        # It is given to Redis in whole milliseconds.
        return Granted(began_ns, began_ns + int(lock.auto_release_time * 1000) * 1_000_000)

    def close(self) -> None:
        for master in self._masters:
            master.close()


def _not_held(error: Any) -> NotHeld | Unknown:
    """The error carries those of the nodes. With one of them, nobody knows what that node held."""
    if error.redis_errors:
        errors = [named(one) for one in error.redis_errors]
        return Unknown(f"{type(error).__name__}, {len(errors)} nodes in error: {errors[0]}")
    return NotHeld()


if __name__ == "__main__":
    serve("pottery", Pottery)
