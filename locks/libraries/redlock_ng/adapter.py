"""redlock-ng's ``Redlock``, as its user drives it; what is set stands in ``lock.py``. The library
waits for ever or not at all, so a wait asks again until it is over, with the library's own pauses.

The promise (``redlock/lock.py`` of 2.0.4): ``Redlock.acquire`` counts ``validity`` from before the
first SET of an attempt, less its drift, and so does ``rounds``. All attempts have one value; each
begins at the first node, and SET NX refuses what an earlier one left behind. ``Redlock.extend``
looks at no clock: True says that a majority has run PEXPIRE after its call, so the promise runs
from that call, less nothing. It asks one node after the other, so most keys live longer.

``release`` returns nothing and hides every error: whoever calls it must take it for released.
"""

from __future__ import annotations

import random
import time
from typing import Any

from lockbench_sidecar import (
    Acquired,
    Client,
    Extended,
    Freed,
    Granted,
    Released,
    Setup,
    Unknown,
    refused,
    serve,
)
from redlock import Redlock, RedlockConfig
from rounds import Node, Rounds


class RedlockNg(Client):
    """One client: one ``Redlock``."""

    def __init__(self, setup: Setup) -> None:
        self._rounds = Rounds()
        config = RedlockConfig(masters=[f"redis://{host}:{port}/0" for host, port in setup.nodes])
        self._safe = setup.safe
        self._manager = Redlock(config, retry_count=0) if setup.safe else Redlock(config)
        self._pause_s = (self._manager.retry_delay_min, self._manager.retry_delay_max)
        self._manager.client.instances = [
            Node(
                host,
                port,
                socket_timeout=config.socket_timeout,
                socket_connect_timeout=config.socket_connect_timeout,
                rounds=self._rounds,
                first=number == 0,
            )
            for number, (host, port) in enumerate(setup.nodes)
        ]

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``with manager.lock(…) as lock`` until ``lock.valid``."""
        over = time.monotonic() + wait_s
        while True:
            self._rounds.clear()
            context = self._manager.lock(key, int(ttl_s * 1000))
            lock = context.__enter__()
            if lock.valid:
                return self._rounds.granted(lock.value, ttl_s, context)
            if time.monotonic() >= over:
                return refused(wait_s, "lock.valid is False")
            if self._safe:  # one attempt does not pause
                pause_s = random.uniform(*self._pause_s)
                time.sleep(max(0.0, min(pause_s, over - time.monotonic())))

    def release(self, hold: str, lock: Any) -> Freed:
        """The end of the ``with``."""
        lock.__exit__(None, None, None)
        return Released()

    def extend(self, hold: str, lock: Any, ttl_s: float) -> Extended:
        """``extend``: False says that no majority did it, not why."""
        began_ns = time.monotonic_ns()
        ttl_ms = int(ttl_s * 1000)
        if not self._manager.extend(lock.lock_obj, ttl_ms):
            return Unknown("extend() returned False")
        return Granted(began_ns, began_ns + ttl_ms * 1_000_000)

    def close(self) -> None:
        for instance in self._manager.client.instances:
            instance.close()


if __name__ == "__main__":
    serve("redlock-ng", RedlockNg)
