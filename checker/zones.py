"""Registers whose written values are all different: linearizability in one sort.

Gibbons and Korach, "Testing shared memories", SIAM J. Comput. 26 (1997): where every read says
which write it saw (as it does when no value is written twice), group each write with its reads. A
group's *zone* lies between the first end and the last beginning of its operations. If the end comes
first (something ended before something else of the group began), the register held the value all
through the zone: a forward zone. Otherwise any instant of the zone will do for the whole group: a
backward zone. The history is linearizable if and only if no read ended before its write was called,
no two forward zones overlap, and no backward zone lies inside a forward one.

An unknown write counts only if its value was read, and then has no end. The initial value is a
group written before everything. Windows are closed, so zones that only touch do not overlap.
"""

from __future__ import annotations

import numpy as np

from lockbench.checker.rows import FOREVER, Rows
from lockbench.checker.search import Found
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type

NEVER = -FOREVER


def by_zones(history: History, rows: Rows, initial: int | None) -> Found | None:
    """Judges the rows of one register; None where values are not unique or a compare-and-set was
    used. The numbers in the answer are rows."""
    f, outcome, value = history.f[rows], history.type[rows], history.value[rows]
    if np.any((f == F.CAS) & (outcome != Type.FAIL)):
        return None
    write = (f == F.WRITE) & (outcome != Type.FAIL)
    # A read of nothing matches any state.
    read = (f == F.READ) & (outcome == Type.OK) & (value != NULL)
    written = np.sort(value[write])
    first_value = np.int64(NULL if initial is None else initial)
    if np.any(written[1:] == written[:-1]) or first_value in written or NULL in written:
        return None
    rows, write = rows[write | read], write[write | read]
    values = np.append(history.value[rows], first_value)
    names, number = np.unique(values, return_inverse=True)
    return _judge(history, rows, write, number[:-1], len(names), int(number[-1]))


def _judge(  # noqa: PLR0917 - the columns of one register
    history: History, rows: Rows, write: np.ndarray, number: Ints, groups: int, first: int
) -> Found:
    begin = history.invoke_ns[rows] - history.epsilon_ns
    done = history.complete_ns[rows]
    end = np.where(done == NULL, FOREVER, done + history.epsilon_ns)
    called = np.full(groups, FOREVER, np.int64)
    called[number[write]] = begin[write]
    called[first] = NEVER
    early = np.flatnonzero(~write & (end < called[number]))
    if len(early):
        row = int(rows[early[0]])
        late = rows[write & (number == number[early[0]])]
        reason = "a read saw what nobody had begun to write"
        return Found("invalid", reason, row, tuple(int(other) for other in late))
    first_end = np.full(groups, FOREVER, np.int64)
    np.minimum.at(first_end, number, end)
    first_end[first] = NEVER
    last_begin = np.full(groups, NEVER, np.int64)
    np.maximum.at(last_begin, number, begin)
    was_read = np.zeros(groups, np.bool_)
    was_read[number[~write]] = True
    # Unread, an unknown write need not have happened and the initial value says nothing.
    counts = was_read | (first_end < FOREVER)
    counts[first] = was_read[first]
    clash = _clash(first_end, last_begin, np.flatnonzero(counts))
    if clash is None:
        return Found("valid", f"{len(rows)} operations in zones")
    involved = _fewest(number, np.flatnonzero(np.isin(number, clash)), begin, end, write)
    return Found(
        "invalid",
        "two values were both in the register",
        int(rows[involved[-1]]),
        tuple(int(row) for row in rows[involved[:-1]]),
    )


def _fewest(number: Ints, places: Rows, begin: Ints, end: Ints, write: np.ndarray) -> Rows:
    """Of the operations on two values, the writes and the ends of the zones: they clash as well."""
    chosen: set[int] = set(places[write[places]].tolist())
    for group in np.unique(number[places]).tolist():
        mine = places[number[places] == group]
        chosen |= {int(mine[np.argmin(end[mine])]), int(mine[np.argmax(begin[mine])])}
    return np.array(sorted(chosen), np.intp)


def _clash(low: Ints, high: Ints, groups: Rows) -> tuple[int, int] | None:
    """Two groups that cannot both be, or None, by their first ends and last beginnings."""
    forward = groups[low[groups] < high[groups]]
    forward = forward[np.argsort(low[forward], kind="stable")]
    overlap = np.flatnonzero(low[forward[1:]] < high[forward[:-1]])
    if len(overlap):
        return int(forward[overlap[0]]), int(forward[overlap[0] + 1])
    backward = groups[low[groups] >= high[groups]]
    if len(forward) == 0 or len(backward) == 0:
        return None
    # Forward zones are disjoint, so only the last that begins before can hold a backward one.
    before = np.searchsorted(low[forward], high[backward], side="left") - 1
    around = forward[np.maximum(before, 0)]
    inside = np.flatnonzero((before >= 0) & (low[backward] < high[around]))
    return (int(around[inside[0]]), int(backward[inside[0]])) if len(inside) else None
