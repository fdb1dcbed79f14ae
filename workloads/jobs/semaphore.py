"""``semaphore``: never more inside than there are permits. Entering and leaving are effects, so
that who is inside is seen at the resource and not in the clients' belief (``over-capacity``). Any
other lock is a semaphore of one permit."""

from __future__ import annotations

from typing import Final

from lockbench.workloads.base import Job, Workload
from lockbench.workloads.use import Use

ENTER: Final = 1
LEAVE: Final = 2


class Visit(Job):
    """Of one client."""

    def work(self, use: Use) -> None:
        use.effect(ENTER)
        use.keep()
        use.effect(LEAVE)


WORKLOAD = Workload(
    name="semaphore",
    summary="never more clients inside than there are permits",
    job=lambda _: Visit(),
    verdicts=("over-capacity",),
    describes=lambda _: {"job": "gate"},
    shape={"keys": 1},
)
