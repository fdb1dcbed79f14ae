"""The planted slowdown of nights: ``redis-token``, of which each grant takes a quarter longer.

A night whose gate does not find it says nothing about the others. The quarter is spent computing,
as a slower client library would: no sleep is as short as a fifth of a millisecond. Tries that are
refused are left alone, or polling would keep the load generator busy.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Final

from lockbench.locks.redis.recipe import Taken
from lockbench.locks.redis.token import SYSTEM as PLAIN
from lockbench.locks.redis.token import RedisToken

OF: Final = PLAIN.name
SLOWDOWN: Final = 0.25


class Slower(RedisToken):
    """One client of the lock."""

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        began_ns = time.monotonic_ns()
        taken = super().take(key, token, ttl_ms)
        if taken is None:
            return None
        until_ns = time.monotonic_ns() + round(SLOWDOWN * (time.monotonic_ns() - began_ns))
        while time.monotonic_ns() < until_ns:
            pass
        return taken


SYSTEM = replace(PLAIN, name="planted-slowdown", suites={}, connect=Slower)
