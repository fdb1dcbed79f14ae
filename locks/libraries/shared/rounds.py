"""When a round over all nodes of a Redlock library began.

The libraries count the validity of a grant from the beginning of the round that granted it, less
their drift (https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/), and do not
tell when that was. These clients note it as ``set`` is called for the first time with the value of
a round: before anything is sent, and right after the library has looked at its clock.

That is the promise: what the library tells its user. It is never later than the end that the nodes
keep, for each of them keeps its key for the whole time to live from a SET that was sent after that.
It is earlier by the time of the round, in which the library connects and retries, and by the drift.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import redis
from lockbench_sidecar import Granted

DRIFT_SHARE = 0.01  # as all of the libraries have it
DRIFT_S = 0.002


class Rounds:
    """Of one client of the bench. A round has a value of its own, or begins at the first node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began_ns: dict[Any, int] = {}  # by value

    def asks(self, value: Any, *, first: bool) -> None:
        """``set`` is called with this value, at the first node or another."""
        with self._lock:
            if first or value not in self._began_ns:
                self._began_ns[value] = time.monotonic_ns()

    def clear(self) -> None:
        """Before an acquire. A thread that the library left behind may still set an old value."""
        with self._lock:
            self._began_ns.clear()

    def granted(self, value: Any, ttl_s: float, lock: Any) -> Granted:
        """What the library promises when the last round with this value granted ``lock``."""
        began_ns = self._began_ns[value]
        until_ns = began_ns + int((ttl_s * (1 - DRIFT_SHARE) - DRIFT_S) * 1e9)
        return Granted(began_ns, until_ns, lock=lock)


class Node(redis.Redis):
    """One node. ``first``: every round begins here, even if it has the value of the one before."""

    def __init__(self, *args: Any, rounds: Rounds, first: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._rounds = rounds
        self._first = first

    def set(self, name: Any, value: Any, *args: Any, **options: Any) -> Any:
        """As redis-py's."""
        self._rounds.asks(value, first=self._first)
        return super().set(name, value, *args, **options)
