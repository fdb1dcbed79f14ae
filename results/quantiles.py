"""Exact quantiles of measured values, and the rule for when a quantile may be shown.

Nearest rank: the quantile q of n values is the ceil(q·n)-th smallest. It is a value that was
measured. Interpolating between a fast operation and a hung one would print a latency that nobody
had, just where the two lie far apart.

A quantile is given only when at least ``BEYOND_MIN`` values lie beyond its rank: p50 needs 20
values, p99 1,000, p99.9 10,000. Fewer, and one more or one less outlier would move it at will.
The maximum is given always, beside the count: it is a fact and not an estimate.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from lockbench.results.documents import Quantiles, Spread, Statistic

BEYOND_MIN: Final = 10
SAME: Final = 1.05  # how far the bounds of a quantile may lie apart before it is told as a bound

P50: Final = 500
P99: Final = 990
P999: Final = 999
P25: Final = 250
P75: Final = 750


EMPTY: Final = Quantiles(count=0)


def rank(count: int, permille: int) -> int:
    """The nearest rank, counted from 1, in whole numbers so that 0.99 · 1,000 is 990 exactly."""
    return max(1, -(-count * permille // 1000))


def carries(count: int, permille: int) -> bool:
    """Whether ``count`` values carry this quantile. Below the median the near side is the left."""
    at = rank(count, permille)
    beyond = count - at if permille >= P50 else at - 1
    return beyond >= BEYOND_MIN


def needed(permille: int) -> int:
    """The smallest count that carries a quantile at or above the median."""
    return -(-BEYOND_MIN * 1000 // (1000 - permille))


def quantiles(
    values: NDArray[Any], per_unit: float = 1.0, given_up: NDArray[np.bool_] | None = None
) -> Quantiles:
    """Summarises ``values / per_unit``; nanoseconds with ``per_unit=1e6`` give milliseconds.

    ``given_up``: which values are right-censored, as the time after which an operation that did not
    succeed was given up. A quantile lies between that of these times and that of times without end.
    It is the upper of the two where they differ by at most ``SAME``, else the lower, and a lower
    bound (``above``). The maximum is one where it was given up."""
    count = len(values)
    if count == 0:
        return EMPTY
    wanted = [q for q in (P25, P50, P75, P99, P999) if carries(count, q)]
    # Partition orders only what is asked for: linear where a sort is not.
    ranks = {q: rank(count, q) - 1 for q in wanted}
    parted = np.partition(values, sorted({*ranks.values(), count - 1}))
    found = {q: float(parted[at]) / per_unit for q, at in ranks.items()}
    bounds = set()
    if ranks and given_up is not None and given_up.any():
        highest = np.partition(np.where(given_up, np.inf, values), sorted(ranks.values()))
        for q, at in ranks.items():
            high = float(highest[at]) / per_unit
            if high <= found[q] * SAME:
                found[q] = high
            else:
                bounds.add(q)
    # Of a lower bound the difference is none.
    known = found.keys() - bounds
    spread = found[P75] - found[P25] if {P25, P75} <= known else None
    most = float(parted[-1]) / per_unit
    named: tuple[tuple[Statistic, bool], ...] = (
        ("p50", P50 in bounds),
        ("p99", P99 in bounds),
        ("p999", P999 in bounds),
        ("max", given_up is not None and bool(np.any(values[given_up] >= parted[-1]))),
    )
    return Quantiles(
        above=tuple(name for name, is_bound in named if is_bound),
        p50=found.get(P50),
        p99=found.get(P99),
        p999=found.get(P999),
        max=most,
        count=count,
        iqr=spread,
    )


def spread(values: Iterable[float]) -> Spread:
    """Median, smallest and largest of some values; no numbers where there is none."""
    known = list(values)
    if not known:
        return Spread(count=0)
    return Spread(len(known), statistics.median(known), min(known), max(known))
