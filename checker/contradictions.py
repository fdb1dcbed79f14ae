"""Contradictions inside one hold, and histories that the minimal hold rule cannot pair up.

See ``checker.exact`` for the argument that both belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from checker.kinds import REENTRANT, keys_of
from checker.promises import FOREVER, Bools, Links, Rows, has_values, rows_of
from checker.words import Case
from history.columns import History, Ints
from history.op import NULL, F, Type


@dataclass(frozen=True)
class Contradiction:
    """Rows that no linearization can put in order, and why."""

    rows: tuple[int, ...]
    reason: str


def contradiction(case: Case, links: Links, chosen: Bools) -> Contradiction | None:
    """The first contradiction on the ``chosen`` keys, on which sections can be told apart."""
    history = case.history
    releases = _on(history, rows_of(history, F.RELEASE, Type.OK), chosen)
    extends = _on(history, rows_of(history, F.EXTEND, Type.OK), chosen)
    proofs = np.concatenate([releases, extends]) if len(extends) else releases
    homeless = proofs[links.acquire[proofs] < 0]
    if len(homeless):
        return Contradiction((int(homeless[0]),), "answered ok without any hold")
    plain = ~keys_of(history, REENTRANT)
    releases, proofs = _on(history, releases, plain), _on(history, proofs, plain)
    last = np.full(len(history), -1, np.intp)
    last[links.acquire[releases]] = releases
    twice = releases[last[links.acquire[releases]] != releases]
    if len(twice):
        again = int(last[links.acquire[twice[0]]])
        return Contradiction((int(twice[0]), again), "one hold was released twice, both ok")
    told = links.under(np.flatnonzero(links.not_held & (chosen & plain)[history.key]))
    gone = _after_the_end(history, links, np.concatenate([releases, told]), extends, told)
    return gone or _told_too_early(case, links, told)


def _on(history: History, rows: Rows, keys: Bools) -> Rows:
    return rows if np.all(keys) else rows[keys[history.key[rows]]]


def _after_the_end(
    history: History, links: Links, ends: Rows, extends: Rows, told: Rows
) -> Contradiction | None:
    """A hold confirmed after it was certainly over: extended or released after a release that was
    answered ok or after not-held. (Releases after releases were looked at before.)"""
    if len(extends) == 0 and len(told) == 0:
        return None
    acquire = links.acquire
    over = np.full(len(history), FOREVER, np.int64)
    np.minimum.at(over, acquire[ends], history.complete_ns[ends])
    later = np.concatenate([extends, links.under(rows_of(history, F.RELEASE, Type.OK))])
    later = later[np.isin(acquire[later], acquire[ends])]
    epsilon = 2 * history.epsilon_ns
    wrong = later[over[acquire[later]] < history.invoke_ns[later] - epsilon]
    if len(wrong) == 0:
        return None
    row = int(wrong[0])
    mine = ends[acquire[ends] == acquire[row]]
    end = int(mine[np.argmin(history.complete_ns[mine])])
    return Contradiction((int(acquire[row]), end, row), "a hold was confirmed after it was over")


def _told_too_early(case: Case, links: Links, told: Rows) -> Contradiction | None:
    """Not-held, answered while nothing can have ended the hold: neither a release of whatever
    outcome, nor its lease, nor a loss."""
    history, promises = case.history, case.promises
    if len(told) == 0:
        return None
    grant_of = np.full(len(history), -1, np.intp)
    grant_of[promises.row] = np.arange(len(promises))
    index = grant_of[links.acquire[told]]
    told, index = told[index >= 0], index[index >= 0]
    over = np.minimum(promises.lease[index], promises.lost[index])
    released = np.full(len(history), FOREVER, np.int64)
    releases = links.under(rows_of(history, F.RELEASE, Type.OK, Type.INFO))
    np.minimum.at(released, links.acquire[releases], history.invoke_ns[releases])
    over = np.minimum(over, released[promises.row[index]])
    wrong = np.flatnonzero(history.complete_ns[told] + 2 * history.epsilon_ns < over)
    if len(wrong) == 0:
        return None
    row = int(told[wrong[0]])
    return Contradiction(
        (int(links.acquire[row]), row), "not-held was answered while the hold was promised"
    )


def unpaired(case: Case, links: Links) -> Ints:
    """The keys on which sections cannot be told apart for certain, so that only a search decides.

    A pending operation of the same identity (a hold id; the process where there is none) that could
    still take effect inside a *later* section would belong to two sections at once. That is
    possible only for a spare one:

    - an unknown acquire that is followed by another acquire of the same identity: it could serve
      that one's release;
    - an unknown release after which the hold was still released for certain (or which came without
      a granted acquire), followed by another acquire: it could end that one's hold early.

    An unknown release directly followed by a granted acquire of the same identity is not spare: the
    new grant proves that it took effect. Further: operations of one identity whose windows overlap
    or touch, and so may have taken effect in either order (except extends under a hold id, which
    run in the background, once the acquire has completed); an unknown acquire while the identity
    may still hold from before; and an unknown acquire under which both ok and not-held were
    answered.
    """
    history = case.history
    says = (history.type != Type.FAIL) | links.not_held
    rows = np.flatnonzero(((history.f == F.ACQUIRE) | (history.f == F.RELEASE)) & says)
    held = history.hold[rows] != NULL if has_values(history.hold) else np.zeros(len(rows), np.bool_)
    bad: list[int] = []
    if np.any(held):
        bad += _touching(history, rows[held], history.hold)
        bad += _extended_at_once(history, links)
    if not np.all(held):
        extends = np.flatnonzero((history.f == F.EXTEND) & says)
        extends = extends[history.hold[extends] == NULL]
        loose = np.concatenate([rows[~held], extends]) if len(extends) else rows[~held]
        bad += _touching(history, loose, history.process)
    unknown = rows[history.type[rows] == Type.INFO]
    if len(unknown):
        bad += _spare(case, rows, unknown)
        bad += _contested(history, links, unknown[history.f[unknown] == F.ACQUIRE])
    return np.unique(np.array(bad, np.int64))


def _touching(history: History, rows: Rows, identity: Ints) -> list[int]:
    """Keys with an operation that was invoked before an earlier one of its identity had ended."""
    order = rows[np.lexsort((rows, history.key[rows], identity[rows]))]
    who, key, done = identity[order], history.key[order], history.complete_ns[order]
    same = (who[1:] == who[:-1]) & (key[1:] == key[:-1])
    epsilon = 2 * history.epsilon_ns
    touching = same & (done[:-1] >= history.invoke_ns[order[1:]] - epsilon) & (done[:-1] != NULL)
    return [int(k) for k in np.unique(key[1:][touching])]


def _extended_at_once(history: History, links: Links) -> list[int]:
    """Keys with an extend that was asked for before its acquire had completed."""
    extends = links.under(np.flatnonzero(history.f == F.EXTEND))
    granted = history.complete_ns[links.acquire[extends]] + 2 * history.epsilon_ns
    early = extends[history.invoke_ns[extends] <= granted]
    return [int(key) for key in np.unique(history.key[early])]


def _contested(history: History, links: Links, acquires: Rows) -> list[int]:
    """Keys of unknown acquires under which both ok and not-held were answered."""
    told = links.under(np.flatnonzero(links.not_held))
    if len(told) == 0 or len(acquires) == 0:
        return []
    proofs = links.under(rows_of(history, F.RELEASE, Type.OK))
    proofs = np.concatenate([proofs, links.under(rows_of(history, F.EXTEND, Type.OK))])
    both = np.isin(acquires, links.acquire[told]) & np.isin(acquires, links.acquire[proofs])
    return [int(key) for key in np.unique(history.key[acquires[both]])]


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
    # Only where an unknown and another acquire of the same identity come together can one be spare.
    acquires = np.flatnonzero(history.f[order] == F.ACQUIRE)
    several = np.bincount(group[acquires], minlength=int(group[-1]) + 1) > 1
    last_acquire = np.zeros(len(several), np.intp)
    last_acquire[group[acquires]] = acquires
    followed = several[group] | (np.arange(len(order)) < last_acquire[group])
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
            if spare or (not known and (pending or granted)):
                return True
            spare, pending, granted = not known, False, known
        elif history.type[row] == Type.FAIL:
            # Not held: whatever was pending may have done it.
            granted = False
        elif known:
            spare, pending, granted = spare or pending, False, False
        elif granted:
            # Of two unknown releases one is to spare.
            spare, pending = spare or pending, True
        else:
            spare = True
    return False
