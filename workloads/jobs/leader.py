"""``leader``: who holds the lock leads, acts ``acts`` times in its term, and hands over.

An act is an effect. A leader that acts again after a later one has acted is a second leader
(``two-leaders``); how long nobody led is measured.
"""

from __future__ import annotations

from workloads.base import LOAD, Job, Options, Parameter, Workload
from workloads.use import Use


class Leader(Job):
    """One candidate."""

    def __init__(self, options: Options) -> None:
        self._acts = int(options["acts"])

    def work(self, use: Use) -> None:
        for act in range(self._acts):
            if act:
                use.keep()
            use.effect(act)


WORKLOAD = Workload(
    name="leader",
    summary="who holds the lock leads: no two leaders act, and how long nobody led",
    job=Leader,
    verdicts=("stale-holder", "two-leaders"),
    parameters={**LOAD, "acts": Parameter("acts in a term, a hold's time apart", 4, least=2)},
    describes=lambda _: {"job": "leader"},
    pace=lambda _: {"hold_s": 0.02},
    kinds=("mutex", "reentrant", "read-write"),
)
