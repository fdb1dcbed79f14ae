"""What is compared: ways to judge the histories of several machines, from recorded stamps alone.

Each decides ``double-grant`` of one history and names the holds that it accuses. ``sound``: with
clocks that drift by no more than 500 ppm it accuses nobody wrongly; ``perf.clocks.run`` fails where
one does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import process_time
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.check import check
from lockbench.checker.clocks import Clocks, shifted
from lockbench.checker.exclusion import double_grant
from lockbench.checker.machines import SURE
from lockbench.checker.verdict import Verdict
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type

NAME: Final = "double-grant"
CLOCK_FILTER: Final = (
    8  # samples of which NTP takes the one with the shortest round trip (RFC 5905)
)


@dataclass(frozen=True)
class Judged:
    """``accused``: the holds that the evidence names."""

    result: str
    reason: str
    accused: frozenset[str]
    seconds: float  # of a processor


@dataclass(frozen=True)
class Method:
    """``judge`` gives a verdict and the history whose rows its evidence numbers."""

    name: str
    sound: bool
    judge: Callable[[History], tuple[Verdict, History]]

    def __call__(self, history: History) -> Judged:
        """A history is judged as if for the first time."""
        began = process_time()
        verdict, rows = self.judge(replace(history))
        seconds = process_time() - began
        accused = (
            rows.hold_name(int(rows.hold[int(str(item["row"]))]))
            for item in verdict.evidence
            if "row" in item
        )
        return Judged(verdict.result, verdict.reason, frozenset(accused), seconds)


def _on_one_clock(history: History) -> tuple[Verdict, History]:
    history = history.only(np.argsort(history.invoke_ns, kind="stable"))
    return check(history, only=(NAME,)).verdicts[NAME], history


def naive(history: History) -> tuple[Verdict, History]:
    """Times as they were recorded, as if by one clock."""
    return _on_one_clock(replace(history, machine=None, machines=()))


def midpoint(history: History) -> tuple[Verdict, History]:
    """Each clock set right as NTP does: halfway between the invocation and the completion of the
    quickest of the last eight operations of the resource, that is when it was applied."""
    assert history.machine is not None
    probe = (history.applied_ns != NULL) & (history.type == Type.OK)
    offsets: dict[int, tuple[Ints, Ints]] = {}
    for machine in range(len(history.machines)):
        rows = np.flatnonzero(probe & (history.machine == machine))
        rows = rows[np.argsort(history.complete_ns[rows], kind="stable")]
        begin, end = history.invoke_ns[rows], history.complete_ns[rows]
        offset = history.applied_ns[rows] - (begin + end) // 2
        before = np.arange(len(rows))[:, None] - np.arange(CLOCK_FILTER)[None, :]
        before = np.maximum(before, 0)
        best = np.argmin((end - begin)[before], axis=1) if len(rows) else np.empty(0, np.intp)
        offsets[machine] = end, offset[before[np.arange(len(rows)), best]]

    def at(machine: int, times_ns: Ints) -> Ints:
        known, offset = offsets.get(machine, (np.empty(0, np.int64),) * 2)
        if len(known) == 0:
            return np.zeros(len(times_ns), np.int64)
        return offset[np.maximum(np.searchsorted(known, times_ns, side="right") - 1, 0)]

    return _on_one_clock(shifted(history, at))


def scalar(history: History) -> tuple[Verdict, History]:
    """The middle of the bounds, and one ε for all: as wide as the widest."""
    clocks = Clocks.of(history)
    void = clocks.contradiction()
    if void is not None:
        return Verdict("unknown", void), history
    return _on_one_clock(clocks.curtailed)


def bounds(history: History) -> tuple[Verdict, History]:
    """What is certain of each promise, by the bounds of its own machine at that time."""
    clocks = Clocks.of(history)
    void = clocks.contradiction()
    if void is not None:
        return Verdict("unknown", void), history
    return _of_parts(clocks.placed, *clocks.certain)


def stamps(history: History) -> tuple[Verdict, History]:
    """No clock at all: from the first to the last time at which the resource applied something that
    was invoked and completed inside the promise."""
    local = Analysis.of(history)
    promises = local.promises
    number = {int(history.hold[row]): at for at, row in enumerate(promises.row.tolist())}
    first = np.full(len(promises), 2**62, np.int64)
    last = -first
    uses = (history.f == F.READ) & (history.type == Type.OK) & (history.hold != NULL)
    for row in np.flatnonzero(uses).tolist():
        at = number[int(history.hold[row])]
        inside = history.invoke_ns[row] >= promises.start[at]
        if inside and history.complete_ns[row] <= promises.end[at]:
            first[at] = min(first[at], history.applied_ns[row])
            last[at] = max(last[at], history.applied_ns[row])
    return _of_parts(history, first, last)


def _of_parts(history: History, first: Ints, last: Ints) -> tuple[Verdict, History]:
    """By these parts of the promises; unknown where too few have one."""
    analysis = Analysis.of(replace(history, machine=None, machines=()))
    parts = replace(analysis.promises, start=first, end=last)
    verdict = double_grant(replace(analysis, promises=parts))
    assert verdict is not None
    if verdict.result == "valid" and np.count_nonzero(first < last) < SURE * len(first):
        verdict = Verdict("unknown", "too few promises have a certain part")
    return verdict, history


def product(history: History) -> tuple[Verdict, History]:
    """As ``lockbench check`` does."""
    return check(history, only=(NAME,)).verdicts[NAME], Clocks.of(history).placed


METHODS: Final = (
    Method("naive merging", False, naive),
    Method("NTP midpoint", False, midpoint),
    Method("one ε for all", True, scalar),
    Method("stamps alone", True, stamps),
    Method("bounds", True, bounds),
    Method("lockbench", True, product),
)
