"""``rate-limit``: never more than ``calls`` calls in any ``window`` of seconds, all clients of a
key together.

Under the lock a client asks how many calls the last window saw, and calls only below the bound. Two
that look at once both call (``rate-exceeded``). By default so few are allowed that the long holds
of the aimed key use them up: a holder that calls after its time is then one too many, unless it
meets a window that has room just then.
"""

from __future__ import annotations

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import LOAD, Job, Options, Workload
from lockbench.workloads.resource import EFFECTS_KEPT, LATELY
from lockbench.workloads.use import Use


class Caller(Job):
    """One client of a limited service."""

    def __init__(self, options: Options) -> None:
        self._bound = int(options["calls"])
        self._window_ns = int(1e9 * float(options["window"]))
        self._made = 0

    def work(self, use: Use) -> None:
        _, lately = use.read(self._window_ns, how=LATELY)
        use.keep()
        if lately < self._bound:
            use.effect(self._made)
            self._made += 1


WORKLOAD = Workload(
    name="rate-limit",
    summary="never more calls in a window than allowed",
    job=Caller,
    verdicts=("stale-holder", "rate-exceeded"),
    parameters={
        **LOAD,
        "calls": Parameter("calls allowed in a window", 3, least=1, most=EFFECTS_KEPT),
        "window": Parameter("seconds of a window", 1, least=0.001),
    },
    describes=lambda options: {
        "job": "rate-limit",
        "bound": int(options["calls"]),
        "window_ns": int(1e9 * float(options["window"])),
    },
    kinds=("mutex", "reentrant", "read-write"),
)
