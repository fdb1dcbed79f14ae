"""``mutex``: acquire, read the guarded register, hold, write it on top of what was read, release.

The write does not check whether the hold is still good: whether a lock kept its word must show at
the resource, not in the care of its user. Half of the cycles of a lock that can be shared only
read; a semaphore guards no register, because its holders would overwrite each other as they should.
"""

from __future__ import annotations

from lockbench.workloads.base import REGISTER, Job, Workload
from lockbench.workloads.use import Use


class Mutex(Job):
    """A read-modify-write."""

    reads_share = 0.5

    def work(self, use: Use) -> None:
        if not use.guarded:
            use.keep()
            return
        version, _ = use.read()
        use.keep()
        if not use.reads:
            use.write(version)


WORKLOAD = Workload(
    name="mutex",
    summary="clients contend for a few keys: acquire, read-modify-write a register, release",
    job=lambda _: Mutex(),
    verdicts=("stale-holder", "lost-update"),
    timed=False,
    storable=REGISTER,
)
