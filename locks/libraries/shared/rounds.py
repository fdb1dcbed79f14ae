"""When a round over all nodes of a Redlock library began.

The libraries count the validity of a grant from the beginning of the round that granted it, and do
not tell when that was. These clients note it as ``set`` is called for the first time in a round:
before anything is sent, and right after the library has looked at its clock.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import redis

DRIFT_SHARE = 0.01  # as https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
DRIFT_S = 0.002


class Rounds:
    """Of one client of the bench. A round has a value of its own, or begins at the first node."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: set[Any] = set()
        self.began_ns = 0

    def asks(self, value: Any, *, first: bool) -> None:
        """``set`` is called with this value, at the first node or another. Late calls of an earlier
        round change nothing."""
        with self._lock:
            if first or value not in self._seen:
                self.began_ns = time.monotonic_ns()
            self._seen.add(value)

    def clear(self) -> None:
        """Before an acquire."""
        with self._lock:
            self._seen.clear()

    def valid_until_ns(self, ttl_s: float) -> int:
        """What the library promises of a grant of the last round: ttl - elapsed - drift."""
        return self.began_ns + int((ttl_s * (1 - DRIFT_SHARE) - DRIFT_S) * 1e9)


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
