"""How far this machine's wall clock is ahead of its monotonic clock."""

from __future__ import annotations

import time
from typing import Final

LOOKS: Final = 10
STEP_S_MAX: Final = 0.1  # more than a clock that is being slewed strays in a case


def wall_minus_monotonic_ns() -> int:
    """By the tightest of some looks: whoever stands still between its reads of the two clocks sees
    a difference that is not there."""
    looks = []
    for _ in range(LOOKS):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        looks.append((after_ns - before_ns, wall_ns - (before_ns + after_ns) // 2))
    return min(looks)[1]
