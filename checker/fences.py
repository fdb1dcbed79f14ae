"""``fence-order``: fences must grow from grant to grant.

Two grants of a key are certainly in order, A before B, when A completed before B was invoked, or
when both promises are non-empty and A's ended before B's began: a client holds a mutex during all
of its promise, so it was granted after every client whose promise had ended by then. Then fence A
must be smaller than fence B. Concurrent grants without promises may come in any order.
Two grants whose promises overlap are in no certain order, but in either one their fences must
differ.

The last two rules need exclusion, so they are used for mutexes only; readers of a read-write lock
and grants inside a reentrant hold may repeat a fence and are left out. Whether a reentrant hold is
over is certain only where every operation of its owner was answered and it was released before the
next grant was asked for. Else it may still stand, after a release of unknown outcome or beyond
``valid_until``, and its owner meet its fence again.
"""

from __future__ import annotations

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import running_max, up_to
from lockbench.checker.kinds import OWNED, REENTRANT, keys_of
from lockbench.checker.rows import Bools, Rows, by_key_and_time, owners
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import clock, during, faults_on, grant, many
from lockbench.history.columns import Ints
from lockbench.history.op import NULL, Mode, Type


def fence_order(analysis: Analysis) -> Verdict | None:
    """Absent when fewer than one grant carries a fence."""
    history, promises = analysis.history, analysis.promises
    fence = history.fence[promises.row]
    chosen = promises.outer & (fence != NULL) & (history.mode[promises.row] != Mode.READ)
    grants = np.flatnonzero(chosen)
    if len(grants) == 0:
        return None
    if _plainly_grow(analysis, chosen, fence):
        return Verdict("valid", _fine(len(grants)))
    epsilon = history.epsilon_ns
    completed = history.complete_ns[promises.row] + epsilon
    invoked = history.invoke_ns[promises.row] - epsilon
    # Completed strictly before: an end that coincides with a beginning is concurrent.
    found = _predecessor(analysis, grants, ended=completed + 1, begins=invoked, fence=fence)
    owned = grants[promises.nonempty[grants] & keys_of(history, OWNED)[promises.key[grants]]]
    found += _predecessor(analysis, owned, ended=promises.end, begins=promises.start, fence=fence)
    found += _equal_beside(analysis, owned, fence)
    found = _not_entered_again(analysis, found, fence)
    if not found:
        return Verdict("valid", _fine(len(grants)))
    a, b = min(found, key=lambda pair: (int(promises.start[pair[1]]), pair))
    begin, end = int(promises.start[a]), int(promises.start[b])
    at = clock(history, [begin, end])
    word = "repeats" if fence[a] == fence[b] else "is below"
    broken = len({b for _, b in found})
    reason = (
        f"the fence {int(fence[b])} of {analysis.name(int(promises.row[b]))}, granted "
        f"{analysis.key(int(promises.row[b]))} at {at[1]} s, {word} the fence {int(fence[a])} of "
        f"{analysis.name(int(promises.row[a]))}, granted it before at {at[0]} s"
        f"{during(analysis, begin, end)}; {many(broken, 'grant')} out of order"
    )
    evidence = (grant(analysis, a), grant(analysis, b), *faults_on(analysis, begin, end))
    return Verdict("invalid", reason, evidence)


def _equal_beside(analysis: Analysis, grants: Rows, fence: Ints) -> list[tuple[int, int]]:
    """Pairs of promises of one key that overlap and have the same fence."""
    promises = analysis.promises
    order = grants[np.lexsort((promises.start[grants], fence[grants], promises.key[grants]))]
    key, fences = promises.key[order], fence[order]
    again = np.zeros(len(order), np.bool_)
    again[1:] = (key[1:] == key[:-1]) & (fences[1:] == fences[:-1])
    # One number for each fence of each key.
    _, longest = running_max(np.cumsum(~again).astype(np.int32), promises.end[order])
    before = longest[:-1]
    overlap = again[1:] & (promises.end[order[before]] > promises.start[order[1:]])
    return [(int(order[before[i]]), int(order[i + 1])) for i in np.flatnonzero(overlap)]


def _not_entered_again(
    analysis: Analysis, pairs: list[tuple[int, int]], fence: Ints
) -> list[tuple[int, int]]:
    """Without those in which the second grant may be a level of the same reentrant hold."""
    history, promises = analysis.history, analysis.promises
    reentrant = keys_of(history, REENTRANT)
    if not np.any(reentrant) or not pairs:
        return pairs
    unknown = np.flatnonzero((history.type == Type.INFO) & reentrant[history.key])
    unsure = set(zip(history.key[unknown].tolist(), owners(history)[unknown].tolist(), strict=True))

    def may_stand(a: int, b: int) -> bool:
        key, owner, release = int(promises.key[a]), int(promises.owner[a]), int(promises.release[a])
        if not reentrant[key] or owner != promises.owner[b] or fence[a] != fence[b]:
            return False
        asked = int(history.invoke_ns[promises.row[b]]) - 2 * history.epsilon_ns
        released = release >= 0 and history.type[release] == Type.OK
        return not (released and history.complete_ns[release] < asked) or (key, owner) in unsure

    return [pair for pair in pairs if not may_stand(*pair)]


def _fine(grants: int) -> str:
    return f"{many(grants, 'fenced grant')}, growing in every certain order"


def _plainly_grow(analysis: Analysis, chosen: Bools, fence: Ints) -> bool:
    """Whether fences grow from completion to completion: then they grow in every certain order,
    because A can be before B only if A completed before B did. One pass instead of four sorts."""
    order = analysis.promises.order
    if not np.all(chosen):
        order = order[chosen[order]]
    key, fences = analysis.promises.key[order], fence[order]
    return not np.any((fences[1:] <= fences[:-1]) & (key[1:] == key[:-1]))


def _predecessor(
    analysis: Analysis, grants: Rows, *, ended: Ints, begins: Ints, fence: Ints
) -> list[tuple[int, int]]:
    """Pairs (A, B) in which A ended before B began and has no smaller fence: for each such B, the A
    of the largest fence. Sorted by their ends, a running maximum answers every B by one search."""
    key = analysis.promises.key
    order = grants[by_key_and_time(key[grants], ended[grants])]
    highest, where = running_max(key[order], fence[order])
    # The number of entries up to B's key and up to B's beginning within it.
    last = up_to(key[order], ended[order], key[grants], begins[grants]) - 1
    inside = (last >= 0) & (key[order][np.maximum(last, 0)] == key[grants])
    wrong = np.flatnonzero(inside & (highest[np.maximum(last, 0)] >= fence[grants]))
    return [(int(order[where[last[w]]]), int(grants[w])) for w in wrong]
