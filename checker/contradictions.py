"""Contradictions inside one hold, and histories that the minimal hold rule cannot pair up.

See ``checker.exact`` for the argument that both belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checker.promises import FOREVER, Bools, Links, Rows, has_values, rows_of
from checker.words import Case
from history.columns import Ints
from history.op import NULL, F, Type


@dataclass(frozen=True)
class Contradiction:
    """Rows that no linearization can put in order, and why."""

    rows: tuple[int, ...]
    reason: str


def contradiction(case: Case, links: Links, chosen: Bools) -> Contradiction | None:
    """The first contradiction on the ``chosen`` keys."""
    history = case.history
    releases = rows_of(history, F.RELEASE, Type.OK)
    releases = releases[chosen[history.key[releases]]]
    homeless = releases[links.acquire[releases] < 0]
    if len(homeless):
        return Contradiction((int(homeless[0]),), "a release was answered ok without any hold")
    plain = releases[~_reentrant(case)[history.key[releases]]]
    last = np.full(len(history), -1, np.intp)
    last[links.acquire[plain]] = plain
    twice = plain[last[links.acquire[plain]] != plain]
    if len(twice):
        first = int(twice[0])
        again = int(last[links.acquire[first]])
        return Contradiction((first, again), "one hold was released twice, both answered ok")
    return _told_too_early(case, links, chosen)


def _told_too_early(case: Case, links: Links, chosen: Bools) -> Contradiction | None:
    """Not-held, answered while nothing can have ended the hold."""
    history, promises = case.history, case.promises
    told = links.under(np.flatnonzero(links.not_held & chosen[history.key]))
    if len(told) == 0:
        return None
    grant_of = np.full(len(history), -1, np.intp)
    grant_of[promises.row] = np.arange(len(promises))
    index = grant_of[links.acquire[told]]
    told, index = told[index >= 0], index[index >= 0]
    over = np.minimum(promises.lease[index], promises.lost[index])
    over[over < FOREVER] -= history.epsilon_ns
    done = history.complete_ns[told] + history.epsilon_ns
    # An earlier release, of whatever outcome, may be what ended it.
    release = promises.release[index]
    released = (release >= 0) & (release < told)
    wrong = np.flatnonzero((done <= over) & ~released & promises.outer[index])
    if len(wrong) == 0:
        return None
    row = int(told[wrong[0]])
    return Contradiction(
        (int(links.acquire[row]), row), "not-held was answered while the hold was promised"
    )


def unpaired(case: Case) -> Ints:
    """The keys on which sections cannot be told apart for certain, so that only a search decides.

    A pending operation of the same identity (a hold id; the process where there is none) that could
    still take effect inside a *later* section would belong to two sections at once. That is
    possible only for a spare one:

    - an unknown acquire that is followed by another acquire of the same identity: it could serve
      that one's release;
    - an unknown release after which the hold was still released for certain (or which came without
      a granted acquire), followed by another acquire: it could end that one's hold early.

    An unknown release directly followed by a granted acquire of the same identity is not spare: the
    new grant proves that it took effect. Without hold ids, operations of one process that overlap
    cannot be paired either.
    """
    history = case.history
    rows = np.flatnonzero((history.f == F.ACQUIRE) | (history.f == F.RELEASE))
    rows = rows[history.type[rows] != Type.FAIL]
    held = history.hold[rows] != NULL if has_values(history.hold) else np.zeros(len(rows), np.bool_)
    bad: list[int] = []
    overlapping = _overlapping(case, rows[~held])
    bad += history.key[overlapping].tolist()
    unknown = rows[history.type[rows] == Type.INFO]
    if len(unknown):
        bad += _spare(case, rows, unknown)
    return np.unique(np.array(bad, np.int64))


def _overlapping(case: Case, rows: Rows) -> Rows:
    """Rows that were invoked while an earlier row of their process and key was under way."""
    history = case.history
    order = rows[np.lexsort((rows, history.key[rows], history.process[rows]))]
    process, key = history.process[order], history.key[order]
    done = history.complete_ns[order]
    same = (process[1:] == process[:-1]) & (key[1:] == key[:-1])
    overlapping: Rows = order[1:][same & (done[:-1] > history.invoke_ns[order[1:]])]
    return overlapping


def _spare(case: Case, rows: Rows, unknown: Rows) -> list[int]:
    """The keys of identities with a spare operation."""
    history = case.history
    held = history.hold[unknown] != NULL
    bad = []
    if np.any(held):
        bad += _spare_within(case, rows[history.hold[rows] != NULL], history.hold)
    if not np.all(held):
        bad += _spare_within(case, rows[history.hold[rows] == NULL], history.process)
    return bad


def _spare_within(case: Case, rows: Rows, identity: Ints) -> list[int]:
    history = case.history
    order = rows[np.lexsort((rows, identity[rows], history.key[rows]))]
    who, key = identity[order], history.key[order]
    new = np.ones(len(order), np.bool_)
    new[1:] = (who[1:] != who[:-1]) | (key[1:] != key[:-1])
    group = np.cumsum(new) - 1
    # Only an unknown that some acquire of the same identity follows can be spare.
    acquires = np.flatnonzero(history.f[order] == F.ACQUIRE)
    last_acquire = np.zeros(int(group[-1]) + 1, np.intp)
    last_acquire[group[acquires]] = acquires
    followed = np.arange(len(order)) < last_acquire[group]
    followed &= history.type[order] == Type.INFO
    edges = np.flatnonzero(np.append(new, True))
    return [
        int(key[edges[g]])
        for g in np.unique(group[followed]).tolist()
        if _has_spare(case, order[edges[g] : edges[g + 1]].tolist())
    ]


def _has_spare(case: Case, rows: list[int]) -> bool:
    history = case.history
    spare = False
    pending = False  # an unknown release that the next granted acquire would account for
    granted = False
    for row in rows:
        known = history.type[row] == Type.OK
        if history.f[row] == F.ACQUIRE:
            if spare or (pending and not known):
                return True
            spare, pending, granted = not known, False, known
        elif known:
            spare, pending, granted = spare or pending, False, False
        elif granted:
            # Of two unknown releases one is to spare.
            spare, pending = spare or pending, True
        else:
            spare = True
    return False


def _reentrant(case: Case) -> Bools:
    history = case.history
    kinds = [history.object_of(key).kind for key in history.keys]
    return np.array([kind == "reentrant" for kind in kinds], np.bool_)
