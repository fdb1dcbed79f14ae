"""``linearizable``: whether some order of instantaneous effects explains every answer.

Locks are decided by the minimal hold rule (``checker.exact``) wherever it is exact, in one sort for
all keys. What it does not cover is unknown, key by key, with the reason.
"""

from __future__ import annotations

import numpy as np

from checker.contradictions import contradiction, unpaired
from checker.exact import conflict, mutex_conflicts, sections
from checker.promises import Bools, Links, rows_of
from checker.verdict import Verdict
from checker.words import EVIDENCE_MAX, Case, during, faults_on, many, operation
from history.op import F, Type

OWNED = frozenset({"mutex", "reentrant", "fenced"})
SHARED = frozenset({"read-write", "semaphore"})


def linearizable(case: Case, links: Links) -> Verdict | None:
    """Absent when the history has no lock operations."""
    history = case.history
    acquires = rows_of(history, F.ACQUIRE)
    if len(acquires) == 0:
        return None
    kinds = [history.object_of(key).kind for key in history.keys]
    owned = np.array([kind in OWNED for kind in kinds], np.bool_)
    shared = np.array([kind in SHARED for kind in kinds], np.bool_)
    open_keys = _undecided(case, kinds)
    decided = (owned | shared) & ~open_keys
    found = contradiction(case, links, decided)
    if found is not None:
        return _invalid(case, found.rows, found.reason)
    held = sections(case, links)
    rows = mutex_conflicts(held, owned & decided)
    for key in np.flatnonzero(shared & decided):
        rows = rows or conflict(case, held, int(key), kinds[key])
    if rows is not None:
        return _invalid(case, rows, "no order of effects explains these grants")
    if np.any(open_keys):
        names = ", ".join(history.keys[k] for k in np.flatnonzero(open_keys)[:5])
        return Verdict("unknown", f"{many(int(open_keys.sum()), 'key')} undecided: {names}")
    return Verdict(
        "valid", f"{many(len(acquires), 'acquire')}, smallest holds compatible throughout"
    )


def _undecided(case: Case, kinds: list[str]) -> Bools:
    history = case.history
    undecided = np.zeros(len(history.keys), np.bool_)
    undecided[unpaired(case)] = True
    unknown = rows_of(history, F.ACQUIRE, Type.INFO)
    for key in np.unique(history.key[unknown]):
        undecided[key] |= kinds[key] == "reentrant"
    return undecided


def _invalid(case: Case, rows: tuple[int, ...], why: str) -> Verdict:
    history = case.history
    rows = tuple(sorted(set(rows)))
    evidence = [operation(case, row) for row in rows[:EVIDENCE_MAX]]
    begin, end = int(history.invoke_ns[rows[0]]), int(history.invoke_ns[rows[-1]])
    told = "; ".join(str(item["text"]) for item in evidence[:3])
    reason = f"{why}: {told}{during(case, begin, end)}"
    return Verdict("invalid", reason, (*evidence, *faults_on(case, begin, end)))
