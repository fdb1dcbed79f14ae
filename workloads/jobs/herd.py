"""``herd``: all wait for one lock, and it is released, again and again. What a release wakes shows
in the hand-over, in the requests that the servers get per grant, and in who waits how long, as the
number of clients grows (``--clients 10``, 100, 1000)."""

from __future__ import annotations

from lockbench.workloads.base import Workload
from lockbench.workloads.jobs.mutex import Mutex

WORKLOAD = Workload(
    name="herd",
    summary="all clients wait for one lock: wake-ups, requests, hand-over",
    job=lambda _: Mutex(),
    verdicts=("stale-holder", "lost-update"),
    parameters={},
    # Little beside the herd: the requests to the servers are to be its own.
    pace=lambda _: {"hold_s": 0.02, "think_s": 0.0, "wait_s": 30.0, "own_period_s": 1.0},
    shape={"clients": 100, "keys": 1},
    timed=False,
    patient=True,
)
