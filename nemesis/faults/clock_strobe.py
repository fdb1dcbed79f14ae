"""``clock-strobe``: the wall clocks of servers jump there and back, many times a second.

As a clock that is fought over by two time services. Each jump is drawn by the seed, up to ``by_s``.
"""

from __future__ import annotations

from typing import ClassVar

from lockbench.nemesis.base import Arena
from lockbench.nemesis.clock import ClockFault


class ClockStrobe(ClockFault):
    """See the module."""

    name = "clock-strobe"
    summary = "makes the wall clocks of servers jump back and forth, many times a second"
    period_s: ClassVar = 0.05

    def tick(self, arena: Arena) -> None:
        share = arena.rng.uniform(0.5, 1.0)
        there = bool(arena.facts.moves and arena.facts.moves[-1][2])
        self.shift(arena, 0.0 if there else share * arena.number("by_s"))


FAULT = ClockStrobe()
