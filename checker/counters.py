"""Counters to which every add adds the same amount: linearizability in one sweep over time.

With amounts of any size there is no such way: whether one read of v is possible beside concurrent
adds of amounts a1, a2, … is the question whether some of them sum up to v (subset sum, which is
NP-complete). Such counters go to the search. No theorem was found that covers equal amounts, so
here is the argument.

Let all amounts be a, so that a read of initial + k·a says that exactly k adds came before it. (Any
other value is impossible; an add of nothing is none.) Let T(k) be the instant at which the k-th add
takes effect. A read of k can be placed if and only if T(k) ≤ its end and its beginning ≤ T(k+1);
windows are closed and operations at one instant may come in any order, so reads never hinder each
other. With l(k) the first end and h(k) the last beginning of the reads of k, all that is asked for
is that at each time

    N(at or before l(k)) ≥ k        and        N(before h(k)) ≤ k,

where N counts the adds that took effect: a schedule of equal jobs, each in its window (an unknown
add has no end and may be left out), between a lower and an upper bound of how many are done. The
*lazy* schedule is the best one: it runs a job only when its window ends or a lower bound asks for
one more, and then the one whose window ends first. Any other schedule can be turned into it without
running more jobs by any time: a job that runs without need can wait, and of two jobs that could
both run now, running the one that ends first leaves less that must run later. So N is as small as
it can be at every time, and the history is linearizable if and only if the lazy schedule never
lacks a job for a lower bound and never exceeds an upper one.
"""

from __future__ import annotations

import heapq
from time import perf_counter
from typing import Final

import numpy as np

from lockbench.checker.rows import FOREVER, Rows
from lockbench.checker.search import Found
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type

# At one instant: upper bounds hold before it, jobs may run from it on, and lower bounds take first
# what must run at its end anyhow.
UPPER, BEGIN, LOWER, END = range(4)
SECONDS_MAX: Final = 3.0  # for finding the fewest reads
Event = tuple[int, int, int, int]  # time, kind, row, count for a bound


def by_sweep(history: History, rows: Rows, initial: int | None) -> Found | None:
    """Judges the rows of one counter; None where amounts differ. The number in the answer is the
    row of the read that cannot be."""
    amount = history.value[rows]
    adds = (history.f[rows] == F.ADD) & (history.type[rows] != Type.FAIL)
    adds &= (amount != 0) & (amount != NULL)
    amounts = np.unique(amount[adds])
    if len(amounts) > 1:
        return None
    step = int(amounts[0]) if len(amounts) else 1
    read = (history.f[rows] == F.READ) & (history.type[rows] == Type.OK) & (amount != NULL)
    reads = rows[read]
    counts: list[tuple[int, int]] = []
    for read_row, value in zip(reads.tolist(), history.value[reads].tolist(), strict=True):
        count, rest = divmod(value - (initial or 0), step)
        if rest != 0 or count < 0 or (count > 0 and len(amounts) == 0):
            return Found("invalid", "a value that no number of adds makes", read_row)
        counts.append((read_row, count))
    failed = _sweep(history, rows[adds], counts)
    if failed is None:
        return Found("valid", f"{len(rows)} operations in one sweep")
    return Found("invalid", "no order of adds explains it", failed)


def _sweep(history: History, adds: Rows, reads: list[tuple[int, int]]) -> int | None:
    """The lazy schedule; the row of a read whose bound cannot be kept, or None."""
    epsilon = history.epsilon_ns
    events: list[Event] = []
    for row, count in reads:
        events.append((int(history.invoke_ns[row]) - epsilon, UPPER, row, count))
        events.append((int(history.complete_ns[row]) + epsilon, LOWER, row, count))
    for row in adds.tolist():
        events.append((int(history.invoke_ns[row]) - epsilon, BEGIN, row, 0))
        if history.complete_ns[row] != NULL:
            events.append((int(history.complete_ns[row]) + epsilon, END, row, 0))
    done: set[int] = set()
    waiting: list[tuple[int, int]] = []  # (end of the window, row); those done are skipped
    ran = 0
    for _, kind, row, count in sorted(events):
        if kind == UPPER and ran > count:
            return row
        if kind == BEGIN:
            end = int(history.complete_ns[row])
            heapq.heappush(waiting, (FOREVER if end == NULL else end, row))
        elif kind == LOWER:
            while ran < count:
                while waiting and waiting[0][1] in done:
                    heapq.heappop(waiting)
                if not waiting:
                    return row
                done.add(heapq.heappop(waiting)[1])
                ran += 1
        elif kind == END and row not in done:
            done.add(row)
            ran += 1
    return None


def fewest_reads(history: History, rows: Rows, initial: int | None, failed: int) -> list[int]:
    """The reads without any of which the failed one would be possible, and it: the others are left
    out in ever smaller parts while it stays impossible."""
    deadline = perf_counter() + SECONDS_MAX
    is_read = history.f[rows] == F.READ
    end = history.complete_ns[failed] + 2 * history.epsilon_ns
    adds, reads = rows[~is_read], rows[is_read & (history.invoke_ns[rows] <= end)]
    kept = [row for row in reads.tolist() if row != failed]
    size = len(kept)
    while size and perf_counter() < deadline:
        at = 0
        while at < len(kept):
            fewer = kept[:at] + kept[at + size :]
            found = by_sweep(history, np.union1d(adds, [*fewer, failed]), initial)
            if found is not None and found.result == "invalid":
                kept = fewer
            else:
                at += size
        size //= 2
    return [*kept, failed]
