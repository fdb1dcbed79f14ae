"""``double-grant``: the promised holders of a key are incompatible at some instant.
``late-grant``: a grant was returned when its own promise had already passed.

Incompatible are two promises that overlap strictly (they share more than an end point) and belong
to a mutex; or to a read-write lock, with different owners and at least one writer; or more promises
than a semaphore has permits.

For a mutex, one sort decides: if intervals sorted by their start are disjoint from their
neighbours, they are all disjoint.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import ByKey, running_max, same_key_as_before, writer_overlaps
from lockbench.checker.kinds import SHARED
from lockbench.checker.rows import FOREVER, Rows, late_of
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import EVIDENCE_MAX, clock, during, faults_on, grant, many
from lockbench.history.columns import History
from lockbench.history.op import NULL, Mode

DEFAULT_PERMITS = 1


def permits_of(history: History, key: int) -> int:
    """How many may hold a key at once."""
    named = history.object_of(history.keys[key])
    return named.permits or DEFAULT_PERMITS if named.kind == "semaphore" else 1


def double_grant(analysis: Analysis) -> Verdict | None:
    """Absent when nothing was ever granted."""
    if len(analysis.promises) == 0:
        return None
    kinds = np.array(analysis.history.kinds, dtype=object)
    chosen = np.flatnonzero(analysis.promises.nonempty)
    shared = np.any((kinds == "semaphore") | (kinds == "read-write"))
    order = analysis.promises.in_order
    if shared:
        owned = (kinds != "semaphore") & (kinds != "read-write")
        order = order[owned[analysis.promises.key[order]]]
    groups, count = _mutex_overlaps(analysis, order)
    by_key = ByKey(analysis.promises.key[chosen]) if shared else None
    for key in by_key.present() if by_key is not None else ():
        if kinds[key] not in SHARED:
            continue
        assert by_key is not None
        for group in _shared_overlaps(analysis, chosen[by_key[key]], key, str(kinds[key])):
            count += 1
            if len(groups) < EVIDENCE_MAX:
                groups.append(group)
    if not groups:
        return Verdict("valid", f"{many(len(chosen), 'promise')}, no two incompatible at any time")
    return _violation(analysis, min(groups, key=lambda group: _shared_from(analysis, group)), count)


def late_grant(analysis: Analysis) -> Verdict | None:
    """Absent when no grant had a limit. One machine's clock on both sides, so ε plays no part."""
    history = analysis.history
    grants = analysis.promises.row
    limited = grants[history.valid_until_ns[grants] != NULL]
    if len(limited) == 0:
        return None
    late = late_of(history, limited)
    if len(late) == 0:
        return Verdict("valid", f"{many(len(limited), 'grant')} returned while still promised")
    row = int(late[0])
    late_by_s = (int(history.complete_ns[row]) - int(history.valid_until_ns[row])) / 1e9
    index = np.searchsorted(analysis.promises.row, late[:EVIDENCE_MAX])
    reason = (
        f"{analysis.name(row)} was granted {analysis.key(row)} at "
        f"{clock(history, [int(history.complete_ns[row])])[0]} s, {late_by_s:.9g} s after the "
        f"promise had passed ({many(len(late), 'late grant')})"
    )
    return Verdict("invalid", reason, tuple(grant(analysis, int(i)) for i in index))


def _mutex_overlaps(analysis: Analysis, order: Rows) -> tuple[list[Rows], int]:
    """Pairs of promises that overlap (one pair for each promise that begins inside another), of
    promises in the order of key and start."""
    promises = analysis.promises
    if promises.disjoint:
        return [], 0
    key, start, end = promises.key[order], promises.start[order], promises.end[order]
    highest, where = running_max(key, end)
    inside = np.flatnonzero(same_key_as_before(key)[1:] & (highest[:-1] > start[1:]))
    pairs = [order[[where[i], i + 1]] for i in inside[:EVIDENCE_MAX]]
    return pairs, len(inside)


def _shared_overlaps(analysis: Analysis, chosen: Rows, key: int, kind: str) -> Iterator[Rows]:
    """Groups that are together too many, one for each promise whose beginning makes it so."""
    start, end = analysis.promises.start, analysis.promises.end
    order = chosen[np.argsort(start[chosen], kind="stable")]
    if kind == "read-write":
        reads = analysis.history.mode[analysis.promises.row[order]] == Mode.READ
        owner = analysis.promises.owner[order]
        for pair in writer_overlaps(start[order], end[order], reads, owner):
            yield order[[*pair]]
        return
    permits = permits_of(analysis.history, key)
    active: list[tuple[int, int]] = []  # (end, grant)
    for i in order.tolist():
        while active and active[0][0] <= start[i]:
            heapq.heappop(active)
        if len(active) >= permits:
            yield np.array([*sorted(j for _, j in active[:permits]), i])
        heapq.heappush(active, (int(end[i]), i))


def _shared_from(analysis: Analysis, group: Rows) -> int:
    return int(analysis.promises.start[group].max())


def _violation(analysis: Analysis, group: Rows, count: int) -> Verdict:
    """The earliest group, in words."""
    history, promises = analysis.history, analysis.promises
    begin = _shared_from(analysis, group)
    end = int(promises.end[group].min())
    first, last = int(group[0]), int(group[-1])
    held_from, held_to = int(promises.start[first]), int(promises.end[first])
    granted_at = int(promises.start[last])
    times = [held_from, granted_at] if held_to >= FOREVER else [held_from, held_to, granted_at]
    text = clock(history, times)
    span = f"from {text[0]} s on" if held_to >= FOREVER else f"from {text[0]} to {text[1]} s"
    fences = [int(history.fence[promises.row[i]]) for i in (first, last)]
    fenced = "" if NULL in fences else f"; fence {fences[0]} then {fences[1]}"
    crowd = "" if len(group) == 2 else f" (with {len(group) - 2} more)"
    shared = "" if end >= FOREVER else f" for {(end - begin) / 1e9:.9g} s"
    key = analysis.key(int(promises.row[first]))
    reason = (
        f"{analysis.name(int(promises.row[first]))} was promised {key} {span}{crowd}; "
        f"{analysis.name(int(promises.row[last]))} was granted it at {text[-1]} s: both held "
        f"it{shared}{fenced}{during(analysis, held_from, begin)}; "
        f"{many(count, 'double grant')} in {many(len(promises), 'grant')}"
    )
    evidence = [grant(analysis, int(i)) for i in group[:EVIDENCE_MAX]]
    return Verdict("invalid", reason, (*evidence, *faults_on(analysis, held_from, begin)))
