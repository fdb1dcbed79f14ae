"""Who asked for a lock while somebody else was promised it: without that no fault can hurt.

*Kept out* by a promise is an acquire of its key by a client of another worker that was under way
while the promise was in force. Of two readers neither is; of a semaphore's, only while all permits
were taken. Only keys that the load shares count. A worker's other clients are not told from the
holder, because a client takes a new process number after an unknown outcome.
"""

from __future__ import annotations

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.exclusion import permits_of
from lockbench.checker.leaks import of_the_load
from lockbench.checker.rows import AIMED_ROLES, Bools, Rows, answered_ns, keys_with, rows_of
from lockbench.history.columns import Ints
from lockbench.history.op import NULL, F, Fault, Mode, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER

Spans = list[tuple[int, int]]


def aimed_acquires(analysis: Analysis, *types: Type) -> Rows:
    """The acquires of shared keys that ended so, while the load lasted."""
    history = analysis.history
    rows = of_the_load(history, rows_of(history, F.ACQUIRE, *types))
    return rows[keys_with(history, AIMED_ROLES)[history.key[rows]]]


def in_force(analysis: Analysis, begin: int, end: int) -> list[int]:
    """The promises on shared keys that were given before ``end`` and not over by ``begin``. An
    inner grant of a reentrant lock promises nothing to others."""
    held = analysis.promises
    shared = keys_with(analysis.history, AIMED_ROLES)[held.key]
    found = shared & held.nonempty & (held.start < end) & (held.end > begin)
    return [int(i) for i in np.flatnonzero(found)]


def held_by(analysis: Analysis, fault: Fault) -> list[int]:
    """The grants that the worker frozen or killed by a fault held when it began."""
    worker = fault.seen.worker
    if worker is None:
        return []
    history, promises = analysis.history, analysis.promises
    mine = worker_of(analysis, promises.row) == worker
    begin = fault.begin_ns[0]
    held = mine & (promises.start <= begin) & promises.outer
    held &= np.minimum(promises.lease, promises.lost) >= begin
    released = promises.release >= 0
    held[released] &= history.invoke_ns[promises.release[released]] > begin
    return [int(i) for i in np.flatnonzero(held)]


def between(
    analysis: Analysis, rows: Rows, begin: int, end: int, *, lost_since: int | None = None
) -> Rows:
    """Operations under way at some time of the interval. A queued waiter counts throughout, though
    it asked before. When an unknown operation ended is not known, so it counts only if it was
    invoked in the interval, or since ``lost_since``."""
    invoked, completed = analysis.history.invoke_ns[rows], analysis.history.complete_ns[rows]
    asking = (invoked >= begin) | ((completed != NULL) & (completed >= begin))
    if lost_since is not None:
        asking |= (completed == NULL) & (invoked >= lost_since)
    under_way: Rows = rows[asking & (invoked <= end)]
    return under_way


def kept_out(
    analysis: Analysis,
    i: int,
    begin: int,
    end: int,
    *,
    until: int | None = None,
    lost_since: int | None = None,
) -> Rows:
    """The acquires that promise number ``i`` kept out at some time of an interval. ``until`` stands
    for the promise's end; ``lost_since``: see ``between``."""
    history, held = analysis.history, analysis.promises
    first = max(begin, int(held.start[i]))
    last = min(end, int(held.end[i]) if until is None else until) - 1
    if first > last:
        return np.empty(0, np.intp)
    rows = aimed_acquires(analysis)
    rows = rows[history.key[rows] == held.key[i]]
    rows = between(analysis, rows, first, last, lost_since=lost_since)
    rows = rows[worker_of(analysis, rows) != worker_of(analysis, held.row[[i]])[0]]
    asking: Rows = rows[~compatible(analysis, rows, int(held.row[i]))]
    if permits_of(history, int(held.key[i])) == 1:
        return asking
    full = _full(analysis, i, first, last)
    # Up to its own grant, which takes a permit itself.
    met = [
        any(max(a, asked) <= min(b, done - 1) for a, b in full)
        for asked, done in zip(history.invoke_ns[asking], answered_ns(history, asking), strict=True)
    ]
    found: Rows = asking[np.array(met, np.bool_)]
    return found


def compatible(analysis: Analysis, rows: Rows, row: int) -> Bools:
    """Which acquires ask only to read, as that of ``row`` did."""
    mode = analysis.history.mode
    both: Bools = (mode[rows] == Mode.READ) & (mode[row] == Mode.READ)
    return both


def worker_of(analysis: Analysis, rows: Rows) -> Ints:
    """Numbers of the worker processes that did these operations."""
    workers: Ints = analysis.history.process[rows] // PROCESSES_PER_WORKER
    return workers


def _full(analysis: Analysis, i: int, first: int, last: int) -> Spans:
    """When, between two times at which promise ``i`` counts as in force, the others' promises took
    all the permits that it left."""
    held = analysis.promises
    left = permits_of(analysis.history, int(held.key[i])) - 1
    there = (held.key == held.key[i]) & held.nonempty & (held.start <= last) & (held.end > first)
    there[i] = False
    others = np.flatnonzero(there)
    times = np.unique(np.clip([first, *held.start[others], *held.end[others]], first, last))
    taken = held.at_once(others, times) >= left
    ends = [*(times[1:] - 1).tolist(), last]
    return [(int(a), max(int(a), b)) for a, b, all_ in zip(times, ends, taken, strict=True) if all_]


def all_permits(analysis: Analysis, there: Rows, at: Rows) -> bool:
    """Whether, as one of the promises ``at`` began, those of ``there`` took all that there is."""
    held = analysis.promises
    for i in at.tolist():
        same = there[held.key[there] == held.key[i]]
        permits = permits_of(analysis.history, int(held.key[i]))
        if permits == 1 or int(held.at_once(same, held.start[[i]])[0]) >= permits:
            return True
    return False
