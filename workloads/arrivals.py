"""Jobs that arrive whether or not anybody is free: the open load.

Every worker process has one stream of arrivals, which its clients serve in order. A job that
arrives while all of them are busy waits; its intended start stays when it arrived, so a stall shows
in every time from the intended start, and what it delayed is caught up with. (Independent streams
of Poisson arrivals together are one of the sum of their rates.)
"""

from __future__ import annotations

import random
from collections import deque
from typing import Final

POISSON: Final = "poisson"


class Arrivals:
    """One stream, from ``begin_ns`` on; ``rate`` is arrivals per second. ``late`` shifts a constant
    stream by that part of its period, so that several do not march in step."""

    def __init__(
        self, rate: float, style: str, begin_ns: int, seed: str, late: float = 0.0
    ) -> None:
        self._rate = rate
        self._poisson = style == POISSON
        self._draws = random.Random(seed)
        self._last_ns = begin_ns + (0 if self._poisson else int(1e9 * (late - 1) / rate))
        self._waiting: deque[int] = deque()
        self._coming: deque[int] = deque()
        self._arrived = 0
        self.begun = 0

    def take(self) -> int:
        """When the next one arrives, or arrived."""
        if not self._waiting:
            self._draw()
        return self._waiting.popleft()

    def due(self, now_ns: int) -> int:
        """How many have arrived."""
        while self._last_ns <= now_ns:
            self._draw()
        while self._coming and self._coming[0] <= now_ns:
            self._coming.popleft()
            self._arrived += 1
        return self._arrived

    def _draw(self) -> None:
        step = self._draws.expovariate(self._rate) if self._poisson else 1 / self._rate
        self._last_ns += max(1, int(1e9 * step))
        self._waiting.append(self._last_ns)
        self._coming.append(self._last_ns)
