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

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np

from lockbench.checker.bounds import PER_DRIFT
from lockbench.checker.clocks import Clocks
from lockbench.checker.intervals import ByKey, up_to
from lockbench.checker.rows import FOREVER, Bools, Rows, by_key_and_time
from lockbench.history.columns import Ids, Ints

NEAR: Final = 64  # that many of those that begin next are looked at beside each hold, or
PAIRS_MAX: Final = 150_000  # fewer, so that there are about so many pairs in all
SPANS_MAX: Final = 8  # of what is still possible; beyond that the narrowest gaps are closed
TOLD: Final = 4  # pairs that are told of a conflict
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
    """Either ``conflict``, rivals that leave no offsets of two machines; or whether the first of
    each pair was first by some offsets of its two machines."""

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
        x, conflict = _sweep(found, mine)
        if conflict is not None:
            return Order(conflict, p_first)
        p_first[mine] = x <= found.before[mine]
    return Order(None, p_first)


def _sweep(found: Rivals, mine: Rows) -> tuple[Ints, Rows | None]:
    """An x for each of ``mine``, or the last ones that leave nothing."""
    columns = (found.at_ns, found.low, found.high, found.before, found.after)
    possible: list[Span] = [(-FAR, FAR)]
    left: list[list[Span]] = []
    first = last = int(found.at_ns[mine[0]])
    for number, (at, low, high, before, after) in enumerate(
        zip(*(column[mine].tolist() for column in columns), strict=True)
    ):
        # Both clocks drift. Counted from the beginning, so that roundings do not add up.
        grown = (at - first) * 2 // PER_DRIFT - (last - first) * 2 // PER_DRIFT
        last = at
        possible = _cut(possible, grown, (low, high), (before, after))
        if not possible:
            return mine, mine[max(0, number - TOLD + 1) : number + 1]
        left.append(possible)
    # Backwards from a place in what is left, each time to the nearest place that leads there.
    x = np.zeros(len(mine), np.int64)
    wanted = 0
    for number in range(len(mine) - 1, -1, -1):
        nearest = [min(max(wanted, low), high) for low, high in left[number]]
        wanted = nearest[int(np.argmin([abs(at - wanted) for at in nearest]))]
        x[number] = wanted
    return x, None


def _cut(possible: list[Span], grown: int, within: Span, forbidden: Span) -> list[Span]:
    """What is left of some intervals that grow on either side, without what is not within and
    without the inner part of what is forbidden."""
    (least, most), (before, after) = within, forbidden
    parts: list[Span] = []
    for begin, end in possible:
        low, high = max(begin - grown, least), min(end + grown, most)
        pieces = [(low, min(high, before)), (max(low, after), high)]
        for first, last in pieces if before < after else [(low, high)]:
            if first > last:
                continue
            if parts and first <= parts[-1][1]:
                parts[-1] = (parts[-1][0], max(last, parts[-1][1]))
            else:
                parts.append((first, last))
    if len(parts) > SPANS_MAX:
        gaps = [after[0] - before[1] for before, after in pairwise(parts)]
        at = gaps.index(min(gaps))
        parts[at : at + 2] = [(parts[at][0], parts[at + 1][1])]
    return parts
