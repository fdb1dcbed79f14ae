"""``leader``: who holds the lock leads, acts ``acts`` times in its term, and hands over.

A leader reads what its predecessor left, acts, takes the time of a hold, and goes on acting, a beat
apart. An act is an effect. A leader that acts again after a later one has acted is a second leader
(``two-leaders``); how long nobody led is measured.
"""

from __future__ import annotations

import time
from typing import Final

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import LOAD, Job, Options, Workload
from lockbench.workloads.use import Use

BEAT_S: Final = 0.02


class Leader(Job):
    """One candidate."""

    def __init__(self, options: Options) -> None:
        self._acts = int(options["acts"])

    def work(self, use: Use) -> None:
        use.read()
        use.effect(0)
        use.keep()
        use.effect(1)
        for act in range(2, self._acts):
            time.sleep(BEAT_S)
            use.effect(act)


WORKLOAD = Workload(
    name="leader",
    summary="the holder leads: two leaders must not act; how long nobody leads",
    job=Leader,
    verdicts=("stale-holder", "two-leaders"),
    parameters={**LOAD, "acts": Parameter("acts in a term", 4, least=2)},
    describes=lambda _: {"job": "leader"},
    pace=lambda _: {"hold_s": BEAT_S},
    kinds=("mutex", "reentrant", "read-write"),
)
