"""``cron``: every node wants to start the run that is due; once is right.

Run after run is given out to ``nodes`` askers of a key. Each locks, looks whether the run is
marked, and only then starts it (an effect) and marks it. A node that goes on after its hold starts
a run that another has started meanwhile (``ran-twice``). Without the look, a node that comes a
moment after the release would start it again under any lock.
"""

from __future__ import annotations

from declarations.parameters import Parameter
from workloads.base import LOAD, Job, Options, Workload
from workloads.resource import Resource
from workloads.use import Use


class Cron(Job):
    """One node."""

    def __init__(self, options: Options) -> None:
        self._nodes = int(options["nodes"])

    def begin(self, resource: Resource, key: str) -> int:
        """The run that is due."""
        return resource.deliver(key, self._nodes)

    def work(self, use: Use) -> None:
        runs, started = use.read(use.thing)
        if started:
            return
        use.keep()
        use.effect(use.thing)
        use.write(runs, use.thing)

    def end(self, resource: Resource, key: str, thing: int, *, done: bool) -> None:
        """Who did not get the lock asks again for the same run."""
        if not done:
            resource.hand_back(key, thing)


WORKLOAD = Workload(
    name="cron",
    summary="every node tries to start the run that is due; it must start once",
    job=Cron,
    verdicts=("stale-holder", "lost-update", "ran-twice"),
    parameters={**LOAD, "nodes": Parameter("how many want to start each run", 4, least=1)},
    describes=lambda _: {"job": "cron"},
    kinds=("mutex", "reentrant", "read-write"),
)
