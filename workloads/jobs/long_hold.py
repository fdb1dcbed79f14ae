"""``long-hold``: the work lasts ``times`` as long as the lease.

With ``renew=yes`` the holder extends its hold three times a lease, where the lock has an extend.
Locks that renew by themselves do so anyway. Without renewal a lease that runs out is granted to the
next one while its holder still works: what it writes then is stale, and no fault is needed for it.
"""

from __future__ import annotations

import time
from typing import Final

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import REGISTER, Job, Options, Workload
from lockbench.workloads.use import Use

STEPS_A_LEASE: Final = 3
YES: Final = "yes"


class LongHold(Job):
    """A read-modify-write that takes its time."""

    def __init__(self, options: Options) -> None:
        self._steps = max(1, round(float(options["times"]) * STEPS_A_LEASE))
        self._renews = options["renew"] == YES

    def work(self, use: Use) -> None:
        version, _ = use.read()
        use.keep()
        for _ in range(self._steps):
            time.sleep(use.lease_s / STEPS_A_LEASE)
            if self._renews:
                use.extend()
        use.write(version)


WORKLOAD = Workload(
    name="long-hold",
    summary="work that lasts longer than the lease, with and without renewal",
    job=LongHold,
    verdicts=("stale-holder", "lost-update"),
    parameters={
        "times": Parameter("how many leases the work lasts", 1.4, least=0),
        "renew": Parameter("whether its holder extends it", "no", ("no", YES)),
    },
    pace=lambda _: {"wait_s": 20.0},
    shape={"clients": 4},
    kinds=("mutex", "reentrant", "read-write"),
    leases=lambda options: float(options["times"]),
    outlasts=lambda _: True,
    patient=True,
    storable=REGISTER,
)
