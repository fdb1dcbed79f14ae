"""Each lock before any fault, over all cases of a run.

The time before the first fault is the same experiment in every case of a lock under one workload,
so its operations may be taken together; that carries quantiles that a single case does not. During
and after a fault nothing is ever pooled. Cases whose numbers are void, and the published
experiment, stay out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from history.columns import Ints
from results.cases import MUTEX, PHASES, ceiling_per_s, cells_of, has_numbers, is_published
from results.documents import CaseResult, PooledKinds, Quantiles, Spread, UndisturbedLock
from results.quantiles import quantiles, spread

KINDS: Final = ("acquire", "handover", "wait")
# A figure of fewer cases is void: it shows no range.
CASES_MIN: Final = 3


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
        lock = name_of(case)
        for kind, took_ns in samples_ns.items():
            self._samples_ns[lock][kind].append(took_ns)
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
                    **{k: quantiles(np.concatenate(kinds[k]), 1e6) for k in KINDS}
                ),
                response_ms=_response(
                    *(np.concatenate(kinds[k]) for k in ("response", "given_up"))
                ),
                cycles_per_second=spread(self._rates[lock]),
                floor_acquire_ms_p50=spread([ms for ms, _ in self._floors[lock]]),
                floor_cpu_us_per_cycle=spread([us for _, us in self._floors[lock]]),
            )
            for lock, kinds in self._samples_ns.items()
        )


def of_cases(cases: Sequence[CaseResult], lock: str) -> dict[str, Spread]:
    """Kind (``cells_of``) → the medians before any fault of all cases of a row, where there are
    several: those whose numbers are valid."""
    found: dict[str, list[float]] = defaultdict(list)
    for case in _cases_of(cases, lock):
        for kind, cell in cells_of(case, PHASES[0]).items():
            if cell is not None and cell.p50 is not None:
                found[kind].append(cell.p50)
    return {kind: spread(values) for kind, values in found.items() if len(values) > 1}


def ceiling_of(cases: Sequence[CaseResult], lock: str) -> float | None:
    """``ceiling_per_s`` of all cases of a row; None where they differ."""
    found = {ceiling_per_s(case) for case in _cases_of(cases, lock)}
    return found.pop() if len(found) == 1 else None


def _cases_of(cases: Sequence[CaseResult], lock: str) -> list[CaseResult]:
    return [
        case
        for case in cases
        if name_of(case) == lock and has_numbers(case) and not is_published(case)
    ]


def name_of(case: CaseResult) -> str:
    """The lock, and the workload where it is not the plain one: another experiment."""
    workload = case.workload or MUTEX
    return case.lock if workload == MUTEX else f"{case.lock}, {workload}"


def _response(granted_ns: Ints, given_up_ns: Ints) -> Quantiles:
    given_up = np.arange(len(granted_ns) + len(given_up_ns)) >= len(granted_ns)
    return quantiles(np.concatenate([granted_ns, given_up_ns]), 1e6, given_up)
