"""``herd``: all wait for one lock, and it is released, again and again. What a release wakes shows
in the hand-over, in the requests that the servers get per grant, and in who waits how long, as the
number of clients grows (``--clients 10``, 100, 1000)."""

from __future__ import annotations

from workloads.base import Workload
from workloads.jobs.mutex import Mutex

WORKLOAD = Workload(
    name="herd",
    summary="all wait for one lock, it is released: wake-ups, requests, hand-over",
    job=lambda _: Mutex(),
    verdicts=("stale-holder", "lost-update"),
    parameters={},
    pace=lambda _: {"hold_s": 0.02, "think_s": 0.0, "wait_s": 30.0},
    shape={"clients": 100, "keys": 1},
    timed=False,
    patient=True,
)
