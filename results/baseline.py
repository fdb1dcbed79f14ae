"""Each lock before any fault, over all cases of a run.

The time before the first fault is the same experiment in every case of a lock under one workload,
so its operations may be taken together; that carries quantiles that a single case does not. During
and after a fault nothing is ever pooled. Cases whose numbers are void, and the published
experiment, stay out.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from history.columns import Ints
from results.cases import MUTEX
from results.documents import CaseResult, PooledKinds, Spread, UndisturbedLock
from results.quantiles import quantiles

KINDS: Final = ("acquire", "handover", "wait")


@dataclass
class Baselines:
    """Gathers a run's cases one after the other."""

    _samples_ns: dict[str, dict[str, list[Ints]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    _rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _floors: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: CaseResult, samples_ns: Mapping[str, Ints]) -> None:
        """``samples_ns`` is from ``results.numbers.before``: kind → nanoseconds."""
        lock, workload = case.lock, case.workload or MUTEX
        if workload != MUTEX:
            lock = f"{lock}, {workload}"
        for kind in KINDS:
            self._samples_ns[lock][kind].append(samples_ns[kind])
        rate = (case.cycles_per_second_by_phase or {}).get("before")
        if rate is not None:
            self._rates[lock].append(rate)
        floor = case.floor
        if floor and floor.acquire_ms_p50 is not None and floor.cpu_us_per_cycle is not None:
            self._floors[lock].append((floor.acquire_ms_p50, floor.cpu_us_per_cycle))

    def locks(self) -> tuple[UndisturbedLock, ...]:
        """One for each lock, in the order in which they came."""
        return tuple(
            UndisturbedLock(
                lock=lock,
                cases=len(kinds["acquire"]),
                latency_ms=PooledKinds(
                    **{kind: quantiles(np.concatenate(of), 1e6) for kind, of in kinds.items()}
                ),
                cycles_per_second=_spread(self._rates[lock]),
                floor_acquire_ms_p50=_spread([ms for ms, _ in self._floors[lock]]),
                floor_cpu_us_per_cycle=_spread([us for _, us in self._floors[lock]]),
            )
            for lock, kinds in self._samples_ns.items()
        )


def _spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(count=0)
    return Spread(len(values), statistics.median(values), min(values), max(values))
