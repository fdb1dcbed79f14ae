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
from typing import Any, Final

import numpy as np
import pandas as pd

from history.columns import Ints
from results import wording
from results.quantiles import quantiles

MUTEX: Final = "mutex"  # the workload that goes without saying
KINDS: Final = ("acquire", "handover", "wait")
HEADINGS: Final = (
    "lock",
    "acquire, own key",
    "hand-over",
    "wait",
    "n of each",
    "cycles/s (range)",
    "client floor",
)
CAPTION: Final = (
    "All cases of a lock together, up to the first fault; service time from the invocation, ms, "
    "p50 / p99 (from the intended start: the table of every case). Cycles per second of the "
    "clients that contend: median over cases and range. Client floor: one client alone, acquire "
    "p50, and CPU of its own process per cycle."
)


@dataclass
class Undisturbed:
    """Gathers a run's cases one after the other."""

    _samples_ns: dict[str, dict[str, list[Ints]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    _rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _floors: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))

    def add(self, case: Mapping[str, Any], samples_ns: Mapping[str, Ints]) -> None:
        """``samples_ns`` is from ``results.numbers.before``: kind → nanoseconds."""
        lock, workload = str(case["lock"]), str(case.get("workload", MUTEX))
        if workload != MUTEX:
            lock = f"{lock}, {workload}"
        for kind in KINDS:
            self._samples_ns[lock][kind].append(samples_ns[kind])
        rate = case.get("cycles_per_second_by_phase", {}).get("before")
        if rate is not None:
            self._rates[lock].append(rate)
        floor = case.get("floor", {})
        if floor.get("acquire_ms_p50") is not None:
            self._floors[lock].append((floor["acquire_ms_p50"], floor["cpu_us_per_cycle"]))

    def to_json(self) -> list[dict[str, Any]]:
        """One object per lock, in the order in which they came."""
        return [
            {
                "lock": lock,
                "cases": len(kinds["acquire"]),
                "latency_ms": {
                    kind: quantiles(np.concatenate(parts), 1e6).to_json()
                    for kind, parts in kinds.items()
                },
                "cycles_per_second": _spread(self._rates[lock]),
                "floor_acquire_ms_p50": _spread([ms for ms, _ in self._floors[lock]]),
                "floor_cpu_us_per_cycle": _spread([us for _, us in self._floors[lock]]),
            }
            for lock, kinds in self._samples_ns.items()
        ]


def undisturbed_grid(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame | None:
    """The table of ``Undisturbed.to_json``; None when there is nothing to show."""
    return pd.DataFrame([_row(row) for row in rows], columns=list(HEADINGS)) if rows else None


def _row(row: Mapping[str, Any]) -> list[str]:
    cells = [str(row["lock"])]
    kinds = [row["latency_ms"][kind] for kind in KINDS]
    cells += [wording.pair(found["p50"], found["p99"]) for found in kinds]
    cells.append(" · ".join(f"{found['count']:,}" for found in kinds))
    rate, ms, us = (
        row[name]
        for name in ("cycles_per_second", "floor_acquire_ms_p50", "floor_cpu_us_per_cycle")
    )
    low, middle, high = (wording.rate(rate[name]) for name in ("min", "median", "max"))
    cells.append(f"{middle} ({low} to {high})")
    cells.append(f"{wording.ms(ms['median'])} ms, CPU {wording.micros(us['median'])}")
    return cells


def _spread(values: Sequence[float]) -> dict[str, float | int | None]:
    if not values:
        return {"median": None, "min": None, "max": None, "count": 0}
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "count": len(values),
    }
