"""``fairness``: one key, fast clients and slow ones. Every second client pauses for ``slow``
seconds after each cycle. Who is never served (``measurements.fairness``), and what each kind waits
(``measurements.jobs``), depends on how a lock queues."""

from __future__ import annotations

import time
from typing import Final

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import LOAD, Options, Workload
from lockbench.workloads.jobs.mutex import Mutex
from lockbench.workloads.resource import Resource

FAST: Final = 0
SLOW: Final = 1


class Paced(Mutex):
    """A read-modify-write of a client of one of two kinds."""

    def __init__(self, options: Options) -> None:
        self._pause_s = float(options["slow"])

    def begin(self, resource: Resource, key: str) -> int:
        """Its kind, so that it stands in the history."""
        return SLOW if self.is_second else FAST

    def end(self, resource: Resource, key: str, thing: int, *, done: bool) -> None:
        """The pause of a slow one."""
        if thing == SLOW and key.startswith("k"):
            time.sleep(self._pause_s)


WORKLOAD = Workload(
    name="fairness",
    summary="fast and slow clients compete for one key",
    job=Paced,
    verdicts=("stale-holder", "lost-update"),
    parameters={**LOAD, "slow": Parameter("seconds that a slow client pauses", 0.05, least=0)},
    describes=lambda _: {"job": "fairness"},
    pace=lambda _: {"think_s": 0.0},
    shape={"keys": 1},
    kinds=("mutex", "reentrant", "read-write"),
    patient=True,
)
