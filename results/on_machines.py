"""Figures of each machine, and what may be compared between the clocks of two.

A latency begins and ends on one machine, so every clock is as good. A hand-over may begin on one
and end on another. Those between machines count only where all clocks agree to a tenth of the
median of them; otherwise hand-overs are those within a machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockbench.checker.clocks import Clocks
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import F, Type
from lockbench.results import documents
from lockbench.results.quantiles import quantiles

AGREE_SHARE = 0.1
NS_PER_MS = 1e6
HERE = "here"

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Placed:
    """A history on the clock of the resource, and the machine of each row; None: there is one.
    ``agree_ns``: two clocks agree at least to this, in the median of each."""

    history: History
    machine: Ids | None = None
    agree_ns: int = 0

    @staticmethod
    def of(history: History) -> Placed:
        if history.machine is None:
            return Placed(history)
        clocks = Clocks.of(history)
        agree = [_agree_ns(clocks, number) for number in range(-1, len(history.machines))]
        return Placed(clocks.placed, clocks.machine, 2 * max(agree))

    def comparable(self, took_ns: Ints, between: Mask) -> bool:
        """Whether durations that began on one machine and ended on another say something."""
        if not np.any(between):
            return True
        return self.agree_ns <= AGREE_SHARE * float(np.median(took_ns[between]))


def _agree_ns(clocks: Clocks, machine: int) -> int:
    """By how much one clock may be wrong, in the median over its operations."""
    at = clocks.recorded.invoke_ns[clocks.machine == machine]
    if machine < 0 or len(at) == 0:
        return 0
    return int(np.median(clocks.bounds[machine].half_width(at)))


def on_machines(recorded: History) -> Iterator[documents.OnMachine]:
    """What clients did on each machine."""
    if recorded.machine is None:
        return
    clocks = Clocks.of(recorded)
    history = clocks.placed
    granted = (history.f == F.ACQUIRE) & (history.type == Type.OK)
    own = history.has_role("own")
    took = history.complete_ns - history.invoke_ns
    for number, name in enumerate((HERE, *recorded.machines), -1):
        mine = clocks.machine == number
        yield documents.OnMachine(
            name=name,
            operations=int(np.count_nonzero(mine)),
            grants=int(np.count_nonzero(mine & granted)),
            acquire_ms=quantiles(took[mine & granted & own], NS_PER_MS),
            agree_to_ns=_agree_ns(clocks, number) if number >= 0 else None,
            came_back=name not in recorded.missing,
        )
