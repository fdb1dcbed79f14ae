"""``read-write``: a share of the cycles only reads. A lock that can be shared lets readers in
together; any other one is held alone by readers too, so that both can be compared."""

from __future__ import annotations

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import LOAD, Options, Workload
from lockbench.workloads.jobs.mutex import Mutex


class ReadWrite(Mutex):
    """Reads, or reads and writes."""

    reads_anyway = True

    def __init__(self, options: Options) -> None:
        self.reads_share = float(options["reads"])


WORKLOAD = Workload(
    name="read-write",
    summary="some of the cycles only read",
    job=ReadWrite,
    verdicts=("stale-holder", "lost-update"),
    parameters={
        **LOAD,
        "reads": Parameter("share of the cycles that only read", 0.9, least=0, most=1),
    },
    kinds=("mutex", "reentrant", "read-write"),
)
