"""``reentry``: who holds the lock enters it again, up to ``depth`` levels, gives some back, enters
again, and writes while only the first level is left.

Every level is an acquire and a release of its own in the history. A lock that is free as soon as
any level is given back lets others in beside its holder, in the middle of the work. Only for locks
that say that their holder may enter again: of any other one, the second acquire would wait for the
first.
"""

from __future__ import annotations

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import LOAD, Job, Options, Workload
from lockbench.workloads.use import Use


class Reentry(Job):
    """A read-modify-write in levels: in to the depth, out by one, in again, out to the first."""

    def __init__(self, options: Options) -> None:
        self._depth = int(options["depth"])

    def work(self, use: Use) -> None:
        version, _ = use.read()
        inner: list[Use] = []
        self._enter(use, inner)
        if inner:
            inner.pop().give_back()
        use.keep()
        self._enter(use, inner)
        while inner:
            inner.pop().give_back()
        use.write(version)

    def _enter(self, use: Use, inner: list[Use]) -> None:
        """Enters up to the depth, or up to the first level that is not granted."""
        while len(inner) + 1 < self._depth:
            level = use.also(use.granted.hold.key)
            if level is None:
                return
            inner.append(level)


WORKLOAD = Workload(
    name="reentry",
    summary="a holder enters again and leaves level by level",
    job=Reentry,
    verdicts=("stale-holder", "lost-update"),
    parameters={**LOAD, "depth": Parameter("how deep a holder enters", 3, least=2, most=100)},
    kinds=("reentrant",),
    timed=False,
)
