"""``clock-jump``: the wall clocks of servers jump, forward or back, and stay so for a while.

Forward by more than a lease, a server that counts leases by the wall clock forgets every one of
them; back, it keeps them for longer than it promised.
"""

from __future__ import annotations

from lockbench.nemesis.clock import ClockFault


class ClockJump(ClockFault):
    """See the module."""

    name = "clock-jump"
    summary = "makes the wall clocks of servers jump"
    during = "when servers' clocks jumped"
    suites = frozenset({"nightly", "full"})


FAULT = ClockJump()
