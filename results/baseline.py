"""Each lock before any fault, over all cases of a run.

The time before the first fault is the same experiment in every case of a lock on one cluster under
one workload, so its operations may be taken together; that carries quantiles that a single case
does not. During and after a fault nothing is ever pooled. Cases whose numbers are void, and the
published experiment, stay out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from lockbench.history.columns import Ints
from lockbench.results.cases import (
    MUTEX,
    PHASES,
    ceiling_per_s,
    cells_of,
    has_numbers,
    is_published,
)
from lockbench.results.documents import CaseResult, PooledKinds, Quantiles, Spread, UndisturbedLock
from lockbench.results.quantiles import quantiles, spread

LOOPBACK: Final = "loopback"  # the network that is usual
KINDS: Final = ("acquire", "handover", "wait")
# A figure of fewer cases is void: it shows no range.
CASES_MIN: Final = 3


class Baselines:
    """Gathers a run's cases one after the other."""

    def __init__(self) -> None:
        self._found: list[tuple[CaseResult, Mapping[str, Ints]]] = []

    def add(self, case: CaseResult, samples_ns: Mapping[str, Ints]) -> None:
        """``samples_ns`` is from ``lockbench.results.numbers.before``: kind → nanoseconds."""
        self._found.append((case, samples_ns))

    def locks(self) -> tuple[UndisturbedLock, ...]:
        """One for each row (``names_of``), in the order in which they came."""
        rows: dict[str, list[tuple[CaseResult, Mapping[str, Ints]]]] = defaultdict(list)
        names = names_of([case for case, _ in self._found])
        for name, found in zip(names, self._found, strict=True):
            rows[name].append(found)
        return tuple(_pooled(name, found) for name, found in rows.items())


def _pooled(lock: str, found: Sequence[tuple[CaseResult, Mapping[str, Ints]]]) -> UndisturbedLock:
    cases = [case for case, _ in found]
    took_ns = {
        kind: np.concatenate([samples_ns[kind] for _, samples_ns in found]) for kind in found[0][1]
    }
    rates = [(case.cycles_per_second_by_phase or {}).get("before") for case in cases]
    floors = [
        (floor.acquire_ms_p50, floor.cpu_us_per_cycle)
        for case in cases
        if (floor := case.floor)
        and floor.acquire_ms_p50 is not None
        and floor.cpu_us_per_cycle is not None
    ]
    return UndisturbedLock(
        lock=lock,
        cases=len(cases),
        latency_ms=PooledKinds(**{kind: quantiles(took_ns[kind], 1e6) for kind in KINDS}),
        response_ms=_response(took_ns, "acquire"),
        wait_response_ms=_response(took_ns, "wait"),
        cycles_per_second=spread(rate for rate in rates if rate is not None),
        floor_acquire_ms_p50=spread(ms for ms, _ in floors),
        floor_cpu_us_per_cycle=spread(us for _, us in floors),
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


def _cases_of(cases: Sequence[CaseResult], row: str) -> list[CaseResult]:
    pooled = [case for case in cases if has_numbers(case) and not is_published(case)]
    return [case for case, name in zip(pooled, names_of(pooled), strict=True) if name == row]


def names_of(cases: Sequence[CaseResult]) -> list[str]:
    """The row of each of the cases that are pooled: the lock; its topology and size where these
    cases have several of it; the workload and the network where they are not the plain ones."""
    topologies: dict[str, set[str | None]] = defaultdict(set)
    sizes: dict[tuple[str, str | None], set[int | None]] = defaultdict(set)
    for case in cases:
        topologies[case.lock].add(case.topology)
        sizes[case.lock, case.topology].add(case.size)
    names = []
    for case in cases:
        workload, network = case.workload or MUTEX, case.network or LOOPBACK
        words = [
            str(case.topology) if len(topologies[case.lock]) > 1 else "",
            f"{case.size} nodes" if len(sizes[case.lock, case.topology]) > 1 else "",
            workload if workload != MUTEX else "",
            network if network != LOOPBACK else "",
        ]
        names.append(", ".join([case.lock, *filter(None, words)]))
    return names


def _response(took_ns: Mapping[str, Ints], kind: str) -> Quantiles:
    granted_ns, given_up_ns = took_ns[f"{kind}_response"], took_ns[f"{kind}_given_up"]
    given_up = np.arange(len(granted_ns) + len(given_up_ns)) >= len(granted_ns)
    return quantiles(np.concatenate([granted_ns, given_up_ns]), 1e6, given_up)
