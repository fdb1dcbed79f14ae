"""``cron``: every node wants to start the run that is due; once is right.

Run after run is given out to ``nodes`` askers of a key. Each locks, looks whether the run is
marked, and only then starts it (an effect) and marks it. A node that goes on after its hold starts
a run that another has started meanwhile (``ran-twice``). Without the look, a node that comes a
moment after the release would start it again under any lock.
"""

from __future__ import annotations

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import LOAD, Workload
from lockbench.workloads.jobs.payment import Delivered

WORKLOAD = Workload(
    name="cron",
    summary="every node tries to start the run that is due; it must start once",
    job=lambda options: Delivered(options["nodes"]),
    verdicts=("stale-holder", "lost-update", "ran-twice"),
    parameters={**LOAD, "nodes": Parameter("how many want to start each run", 4, least=1)},
    describes=lambda _: {"job": "cron"},
    kinds=("mutex", "reentrant", "read-write"),
)
