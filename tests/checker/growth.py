"""How work grows with its size, in CPU time: no other load of the machine can change the answer."""

from __future__ import annotations

import math
from collections.abc import Callable
from time import process_time


def exponent(run: Callable[[int], object], small: int, large: int) -> float:
    """Of what power of the size the CPU time grows, between two sizes."""
    run(small)  # imports and caches
    return math.log(_cpu_s(run, large) / _cpu_s(run, small)) / math.log(large / small)


def _cpu_s(run: Callable[[int], object], size: int) -> float:
    best = math.inf
    for _ in range(2):
        began = process_time()
        run(size)
        best = min(best, process_time() - began)
    return max(best, 1e-4)
