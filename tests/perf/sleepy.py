"""The lock of known cost in a worker whose jobs begin by gevent's timers of whole milliseconds."""

from __future__ import annotations

from dataclasses import replace
from time import monotonic_ns

import gevent

from lockbench.workloads.timer import Timer
from perf import known_cost


def _sleep_until(self: Timer, at_ns: int) -> None:
    gevent.sleep(max(0.0, (at_ns - monotonic_ns()) / 1e9))


class Sleepy(known_cost.KnownCost):
    """Made in the process of a worker, and nowhere else."""

    def __init__(self, *words: object, **more: object) -> None:
        Timer.sleep_until = _sleep_until  # type: ignore[method-assign]
        super().__init__(*words, **more)  # type: ignore[arg-type]


SYSTEM = replace(known_cost.SYSTEM, name="sleepy", connect=Sleepy)
