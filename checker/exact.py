"""Linearizability of locks by one sort: the *minimal hold* rule.

The argument. Replace every lock operation by the instants at which it may take effect. A granted
acquire takes effect inside its window, and so does a release that was answered ok; an unknown one
takes effect at any time from its invocation on, or never. So whatever linearization one chooses, a
section (an acquire and what was done under it) holds the lock at least during its **core**:

    from the completion of the acquire, or of an extend that was answered ok before it, to the
    invocation of its release;
    without end if no release was called (a lease: to the end of the promise);
    and, whatever was promised, to the last invocation of an extend or release that was answered ok,
    because the answer proves that the hold was still there.

Conversely, placing each acquire at its completion and each release at its invocation makes every
section hold the lock exactly during its core. What may be held together (one owner; readers, or
one writer; n permits) is *monotone*: if a set of sections may hold it together, any subset may. So
the smallest holds are the best ones, and a history is linearizable if and only if its cores are
compatible at every instant. Cores are closed intervals of instants, but operations at one instant
can be put in any order, so cores that only touch do not conflict.

Unknown outcomes, by the same argument:

- An unknown acquire under which nothing was ever confirmed may never have happened: the smallest
  hold is none, and it is left out.
- An unknown acquire whose release (or extend) was answered ok did happen. With one confirmation its
  smallest hold is a single instant inside the window of that answer: it needs an instant at which
  no incompatible core is strictly open. Several such instants may coincide. With more than one
  confirmation it has a core, from the first completion to the last invocation.
- An unknown release takes effect at its invocation (the smallest hold) unless a later release of
  the same hold was answered ok, which proves that it had not; a later not-held answer proves
  nothing more, because the hold is over at the invocation already.
- A lease may be taken away by the service at any time after the promise, or not at all: the
  smallest hold ends with the promise.

Contradictions inside one section: a release answered ok twice, a release or extend answered ok
without any acquire, and not-held answered while nothing can have ended the hold (before any release
of unknown outcome, and within the promise).

With an ε the windows of operations are widened at both ends, so cores shrink. Where nothing is left
of a core, the section held at some instant between its shrunken end and its shrunken beginning, and
needs one there as an unknown acquire does.

Identities are holds where the history has hold ids, else the owners, else the processes, which must
then be sequential: their operations alternate, so a release belongs to the acquire before it.
Process numbers that are used again after an unknown outcome are covered by it too, as long as the
operations of the process still do not overlap; an unknown acquire is then the last acquire before
the release, exactly as if it had been granted.

Not covered, and left to the search: refused tries of a lock that declares them strict (a refusal
needs the lock to be *held*, which is not monotone), unless the lock was never free in any placement
or surely held in every one; unknown acquires of reentrant locks (a level of unknown depth); and
processes whose operations overlap in a history without hold ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.intervals import up_to, writer_overlaps
from lockbench.checker.promises import Links, effective_releases, promised_ends
from lockbench.checker.rows import FOREVER, Bools, Rows, by_key_and_time, owners, rows_of
from lockbench.history.columns import History, Ids, Ints
from lockbench.history.op import NULL, F, Mode, Type


@dataclass(frozen=True)
class Sections:
    """One entry per acquire that happened for certain, in the order of invocation.

    ``row`` of the acquire; ``core`` is the smallest hold [begin, end]; where ``floating``, the hold
    is a single instant somewhere between begin and end instead.
    """

    row: Rows
    key: Ids
    begin: Ints
    end: Ints
    floating: Bools


def sections(analysis: Analysis) -> Sections:
    """The smallest holds of a history, by the rules above."""
    history = analysis.history
    epsilon = history.epsilon_ns
    row, end = _granted_ends(analysis)
    done = history.complete_ns[row]
    early, at = _confirmed_early(analysis, row, done)
    if len(early):
        np.minimum.at(done, at, history.complete_ns[early])
        row = row.copy()  # no longer the grants in the order of their promises
    if epsilon:
        # Windows are widened at both ends, so what lies between them shrinks.
        done = done + epsilon
        end = np.where(end < FOREVER, end - epsilon, end)
    floating = end <= done
    if np.any(floating):
        begin = np.where(floating, np.clip(end, history.invoke_ns[row] - epsilon, done), done)
        end = np.where(floating, done, end)
    else:
        begin = done
    unknown = _proven_unknown(history, analysis.links)
    if len(unknown.row):
        row = np.concatenate([row, unknown.row])
        begin = np.concatenate([begin, unknown.begin])
        end = np.concatenate([end, unknown.end])
        floating = np.concatenate([floating, unknown.floating])
        order = np.argsort(row, kind="stable")
        row, begin, end, floating = row[order], begin[order], end[order], floating[order]
    return Sections(row, history.key[row], begin, end, floating)


def _confirmed_early(analysis: Analysis, row: Rows, done: Ints) -> tuple[Rows, Rows]:
    """The extends that were answered ok before their acquire was, and their places among acquires
    that were answered at ``done``."""
    history, links = analysis.history, analysis.links
    extends, at = _placed(links, row, links.under(rows_of(history, F.EXTEND, Type.OK)))
    early = history.complete_ns[extends] < done[at]
    return extends[early], at[early]


def _placed(links: Links, row: Rows, proof: Rows) -> tuple[Rows, Rows]:
    """Those of ``proof`` that are under one of the acquires in ``row``, and its place there."""
    if len(proof) == 0 or len(row) == 0:
        return proof[:0], proof[:0]
    acquire = links.acquire[proof]
    at = np.minimum(np.searchsorted(row, acquire), len(row) - 1)
    mine = row[at] == acquire
    return proof[mine], at[mine]


def _granted_ends(analysis: Analysis) -> tuple[Rows, Ints]:
    """The granted acquires and until when each surely held the lock."""
    history, promises, links = analysis.history, analysis.promises, analysis.links
    row = promises.row if np.all(promises.outer) else promises.row[promises.outer]
    release = promises.release if len(row) == len(promises) else promises.release[promises.outer]
    end = np.minimum(promises.lease, promises.lost)
    if len(row) < len(promises):
        end = end[promises.outer]
    # A not-held answer ends nothing by itself; a release of unknown outcome before it may have.
    told = (release >= 0) & links.not_held[release]
    if np.any(told):
        release = np.where(told, effective_releases(history, links)[row], release)
    released = np.flatnonzero(release >= 0)
    release = release[released]
    end[released] = np.minimum(end[released], history.invoke_ns[release])
    for f in (F.RELEASE, F.EXTEND):
        proof = links.under(rows_of(history, f, Type.OK))
        if (
            f is F.RELEASE
            and len(proof) == len(release)
            and np.all(history.type[release] == Type.OK)
        ):
            # Each release that counts was answered ok: they are their own proofs.
            end[released] = history.invoke_ns[release]
        elif len(proof):
            proof, at = _placed(links, row, proof)
            np.maximum.at(end, at, history.invoke_ns[proof])
    return row, end


def _proven_unknown(history: History, links: Links) -> Sections:
    """The unknown acquires under which something was answered ok."""
    acquires = rows_of(history, F.ACQUIRE, Type.INFO)
    proof = [links.under(rows_of(history, f, Type.OK)) for f in (F.RELEASE, F.EXTEND)]
    proven = [links.acquire[rows] for rows in proof]
    row = acquires[np.isin(acquires, np.concatenate(proven))] if len(acquires) else acquires
    first = np.full(len(row), FOREVER, np.int64)
    last = np.full(len(row), NULL, np.int64)
    for rows, acquire in zip(proof, proven, strict=True):
        mine = np.isin(acquire, row) if len(row) else np.zeros(len(acquire), np.bool_)
        at = np.searchsorted(row, acquire[mine])
        np.minimum.at(first, at, history.complete_ns[rows[mine]])
        np.maximum.at(last, at, history.invoke_ns[rows[mine]])
    extended = np.isin(row, proven[1])
    if np.any(extended):
        last[extended] = np.maximum(last, promised_ends(history, links, row))[extended]
    first += history.epsilon_ns
    last[last < FOREVER] -= history.epsilon_ns
    # A single confirmation was invoked before it completed: its window holds the instant.
    low, high = np.minimum(first, last), np.maximum(first, last)
    return Sections(row, history.key[row], low, high, first >= last)


def shared_conflict(
    analysis: Analysis, found: Sections, mine: Rows, key: int
) -> tuple[int, ...] | None:
    """Rows of acquires whose smallest holds cannot be together, or None. ``mine`` are the sections
    of one key."""
    history = analysis.history
    named = history.object_of(history.keys[key])
    if named.kind == "semaphore":
        return _crowd(found, mine, named.permits or 1)
    row = found.row[mine]
    return _writer_conflict(found, mine, history.mode[row] == Mode.READ, owners(history)[row])


def mutex_conflicts(analysis: Analysis, found: Sections, keys: Bools) -> tuple[int, ...] | None:
    """The first pair of conflicting sections over all keys marked as owned by one at a time."""
    everything = bool(np.all(keys))
    mine = np.arange(len(found.row)) if everything else np.flatnonzero(keys[found.key])
    cores = mine[~found.floating[mine]] if np.any(found.floating) else mine
    if everything and len(cores) == len(found.row) and found.row is analysis.promises.row:
        # Exactly the grants, each core beginning with its promise: they were sorted before. Where
        # every core also ends with its promise, they were compared before, too.
        if analysis.promises.disjoint and np.array_equal(found.end, analysis.promises.end):
            return None
        order = analysis.promises.order
    else:
        order = cores[by_key_and_time(found.key[cores], found.begin[cores])]
    return _mutex_conflict(found, mine, order)


def _mutex_conflict(found: Sections, mine: Rows, order: Rows) -> tuple[int, ...] | None:
    """Of sections of which ``order`` are the cores by key and beginning."""
    key = found.key[order]
    begin, end = found.begin[order[1:]], found.end[order[:-1]]
    wrong = np.flatnonzero((end > begin) & (key[:-1] == key[1:]))
    if len(wrong):
        first = wrong[np.argmin(begin[wrong])]
        return int(found.row[order[first]]), int(found.row[order[first + 1]])
    instants = mine[found.floating[mine]]
    if len(instants) == 0 or len(order) == 0:
        return None
    # Cores are disjoint here, so only the last one that begins before can cover the window.
    before = up_to(key, found.begin[order], found.key[instants], found.begin[instants] - 1) - 1
    last = order[np.maximum(before, 0)]
    covers = (before >= 0) & (found.key[last] == found.key[instants])
    covers &= found.end[last] > found.end[instants]
    at = np.flatnonzero(covers)[:1]
    return (int(found.row[last[at[0]]]), int(found.row[instants[at[0]]])) if len(at) else None


def _writer_conflict(
    found: Sections, mine: Rows, reads: Bools, owner: Ints
) -> tuple[int, ...] | None:
    """``reads`` and ``owner`` are those of ``mine``. Who writes may hold beside himself."""
    order = np.argsort(found.begin[mine], kind="stable")
    order = order[~found.floating[mine][order]]
    cores = mine[order]
    overlaps = writer_overlaps(found.begin[cores], found.end[cores], reads[order], owner[order])
    if pair := next(overlaps, None):
        return int(found.row[cores[pair[0]]]), int(found.row[cores[pair[1]]])
    everybody = _Cores(found, cores)
    writers = _Cores(found, cores[~reads[order]])
    owner_of = dict(zip(mine.tolist(), owner.tolist(), strict=True))
    for i in np.flatnonzero(found.floating[mine]).tolist():
        near = (writers if reads[i] else everybody).near(int(mine[i]))
        near = near[[owner_of[j] != owner[i] for j in near.tolist()]] if len(near) else near
        if not _has_instant(found, int(mine[i]), near, 1):
            return int(found.row[mine[i]]), *found.row[near[:1]].tolist()
    return None


def _crowd(found: Sections, mine: Rows, permits: int) -> tuple[int, ...] | None:
    cores = mine[~found.floating[mine]]
    order = cores[np.argsort(found.begin[cores], kind="stable")]
    begins, ends = found.begin[order], np.sort(found.end[order])
    # When core number i begins, those that ended at or before are gone.
    held = np.arange(1, len(order) + 1) - np.searchsorted(ends, begins, side="right")
    over = np.flatnonzero(held > permits)
    if len(over):
        now = begins[over[0]]
        crowd = [int(found.row[i]) for i in order[: over[0] + 1] if found.end[i] > now]
        return tuple(crowd[: permits + 1])
    everybody = _Cores(found, order)
    for i in mine[found.floating[mine]].tolist():
        near = everybody.near(i)
        if not _has_instant(found, i, near, permits):
            return int(found.row[i]), *found.row[near[:permits]].tolist()
    return None


class _Cores:
    """Cores in the order of their beginning, to be asked which of them meet a window."""

    def __init__(self, found: Sections, order: Rows) -> None:
        self._found = found
        self._order = order
        self._begin = found.begin[order]
        self._ended = np.maximum.accumulate(found.end[order])

    def near(self, i: int) -> Rows:
        """The cores that are strictly open at some instant of section ``i``, or all but."""
        first = np.searchsorted(self._ended, self._found.begin[i], side="left")
        last = np.searchsorted(self._begin, self._found.end[i], side="right")
        some = self._order[first:last]
        near: Rows = some[self._found.end[some] >= self._found.begin[i]]
        return near


def _has_instant(found: Sections, i: int, near: Rows, permits: int) -> bool:
    """Whether an instant of a floating section's window lies strictly inside fewer than ``permits``
    of the cores near it. The number only falls where a core begins or ends, so those instants
    suffice."""
    begin, end = found.begin[near], found.end[near]
    edges = np.concatenate([begin, end, found.begin[[i]], found.end[[i]]])
    edges = np.unique(edges[(edges >= found.begin[i]) & (edges <= found.end[i])])
    begun = np.searchsorted(np.sort(begin), edges, side="left")
    over = np.searchsorted(np.sort(end), edges, side="right")
    return bool(np.any(begun - over < permits))
