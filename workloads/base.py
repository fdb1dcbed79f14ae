"""The contract of a workload: what clients do with a lock, and what must come of it.

A workload is one file in ``workloads/jobs``: a ``Job`` and its declaration ``WORKLOAD``. Any lock
can be run under it. The phases, the solo clients, the rivals and the victim are the same for all of
them (``lockbench.workloads.users``), so that every fault finds what it is aimed at; a workload says
what a client does while it holds the lock.

What a verdict needs stands in the history: the job of every key (``describes``), and the reads,
writes and effects that were done (``lockbench.checker.jobs`` judges them; it knows nothing of this
package).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lockbench.declarations.parameters import Parameter, Value
from lockbench.history.guarded import Rule
from lockbench.history.op import NULL

if TYPE_CHECKING:
    from lockbench.workloads.resource import Resource
    from lockbench.workloads.use import Use

Options = Mapping[str, Value]


# A machine serves some thousands; far more than that would only fill the memory of those who count
# what arrives.
RATE_MAX: Final = 100_000

REGISTER: Final[tuple[Rule, ...]] = ("any", "newer", "unchanged", "held")
LEDGER: Final[tuple[Rule, ...]] = ("once",)

# How clients come and where they go; most workloads have these.
LOAD: Final[Mapping[str, Parameter]] = {
    "rate": Parameter(
        "jobs that arrive per second (open load); 0: closed load",
        0,
        least=0,
        most=RATE_MAX,
    ),
    "arrivals": Parameter("how jobs arrive", "poisson", ("poisson", "constant")),
    "hold": Parameter("how long holds last", "fixed", ("fixed", "exponential", "heavy")),
    "spread": Parameter("which key a client asks for", "even", ("even", "uniform", "zipf")),
}


class Job:
    """What one client does under a lock, again and again. One object per client; it may keep state
    of its own between two cycles. ``reads_share`` is that of the cycles that only read, where the
    lock can be shared, or everywhere (``reads_anyway``). ``number`` is the client's among those of
    its kind; it is given to the job before its first cycle."""

    reads_share = 0.0
    reads_anyway = False
    number = 0

    @property
    def is_second(self) -> bool:
        """Whether it is one of the second half of the clients: half of each of two workers."""
        return (self.number + self.number // 2) % 2 == 1

    def begin(self, resource: Resource, key: str) -> int:
        """Before the lock is asked for: the number of the thing to be done, NULL if it has none."""
        return NULL

    def first(self, key: str) -> str:
        """The key that is asked for first, where the work needs several."""
        return key

    def work(self, use: Use) -> bool | None:
        """Under the lock. Calls ``use.keep`` once, where the time of a hold is to be spent: there a
        fault strikes the victim. False: it could not be done."""
        raise NotImplementedError

    def end(self, resource: Resource, key: str, thing: int, *, done: bool) -> None:
        """Afterwards, whether or not it was done."""


def nothing(_: Options) -> Mapping[str, object]:
    """Nothing more is said of the keys."""
    return {}


@dataclass(frozen=True)
class Workload:
    """The declaration. ``verdicts`` are those that its histories must reach beside the ones about
    the lock alone; ``describes`` says of its keys what the verdicts need (fields of
    ``lockbench.history.op.Object``); ``pace`` and ``shape`` change the usual load
    (``lockbench.workloads.load.Pace``; ``clients`` and ``keys``). ``timed``: every job is recorded
    as a whole, beside its operations. ``leases``: how many leases a hold lasts at least;
    ``outlasts``: the work may last longer than its lease, so its holder may come too late without
    any fault. ``patient``: so many wait that some may wait all the time. ``storable``: the
    rules of the stores that can stand in place of the resource: of a register (``REGISTER``) where
    it reads once and writes once under a hold and does nothing else; of a ledger (``LEDGER``) where
    it looks whether a numbered thing was done, and does it.
    """

    name: str
    summary: str
    job: Callable[[Options], Job]
    verdicts: tuple[str, ...]
    parameters: Mapping[str, Parameter] = field(default_factory=lambda: LOAD)
    describes: Callable[[Options], Mapping[str, object]] = nothing
    pace: Callable[[Options], Mapping[str, float]] = lambda _: {}
    shape: Mapping[str, int] = field(default_factory=dict)
    kinds: tuple[str, ...] = ("mutex", "reentrant", "read-write", "semaphore")
    timed: bool = True
    leases: Callable[[Options], float] = lambda _: 0.0
    outlasts: Callable[[Options], bool] = lambda _: False
    patient: bool = False
    faulted: bool = True
    storable: tuple[Rule, ...] = ()
