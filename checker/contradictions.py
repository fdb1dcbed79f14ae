"""Contradictions inside one hold, and histories that the minimal hold rule cannot pair up.

See ``lockbench.checker.exact`` for the argument that both belong to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.kinds import REENTRANT, SHARED, keys_of
from lockbench.checker.promises import Links, Sequences, holds_end
from lockbench.checker.rows import FOREVER, Bools, Rows, owners, rows_of
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type

# Reading a member of an Enum class costs more than what is done with it.
ACQUIRE: Final = int(F.ACQUIRE)
OK: Final = int(Type.OK)
FAIL: Final = int(Type.FAIL)


@dataclass(frozen=True)
class Contradiction:
    """Rows that no linearization can put in order, and why."""

    rows: tuple[int, ...]
    reason: str


def contradiction(analysis: Analysis, chosen: Bools) -> Contradiction | None:
    """The first contradiction on the ``chosen`` keys, on which sections can be told apart."""
    history, links = analysis.history, analysis.links
    releases = _on(history, rows_of(history, F.RELEASE, Type.OK), chosen)
    extends = _on(history, rows_of(history, F.EXTEND, Type.OK), chosen)
    proofs = np.concatenate([releases, extends]) if len(extends) else releases
    # Who holds a reentrant lock may name any of its levels.
    homeless = proofs[
        (links.acquire[proofs] < 0) & ~keys_of(history, REENTRANT)[history.key[proofs]]
    ]
    if len(homeless):
        return Contradiction((int(homeless[0]),), "answered ok without any hold")
    plain = ~keys_of(history, REENTRANT)
    proofs = links.under(proofs)
    releases, proofs = _on(history, releases, plain), _on(history, proofs, plain)
    last = np.full(len(history), -1, np.intp)
    last[links.acquire[releases]] = releases
    twice = releases[last[links.acquire[releases]] != releases]
    if len(twice):
        again = int(last[links.acquire[twice[0]]])
        return Contradiction((int(twice[0]), again), "one hold was released twice, both ok")
    told = links.under(np.flatnonzero(links.not_held & (chosen & plain)[history.key]))
    gone = _after_the_end(history, links, np.concatenate([releases, told]), extends, told)
    return gone or _told_too_early(analysis, told)


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


def _told_too_early(analysis: Analysis, told: Rows) -> Contradiction | None:
    """Not-held, answered while nothing can have ended the hold: neither a release of whatever
    outcome, nor its lease, nor a loss."""
    history, promises, links = analysis.history, analysis.promises, analysis.links
    if len(told) == 0:
        return None
    index = analysis.grant_of[links.acquire[told]]
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


def unpaired(analysis: Analysis) -> Ints:
    """The keys on which sections cannot be told apart for certain, so that only a search decides.

    A pending operation of the same identity (a hold id; the process where there is none) that could
    still take effect inside a *later* section would belong to two sections at once. That is
    possible only for a spare one:

    - an unknown acquire that is followed by another acquire of the same identity: it could serve
      that one's release;
    - an unknown release after which the hold was still released for certain (or which came without
      a granted acquire), followed by another acquire: it could end that one's hold early;
    - of locks that are shared, an acquire while the identity still has a hold: a release may be of
      either.

    An unknown release directly followed by a granted acquire of the same identity is not spare: the
    new grant proves that it took effect, unless the hold may have ended by itself or there was
    place for both. Further: operations of one identity whose windows overlap
    or touch, and so may have taken effect in either order (except extends under a hold id, which
    run in the background, once the acquire has been asked for); operations of one key of which some
    name their hold and some do not; answers of a hold at the time of its acquire; not-held where
    that may be said of any of several holds; an unknown acquire while the identity may still hold
    from before; and an unknown acquire under which both ok and not-held were
    answered.
    """
    history, links = analysis.history, analysis.links
    says = (history.type != Type.FAIL) | links.not_held
    paired = ((history.f == F.ACQUIRE) | (history.f == F.RELEASE)) & says
    bad: list[int] = np.unique(history.key[links.vague_ns < FOREVER]).tolist()
    bad += _told_of_one_of_several(history, links) + _before_its_acquire(history, links)
    if links.by_hold is not None:
        named = history.hold != NULL
        if not np.all(named):
            used = (paired | (history.f == F.EXTEND)) & says
            bad += np.intersect1d(history.key[used & named], history.key[used & ~named]).tolist()
        sequences = links.by_hold.only(paired)
        bad += _touching(history, sequences) + _spare(history, sequences)
        bad += _extended_at_once(history, links)
    if links.by_process is not None:
        loose = paired
        if links.by_hold is not None:
            loose = paired & (history.hold == NULL)
        sequences = links.by_process.only(loose)
        bad += _spare(history, sequences)
        extends = (history.f == F.EXTEND) & says
        if np.any(extends):
            sequences = links.by_process.only(loose | extends)
        bad += _touching(history, sequences)
    unknown = rows_of(history, F.ACQUIRE, Type.INFO)
    if len(unknown):
        bad += _contested(history, links, unknown)
    return np.unique(np.array(bad, np.int64))


def _told_of_one_of_several(history: History, links: Links) -> list[int]:
    """Keys of shared locks with a not-held that names no hold, or one asked for several times."""
    told = np.flatnonzero(keys_of(history, SHARED)[history.key] & links.not_held)
    if len(told) == 0:
        return []
    names, often = np.unique(history.hold[rows_of(history, F.ACQUIRE)], return_counts=True)
    vague = (history.hold[told] == NULL) | np.isin(history.hold[told], names[often > 1])
    return [int(key) for key in np.unique(history.key[told[vague]])]


def _before_its_acquire(history: History, links: Links) -> list[int]:
    """Keys with an answer of a hold that was asked for at the time of its acquire or before."""
    proofs = np.concatenate(
        [rows_of(history, F.RELEASE, Type.OK), rows_of(history, F.EXTEND, Type.OK)]
    )
    homeless = proofs[links.acquire[proofs] < 0]
    acquires = rows_of(history, F.ACQUIRE, Type.OK, Type.INFO)
    who, bad = owners(history), set()
    for row in homeless.tolist():
        by = int(history.complete_ns[row]) + 2 * history.epsilon_ns
        key, last = int(history.key[row]), int(np.searchsorted(history.invoke_ns, by, "right"))
        near = acquires[(acquires > row) & (acquires < last)] if key not in bad else acquires[:0]
        mine = (history.hold[near] == history.hold[row]) | (who[near] == who[row])
        if np.any(mine & (history.key[near] == key)):
            bad.add(key)
    return sorted(bad)


def _touching(history: History, sequences: Sequences) -> list[int]:
    """Keys with an operation that was invoked before an earlier one of its identity had ended."""
    row, same = sequences.rows, sequences.same[1:]
    done, invoked = history.complete_ns[row[:-1]], history.invoke_ns[row[1:]]
    if history.epsilon_ns:
        invoked = invoked - 2 * history.epsilon_ns
    touching = same & (done >= invoked) & (done != NULL)
    return [int(k) for k in np.unique(history.key[row[1:][touching]])]


def _extended_at_once(history: History, links: Links) -> list[int]:
    """Keys with an extend that was asked for before its acquire had completed and is no proof of
    it, or may have taken effect under a later acquire of the same name."""
    extends = links.under(np.flatnonzero(history.f == F.EXTEND))
    acquire = links.acquire[extends]
    width = 2 * history.epsilon_ns
    early = history.invoke_ns[extends] <= history.complete_ns[acquire] + width
    proof = (history.type[extends] == Type.OK) & (history.type[acquire] == Type.OK)
    early &= ~proof
    acquires = rows_of(history, F.ACQUIRE, Type.OK, Type.INFO)
    names, often = np.unique(history.hold[acquires], return_counts=True)
    again = np.isin(history.hold[extends], names[often > 1]) & (history.hold[extends] != NULL)
    return [int(key) for key in np.unique(history.key[extends[early | again]])]


def _contested(history: History, links: Links, acquires: Rows) -> list[int]:
    """Keys of unknown acquires under which both ok and not-held were answered."""
    told = links.under(np.flatnonzero(links.not_held))
    if len(told) == 0 or len(acquires) == 0:
        return []
    proofs = links.under(rows_of(history, F.RELEASE, Type.OK))
    proofs = np.concatenate([proofs, links.under(rows_of(history, F.EXTEND, Type.OK))])
    both = np.isin(acquires, links.acquire[told]) & np.isin(acquires, links.acquire[proofs])
    return [int(key) for key in np.unique(history.key[acquires[both]])]


def _spare(history: History, sequences: Sequences) -> list[int]:
    """The keys of identities with a spare operation."""
    row = sequences.rows
    unknown = history.type[row] == Type.INFO
    shared = keys_of(history, SHARED)
    if len(row) == 0 or not (np.any(unknown) or np.any(shared)):
        return []
    group = np.cumsum(~sequences.same) - 1
    # Only an unknown that another acquire of the same identity follows can be spare, or an unknown
    # acquire that another one precedes.
    is_acquire = history.f[row] == F.ACQUIRE
    acquires = np.flatnonzero(is_acquire)
    several = np.bincount(group[acquires], minlength=int(group[-1]) + 1) > 1
    last_acquire = np.zeros(len(several), np.intp)
    last_acquire[group[acquires]] = acquires
    suspect = unknown & (is_acquire & several[group] | (np.arange(len(row)) < last_acquire[group]))
    if np.any(shared):
        suspect |= shared[history.key[row]] & several[group]
    edges = np.flatnonzero(np.append(~sequences.same, True))
    ending = shared | holds_end(history)
    bad = []
    for g in np.unique(group[suspect]).tolist():
        mine = row[edges[g] : edges[g + 1]]
        key = int(history.key[mine[0]])
        functions, outcomes = history.f[mine].tolist(), history.type[mine].tolist()
        if _has_spare(functions, outcomes, ends=bool(ending[key]), shared=bool(shared[key])):
            bad.append(key)
    return bad


def _has_spare(functions: list[int], outcomes: list[int], *, ends: bool, shared: bool) -> bool:
    """Whether the operations of one identity, in their order, leave one that could serve twice.
    ``ends``: a hold may end by itself, or the lock has place for another one."""
    spare = False
    pending = False  # an unknown release that the next granted acquire would account for
    granted = False
    for f, outcome in zip(functions, outcomes, strict=True):
        known = outcome == OK
        if f == ACQUIRE:
            if spare or (not known and (pending or granted)) or (pending and ends):
                return True
            if granted and shared:
                return True
            spare, pending, granted = not known, False, known
        elif outcome == FAIL:
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
