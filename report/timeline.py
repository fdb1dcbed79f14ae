"""Thins a history over time, so that a chart of any run stays small and hides nothing.

Operations are put into bins of equal width by when they were due to start (the intended start, else
the invocation). A bin keeps how many there were, the smallest and the largest latency and those
quantiles that its n carries: an outlier is the maximum of its bin and is never dropped. Latencies
run from the intended start. Unknown outcomes have no end and so no latency; they are counted.

Only acquires are taken, on the keys that clients own and on those they contend for: neither the
keys of one client alone nor the holds that serve the nemesis are load. Where stated rates follow,
the time ends with their beginning: they have figures of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type
from lockbench.results.quantiles import carries, quantiles, rank

BINS_MAX: Final = 60
FOREVER_NS: Final = 2**63 - 1
NS_PER_S: Final = 1e9
NS_PER_MS: Final = 1e6
P90: Final = 900
ROLES: Final = ("own", "contended")
OUTCOMES: Final = {"granted": Type.OK, "refused": Type.FAIL, "unknown": Type.INFO}
COLUMNS: Final = (
    "role", "outcome", "begin_s", "end_s", "count", "min_ms", "p50_ms", "p90_ms", "p99_ms",
    "max_ms",
)  # fmt: skip
# A narrower bin carries hardly a quantile.
BIN_S_MIN: Final = 1.0


@dataclass(frozen=True, slots=True)
class Shade:
    """A fault on the axis of time, seconds; ``heal_s`` is None where it never ended."""

    name: str
    targets: tuple[str, ...]
    begin_s: float
    heal_s: float | None

    def within(self, end_s: float) -> tuple[float, float]:
        """(begin, end) of what lies on an axis that ends there."""
        healed_s = end_s if self.heal_s is None else min(self.heal_s, end_s)
        return max(0.0, self.begin_s), healed_s


@dataclass(frozen=True, eq=False)
class Timeline:
    """``bins`` has ``COLUMNS``, empty bins left out; ``fine`` the same in narrower bins. Times are
    seconds since the first operation of the history."""

    end_s: float
    bin_s: float
    fine_s: float
    bins: pd.DataFrame
    fine: pd.DataFrame
    shades: tuple[Shade, ...]


def timeline(history: History) -> Timeline | None:
    """None where nothing was recorded."""
    if len(history) == 0:
        return None
    origin = int(history.invoke_ns[0])
    done = history.complete_ns[history.complete_ns != NULL]
    last_ns = max(int(history.invoke_ns[-1]), int(done.max()) if len(done) else 0)
    rates_ns = _start_ns(history)[history.has_role("rate")]
    end_ns = min(last_ns + 1, rates_ns.min(initial=FOREVER_NS)) - origin
    end_s = end_ns / NS_PER_S
    bin_s = max(BIN_S_MIN, end_s / BINS_MAX)
    fine_s = end_s / BINS_MAX
    return Timeline(
        end_s=end_s,
        bin_s=bin_s,
        fine_s=fine_s,
        bins=_frame(history, origin, end_s, bin_s),
        fine=_frame(history, origin, end_s, fine_s),
        shades=tuple(_shades(history, origin)),
    )


def _shades(history: History, origin: int) -> Iterator[Shade]:
    for fault in history.faults:
        yield Shade(
            name=fault.name,
            targets=fault.targets,
            begin_s=(fault.begin_ns[0] - origin) / NS_PER_S,
            heal_s=None if fault.heal_ns is None else (fault.heal_ns[1] - origin) / NS_PER_S,
        )


def _frame(history: History, origin: int, end_s: float, bin_s: float) -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    start = _start_ns(history)
    acquires = (history.f == F.ACQUIRE) & (start < origin + end_s * NS_PER_S)
    for name in ROLES:
        of_role = acquires & history.has_role(name)
        for outcome, type_ in OUTCOMES.items():
            picked = np.flatnonzero(of_role & (history.type == type_))
            took = history.complete_ns[picked] - start[picked] if type_ != Type.INFO else None
            at = np.maximum(start[picked] - origin, 0) / NS_PER_S
            what = {"role": name, "outcome": outcome}
            rows += [what | row for row in _bins(at, took, end_s, bin_s)]
    return pd.DataFrame(rows, columns=list(COLUMNS))


def _start_ns(history: History) -> Ints:
    paced = history.intended_ns != NULL
    found: Ints = np.where(paced, history.intended_ns, history.invoke_ns)
    return found


def _bins(
    at_s: np.ndarray, took_ns: Ints | None, end_s: float, bin_s: float
) -> Iterator[dict[str, Any]]:
    """Every bin that has an operation in it, in the order of time."""
    bin_of = (at_s / bin_s).astype(np.int64)
    order = np.argsort(bin_of, kind="stable")
    found, first = np.unique(bin_of[order], return_index=True)
    for number, rows in zip(found.tolist(), np.split(order, first[1:]), strict=len(found) > 0):
        cell: dict[str, Any] = {
            "begin_s": number * bin_s,
            "end_s": min((number + 1) * bin_s, end_s),
            "count": len(rows),
            "min_ms": None, "p50_ms": None, "p90_ms": None, "p99_ms": None, "max_ms": None,
        }  # fmt: skip
        if took_ns is not None:
            values = took_ns[rows]
            exact = quantiles(values, NS_PER_MS)
            cell |= {"min_ms": float(values.min()) / NS_PER_MS, "max_ms": exact.max}
            cell |= {"p50_ms": exact.p50, "p90_ms": _quantile(values, P90), "p99_ms": exact.p99}
        yield cell


def _quantile(values: Ints, permille: int) -> float | None:
    if not carries(len(values), permille):
        return None
    at = rank(len(values), permille) - 1
    return float(np.partition(values, at)[at]) / NS_PER_MS
