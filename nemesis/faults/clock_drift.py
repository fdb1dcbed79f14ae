"""``clock-drift``: the wall clocks of servers run too fast or too slow while the fault is on.

``rate`` is how many seconds they gain on each true one, in steps of 50 ms. Leases that are counted
by the wall clock then end early (or late) by the same share.
"""

from __future__ import annotations

import time
from typing import ClassVar

from lockbench.declarations.parameters import Parameter
from lockbench.nemesis.base import Arena
from lockbench.nemesis.clock import CLOSE_S, ClockFault
from lockbench.nemesis.targets import WHO


class ClockDrift(ClockFault):
    """See the module."""

    name = "clock-drift"
    summary = "makes the wall clocks of servers run too fast or too slow"
    lasts_leases = 1.5
    parameters: ClassVar = {
        "rate": Parameter("seconds gained per true second", 2.0, least=-0.9, most=1000),
        "who": WHO,
    }
    period_s: ClassVar = 0.05

    def begin(self, arena: Arena) -> None:
        # At once as far off as can be told from the truth.
        self.shift(arena, 1.5 * CLOSE_S * (1 if arena.number("rate") > 0 else -1))

    def tick(self, arena: Arena) -> None:
        elapsed_s = time.monotonic() - arena.begun_ns / 1e9
        self.shift(arena, arena.number("rate") * elapsed_s)


FAULT = ClockDrift()
