"""``published``: the experiment of the table that articles cite. Nobody shares a key, nothing is
guarded, there are no pauses and no faults (``lockbench.bench.plan.published`` has its sizes)."""

from __future__ import annotations

from lockbench.workloads.base import Workload
from lockbench.workloads.jobs.mutex import Mutex

WORKLOAD = Workload(
    name="published",
    summary="the experiment that articles cite: 100 clients, 5 nodes, own keys, no pauses",
    job=lambda _: Mutex(),
    verdicts=(),
    parameters={},
    timed=False,
    faulted=False,
)
