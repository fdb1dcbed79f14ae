"""Holds of one key that cannot have been at once, in pairs, and what that says of two clocks.

Two holds p and q of one key, on the machines a and b, are in order if p ended before q began or the
other way round, on the clock of the resource. With x the offset of a less that of b, that is

    x <= begin of q - end of p        or        x >= end of q - begin of p

(local times on the right), so an open interval of x is forbidden. Offsets change with time, by 500
ppm at most each, so each alternative is loosened by the drift between its times and the time at
which the pair is looked at. An alternative is ruled out where the bounds of the clocks say so.

``swept`` sweeps the pairs of two machines in the order of time, with the set of x that is still
possible: it grows by the drift, is cut to the bounds, and loses what is forbidden. Where nothing is
left, no offsets explain the holds, whatever the other machines' clocks were. Otherwise one x for
each pair of holds is a way through, which says in which order they were.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Final

import numpy as np

from lockbench.checker.bounds import PER_DRIFT
from lockbench.checker.clocks import Clocks
from lockbench.checker.intervals import ByKey, up_to
from lockbench.checker.rows import FOREVER, Bools, Rows, by_key_and_time
from lockbench.history.columns import Ids, Ints

NEAR: Final = 64  # that many of those that begin next are looked at beside each hold, or
PAIRS_MAX: Final = 150_000  # fewer, so that there are about so many pairs in all
SPANS_MAX: Final = 32  # of what is still possible; beyond that the narrowest gaps are closed
FAR: Final = 2**62

Span = tuple[int, int]


@dataclass(frozen=True)
class Holds:
    """What cannot be at once. ``start`` and ``end`` are local times. ``together``: holds of a
    read-write lock, of which readers may hold beside readers, and an owner beside himself; all
    others exclude everybody."""

    row: Rows
    key: Ids
    machine: Ids
    start: Ints
    end: Ints
    owner: Ints
    reads: Bools
    together: Bools

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True)
class Rivals:
    """Pairs of holds that may be at once by what the bounds say, ``p`` on the machine of the lower
    number. ``before``: x is at most this if p was first; ``after``: at least this if q was.
    Relative to ``base``, a fixed offset of each machine; ``at_ns`` is the time of the pair with
    this offset. ``impossible``: neither can be."""

    p: Rows
    q: Rows
    at_ns: Ints
    before: Ints
    after: Ints
    low: Ints
    high: Ints
    base: dict[int, int]

    @property
    def impossible(self) -> Bools:
        never: Bools = (self.before == -FAR) & (self.after == FAR)
        return never


def rivals(holds: Holds, clocks: Clocks) -> Rivals:
    """The pairs, in the order of time."""
    # What never ended was before nobody, so its end is not looked at.
    until = np.where(holds.end >= FOREVER, holds.start, holds.end)
    start, end = (
        {w: at + clocks.at(holds.machine, at, w) for w in ("low", "high")}
        for at in (holds.start, until)
    )
    for ends in end.values():
        ends[holds.end >= FOREVER] = FOREVER
    p, q = _near(holds, start["low"], end["high"])
    other = holds.machine[p] > holds.machine[q]
    p, q = np.where(other, q, p), np.where(other, p, q)
    base = _bases(holds, clocks)
    offset = np.zeros(len(holds), np.int64)
    for machine, fixed in base.items():
        offset[holds.machine == machine] = fixed
    begin, finish = holds.start + offset, until + offset
    at = np.maximum(begin[p], begin[q])
    same = holds.machine[p] == holds.machine[q]

    def loose(one: Ints, two: Ints) -> Ints:
        drift = -((-np.abs(one - at) - np.abs(two - at)) // PER_DRIFT)
        return np.where(same, 0, drift)

    before = begin[q] - finish[p] + loose(finish[p], begin[q])
    after = finish[q] - begin[p] - loose(finish[q], begin[p])
    for first, second, bound, never in ((p, q, before, -FAR), (q, p, after, FAR)):
        ruled_out = (end["low"][first] > start["high"][second]) & ~same
        ruled_out |= holds.end[first] >= FOREVER
        # One clock needs no bounds.
        ruled_out |= same & (holds.end[first] > holds.start[second])
        bound[ruled_out] = never
    low, high = _width(clocks, base, holds.machine[p], holds.machine[q], at)
    low[same], high[same] = 0, 0
    order = np.argsort(at, kind="stable")
    p, q, at, before, after = p[order], q[order], at[order], before[order], after[order]
    return Rivals(p, q, at, before, after, low[order], high[order], base)


def _near(holds: Holds, start: Ints, end: Ints) -> tuple[Rows, Rows]:
    """Pairs that exclude each other and may be at once, where each is at most from ``start`` to
    ``end``."""
    order = by_key_and_time(holds.key, start)
    key, begin = holds.key[order], start[order]
    beside = up_to(key, begin, key, np.minimum(end[order], FOREVER) - 1)
    most = min(NEAR, PAIRS_MAX // max(1, len(order)) + 1)
    count = np.clip(beside - np.arange(1, len(order) + 1), 0, most)
    one = np.repeat(np.arange(len(order)), count)
    two = one + 1 + np.arange(len(one)) - np.repeat(np.cumsum(count) - count, count)
    p, q = order[one], order[two]
    share = holds.together[p] & holds.together[q]
    own = holds.owner[p] == holds.owner[q]
    apart = ~(share & (own | (holds.reads[p] & holds.reads[q])))
    return p[apart], q[apart]


def _bases(holds: Holds, clocks: Clocks) -> dict[int, int]:
    """A fixed offset of each machine: the middle of its bounds in the middle of its holds."""
    base = {-1: 0}
    for machine in np.unique(holds.machine).tolist():
        at = np.sort(holds.start[holds.machine == machine])
        base[machine] = int(clocks.bounds[machine].middle(at[[len(at) // 2]])[0])
    return base


def _width(clocks: Clocks, base: dict[int, int], a: Ids, b: Ids, at_ns: Ints) -> tuple[Ints, Ints]:
    """The least and the most that x can be."""
    fixed = np.zeros(max(base) + 2, np.int64)
    for machine, offset in base.items():
        fixed[machine + 1] = offset
    ends = {}
    for which in ("low", "high"):
        for name, machines in (("a", a), ("b", b)):
            local = at_ns - fixed[machines + 1]
            ends[name, which] = clocks.at(machines, local, which) - fixed[machines + 1]
    return ends["a", "low"] - ends["b", "high"], ends["a", "high"] - ends["b", "low"]


def by_middle(found: Rivals) -> Bools:
    """Whether p was first, as it is likely in the middle of the bounds."""
    middle = found.low + (found.high - found.low) // 2
    first: Bools = middle - found.before <= found.after - middle
    return first


@dataclass(frozen=True)
class Order:
    """Either ``conflict``, the fewest rivals that leave no offsets of two machines: at least one
    pair of them was at once. Or whether the first of each pair was first by some offsets of its two
    machines."""

    conflict: Rows | None
    p_first: Bools


def swept(holds: Holds, found: Rivals) -> Order:
    """Sweeps each pair of machines, see the module."""
    p_first = found.before >= found.high
    alone = np.flatnonzero(found.impossible)
    if len(alone):
        return Order(alone[:1], p_first)
    a, b = holds.machine[found.p].astype(np.int64), holds.machine[found.q].astype(np.int64)
    pair = (a + 1) * (int(b.max(initial=0)) + 2) + b + 1
    # The others are in the same order whatever the offsets are.
    open_ = (found.before < found.high) & (found.after > found.low) & (a != b)
    number = np.unique(pair[open_], return_inverse=True)[1].astype(np.int32)
    places = ByKey(number, np.flatnonzero(open_))
    for each in places.present():
        mine = places[each]
        left = _sweep(found, mine)
        if len(left) < len(mine):
            return Order(_fewest(found, mine[: len(left) + 1]), p_first)
        p_first[mine] = _way(left) <= found.before[mine]
    return Order(None, p_first)


@dataclass(frozen=True, slots=True)
class _Left:
    """Intervals of x that are possible, in order: from ``lows - grown`` to ``highs + grown``. They
    may overlap. Because all of them grow alike, an interval that nothing cuts stays as it is
    written."""

    grown: int
    lows: tuple[int, ...]
    highs: tuple[int, ...]

    def nearest(self, wanted: int) -> int:
        """The possible x that is nearest to this one."""
        at = bisect_left(self.highs, wanted - self.grown)
        above = [self.lows[at] - self.grown] if at < len(self.lows) else []
        if above and above[0] <= wanted:
            return wanted
        below = [self.highs[at - 1] + self.grown] if at else []
        return min(above + below, key=lambda x: abs(x - wanted))


def _sweep(found: Rivals, mine: Rows) -> list[_Left]:
    """What is left after each of ``mine``; shorter than these where the next one leaves nothing."""
    columns = (found.at_ns, found.low, found.high, found.before, found.after)
    lows, highs = [-FAR], [FAR]
    first = int(found.at_ns[mine[0]])
    left: list[_Left] = []
    for at, least, most, before, after in zip(
        *(column[mine].tolist() for column in columns), strict=True
    ):
        # Both clocks drift. Counted from the beginning, so that roundings do not add up.
        grown = (at - first) * 2 // PER_DRIFT
        _keep(lows, highs, (least, most), grown)
        if before < after:
            _cut(lows, highs, (before, after), grown)
        if not lows:
            return left
        left.append(_Left(grown, tuple(lows), tuple(highs)))
    return left


def _keep(lows: list[int], highs: list[int], within: Span, grown: int) -> None:
    """Only what is within these bounds."""
    least, most = within
    gone = bisect_left(highs, least - grown)
    del lows[:gone], highs[:gone]
    gone = bisect_right(lows, most + grown)
    del lows[gone:], highs[gone:]
    cut = bisect_left(lows, least + grown)
    lows[:cut] = [least + grown] * cut
    cut = bisect_right(highs, most - grown)
    highs[cut:] = [most - grown] * (len(highs) - cut)


def _cut(lows: list[int], highs: list[int], forbidden: Span, grown: int) -> None:
    """Without the inner part of what is forbidden."""
    before, after = forbidden
    first, last = bisect_right(highs, before - grown), bisect_left(lows, after + grown)
    if first >= last:
        return
    low, high = lows[first], highs[last - 1]
    below, above = low - grown <= before, high + grown >= after
    lows[first:last] = [low] * below + [after + grown] * above
    highs[first:last] = [before - grown] * below + [high] * above
    if len(lows) > SPANS_MAX:
        gaps = [begin - end for begin, end in zip(lows[1:], highs, strict=False)]
        at = gaps.index(min(gaps))
        del lows[at + 1], highs[at]


def _way(left: list[_Left]) -> Ints:
    """An x for each: backwards from a place in what is left, always to the nearest place that leads
    there."""
    x = np.zeros(len(left), np.int64)
    wanted = 0
    for number in range(len(left) - 1, -1, -1):
        x[number] = wanted = left[number].nearest(wanted)
    return x


def _fewest(found: Rivals, mine: Rows) -> Rows:
    """Of rivals that leave nothing the fewest that do: without any of them something is left.
    Mostly the last ones suffice. (Junker, "QuickXplain", AAAI 2004.)"""
    size = NEAR
    while size < len(mine) and _is_possible(found, mine[-size:]):
        size *= 2
    return np.array(_conflict(found, [], mine[-size:].tolist(), known=False))


def _conflict(found: Rivals, kept: list[int], asked: list[int], *, known: bool) -> list[int]:
    """The fewest of ``asked`` that leave nothing together with ``kept``; ``known``: something was
    added to these since they were last tried."""
    if known and not _is_possible(found, np.array(sorted(kept))):
        return []
    if len(asked) == 1:
        return asked
    half = len(asked) // 2
    one, two = asked[:half], asked[half:]
    of_two = _conflict(found, kept + one, two, known=True)
    of_one = _conflict(found, kept + of_two, one, known=bool(of_two))
    return of_one + of_two


def _is_possible(found: Rivals, mine: Rows) -> bool:
    return len(_sweep(found, mine)) == len(mine)
