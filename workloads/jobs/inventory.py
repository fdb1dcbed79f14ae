"""``inventory``: units of a stock are sold, each to one buyer, and never more than there are.

A sale reads how many are left, takes its time (the buyer pays), and writes one less: the unit sold
is the one that had been read as the next. Two sales that read the same stock sell the same unit
twice, which is what the lock is for (``oversold``).
"""

from __future__ import annotations

from lockbench.workloads.base import Job, Workload
from lockbench.workloads.use import Use


class Sale(Job):
    """Of one unit."""

    def work(self, use: Use) -> None:
        stock, _ = use.read()
        use.keep()
        use.write(stock)


WORKLOAD = Workload(
    name="inventory",
    summary="units of a stock are sold, each to one buyer",
    job=lambda _: Sale(),
    verdicts=("stale-holder", "lost-update", "oversold"),
    describes=lambda _: {"job": "inventory"},
    kinds=("mutex", "reentrant", "read-write", "none"),
)
