"""``two-locks``: work that needs two keys at once.

With ``order=kept`` everybody takes the lower key first and nobody can wait in a circle. With
``order=mixed`` every second client takes the upper one first: two that hold one key each and wait
for the other's are deadlocked until a wait or a lease is over (``measurements.jobs`` counts them
and says how they ended). A lease that ends so is granted to the other while its holder still waits,
and what that one does afterwards is stale.
"""

from __future__ import annotations

from typing import Final

from lockbench.declarations.parameters import Parameter
from lockbench.workloads.base import Job, Options, Workload
from lockbench.workloads.use import Use

MIXED: Final = "mixed"


class TwoLocks(Job):
    """A read-modify-write of two registers."""

    def __init__(self, options: Options) -> None:
        self._mixed = options["order"] == MIXED

    def work(self, use: Use) -> bool | None:
        second = self._second(use)
        if second is None:
            version, _ = use.read()
            use.keep()
            use.write(version)
            return None
        other = use.also(second)
        if other is None:
            return False
        versions = [(held, held.read()[0]) for held in (use, other)]
        use.keep()
        for held, version in versions:
            held.write(version)
        other.give_back()
        return None

    def _second(self, use: Use) -> str | None:
        """The other key of a pair of shared ones; the keys of the nemesis are taken alone."""
        key = use.granted.hold.key
        return {"k0": "k1", "k1": "k0"}.get(key)

    def first(self, key: str) -> str:
        """Which of the pair is asked for first."""
        if key not in {"k0", "k1"}:
            return key
        return "k1" if self._mixed and self.is_second else "k0"


WORKLOAD = Workload(
    name="two-locks",
    summary="work that needs two keys: their order, and how deadlocks end",
    job=TwoLocks,
    verdicts=("stale-holder", "lost-update"),
    parameters={
        "order": Parameter("whether all take the lower key first", "kept", ("kept", MIXED)),
    },
    describes=lambda _: {"job": "two-locks"},
    shape={"keys": 2},
    kinds=("mutex",),
    outlasts=lambda options: options["order"] == MIXED,
    patient=True,
)
