"""redlock-py's ``Redlock``, as its user drives it, at its defaults alone: three attempts, and the
retries and timeouts of redis-py for each node in turn; the user always says the time to live.

The library does not wait, so a wait asks again until it is over. ``unlock`` returns nothing and
hides every error: whoever calls it must take it for released.
"""

from __future__ import annotations

import time
from typing import Any

from lockbench_sidecar import (
    Acquired,
    Client,
    Freed,
    Granted,
    Released,
    Setup,
    refused,
    serve,
)
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
                until_ns = self._rounds.valid_until_ns(ttl_s)
                return Granted(self._rounds.began_ns, until_ns, lock=lock)
            if time.monotonic() >= over:
                return refused(wait_s, "lock() returned False")

    def release(self, hold: str, lock: Any) -> Freed:
        """``unlock``."""
        self._manager.unlock(lock)
        return Released()

    def close(self) -> None:
        """Drops the connections."""
        for node in self._nodes:
            node.close()


if __name__ == "__main__":
    serve("redlock-py", RedlockPy)
