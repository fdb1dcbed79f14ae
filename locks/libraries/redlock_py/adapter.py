"""redlock-py's ``Redlock``, as its user drives it, at its defaults alone: three attempts, and the
retries and timeouts of redis-py for each node in turn; the user always says the time to live.

The promise (``redlock/__init__.py`` of 1.0.8): ``lock`` counts ``validity`` from before the first
SET of an attempt, less its drift, and so does ``rounds``. All attempts of a ``lock`` have one
value; each begins at the first node. A key that an earlier attempt left behind is a refusal to a
later one (SET NX answers nil), so only what was set within the attempt is counted.

The library does not wait, so a wait asks again until it is over. ``unlock`` returns nothing and
hides every error: whoever calls it must take it for released.
"""

from __future__ import annotations

import time
from typing import Any

from lockbench_sidecar import Acquired, Client, Freed, Released, Setup, refused, serve
from redlock import Redlock
from rounds import Node, Rounds


class RedlockPy(Client):
    """One client: one ``Redlock``."""

    def __init__(self, setup: Setup) -> None:
        self._rounds = Rounds()
        self._nodes = [
            Node(host, port, rounds=self._rounds, first=number == 0)
            for number, (host, port) in enumerate(setup.nodes)
        ]
        self._manager = Redlock(self._nodes)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``lock``: False says that it was not acquired."""
        over = time.monotonic() + wait_s
        self._rounds.clear()
        while True:
            lock = self._manager.lock(key, int(ttl_s * 1000))
            if lock:
                return self._rounds.granted(lock.key, ttl_s, lock)
            if time.monotonic() >= over:
                return refused(wait_s, "lock() returned False")

    def release(self, hold: str, lock: Any) -> Freed:
        """``unlock``."""
        self._manager.unlock(lock)
        return Released()

    def close(self) -> None:
        for node in self._nodes:
            node.close()


if __name__ == "__main__":
    serve("redlock-py", RedlockPy)
