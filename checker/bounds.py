"""How far a machine's clock is from that of the resource: bounds from the history's own stamps.

Every operation of the guarded resource is a probe of the clock (Cristian, "Probabilistic clock
synchronization", Distributed Computing 3, 1989, without his assumption that both ways take the same
time). The resource applied it between the client's invocation and completion. So, with *offset* as
what a local time needs to be the resource's,

    applied - complete <= offset <= applied - invoke

whatever the link did. The offset at the moment of application is the one that is bounded: at the
completion it is at least the first, at the invocation at most the second. At any other time the
bound is looser by as much as a clock may run wrong since: 500 ppm, which is what ``adjtime`` and
NTP's discipline allow. A constant offset is not assumed.

Bounds that contradict each other show a clock that ran wrong by more: it jumped, or the machine was
suspended. Then nothing is known (``Bounds.contradiction_ns``).

All times are nanoseconds, all arithmetic is exact; lower bounds are rounded down, upper ones up.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from lockbench.checker.rows import Rows
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type

PER_DRIFT: Final = 2000  # a clock runs wrong by 1 in so many at most: 500 ppm
ANY_NS: Final = 2**61  # beyond every offset: the time since 1970 is half of it
FAR_NS: Final = 2**50  # a bound worse than the best by so much, 13 days, counts as this much worse
SPAN_NS: Final = FAR_NS * PER_DRIFT  # and times further apart, 71 years, as this far
PROBES: Final = (F.READ, F.WRITE, F.CAS, F.ADD, F.EFFECT)


@dataclass(frozen=True)
class _Least:
    """The best of many lower bounds, each of which holds at its time ``at_ns`` and is looser by 1
    ns for each ``PER_DRIFT`` ns from there: a running maximum in either direction of time."""

    at_ns: Ints
    best: int
    before: Ints
    after: Ints

    @staticmethod
    def of(at_ns: Ints, least: Ints) -> _Least:
        order = np.argsort(at_ns, kind="stable")
        at, best = at_ns[order], int(least.max())
        # Relative to the best, so that numbers stay small enough to be multiplied.
        worse = np.maximum(least[order] - best, -FAR_NS) * PER_DRIFT
        since = np.minimum(at - at[0], SPAN_NS)
        after = np.maximum.accumulate((worse - since)[::-1])[::-1]
        return _Least(at, best, np.maximum.accumulate(worse + since), after)

    def at(self, times_ns: Ints) -> Ints:
        since = _between(times_ns - self.at_ns[0], -SPAN_NS, SPAN_NS)
        place = np.searchsorted(self.at_ns, times_ns, side="right")
        last = len(self.at_ns) - 1
        nothing = np.int64(-ANY_NS * 2)
        before = np.where(place > 0, self.before[np.maximum(place - 1, 0)] - since, nothing)
        after = np.where(place <= last, self.after[np.minimum(place, last)] + since, nothing)
        return self.best + np.maximum(before, after) // PER_DRIFT


@dataclass(frozen=True)
class Bounds:
    """Between what the offset of one machine's clock lies. ``stated_ns``: it is at most so large,
    as somebody said; ``ANY_NS`` where nobody did. Without probes that is all that is known.

    ``contradiction_ns`` is the first local time at which no offset is possible, None without one;
    ``probed_ns`` are the times at which the bounds are as close as they come, in order.
    """

    stated_ns: int
    probed_ns: Ints
    contradiction_ns: int | None
    _low: _Least | None
    _high: _Least | None

    @staticmethod
    def of(history: History, rows: Rows, stated_ns: int = ANY_NS) -> Bounds:
        """From the operations ``rows`` of one machine, with its local times."""
        row = rows[np.isin(history.f[rows], PROBES) & (history.type[rows] == Type.OK)]
        row = row[history.applied_ns[row] != NULL]
        if len(row) == 0:
            return Bounds(stated_ns, np.empty(0, np.int64), None, None, None)
        invoke, complete = history.invoke_ns[row], history.complete_ns[row]
        applied = history.applied_ns[row]
        low = _Least.of(complete, applied - complete)
        high = _Least.of(invoke, invoke - applied)
        # Between probes the bounds only part: looking at the probes is enough.
        at = np.unique(np.concatenate([invoke, complete]))
        bounds = Bounds(stated_ns, at, None, low, high)
        wrong = at[bounds.low(at) > bounds.high(at)]
        return replace(bounds, contradiction_ns=int(wrong[0]) if len(wrong) else None)

    def low(self, times_ns: Ints) -> Ints:
        """The least that the offset can be at these local times."""
        if self._low is None:
            return np.full(len(times_ns), -self.stated_ns, np.int64)
        return _between(self._low.at(times_ns), -self.stated_ns, ANY_NS)

    def high(self, times_ns: Ints) -> Ints:
        """The most that it can be."""
        if self._high is None:
            return np.full(len(times_ns), self.stated_ns, np.int64)
        return _between(-self._high.at(times_ns), -ANY_NS, self.stated_ns)

    def middle(self, times_ns: Ints) -> Ints:
        """An offset in the middle of the bounds. It keeps times in order."""
        low, high = self.low(times_ns), self.high(times_ns)
        return low + (high - low) // 2

    def half_width(self, times_ns: Ints) -> Ints:
        """By how much the middle can be wrong, rounded up."""
        return self.high(times_ns) - self.middle(times_ns)


def _between(numbers: Ints, least: int, most: int) -> Ints:
    """``np.clip`` looks up the limits of types at every call, which a thousand machines feel."""
    limited: Ints = np.minimum(np.maximum(numbers, least), most)
    return limited
