"""``clock-jump``: the wall clocks of servers jump, forward or back, and stay so for a while.

Forward by more than a lease, a server that counts leases by the wall clock forgets every one of
them; back, it keeps them for longer than it promised.
"""

from __future__ import annotations

from typing import ClassVar

from declarations.parameters import Parameter
from nemesis.base import Arena
from nemesis.clock import PARAMETERS, ClockFault


class ClockJump(ClockFault):
    """See the module."""

    name = "clock-jump"
    summary = "makes the wall clocks of servers jump"
    during = "when servers' clocks jumped"
    suites = frozenset({"nightly", "full"})
    parameters: ClassVar[dict[str, Parameter]] = PARAMETERS

    def offset_s(self, arena: Arena, elapsed_s: float) -> float:
        return arena.number("by_s")


FAULT = ClockJump()
