"""Reentrant locks: folds the grants that an owner received while it held already.

Only the outermost grant of a hold promises anything to the rest of the world; it ends with the
release that brings the owner's depth back to nothing. Where an outcome is unknown, the fold takes
the side that makes the promise shorter: an unknown acquire does not deepen the hold, an unknown
release does end one level. A hold whose lease ran out, or whose loss was notified, is no longer
there to be entered again. Where an owner acts from several processes at once, a level counts from
its answer on only, and a grant beside a release that may have ended it promises nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lockbench.checker.kinds import REENTRANT, keys_of
from lockbench.checker.promises import Links, holds_end
from lockbench.checker.rows import FOREVER, Rows, answered_ns, failed_with, owners, rows_of
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type


@dataclass(slots=True)
class _Depth:
    outer: int
    levels: int
    told_ns: int  # when the last grant was answered


def fold(
    history: History,
    links: Links,
    chosen: NDArray[np.bool_],
    row: Rows,
    columns: tuple[Ints, Ints, Rows, NDArray[np.bool_], Ints, Rows],
) -> None:
    """Changes the columns (lease, lost, release, outer, vague_ns, outermost) of the ``chosen``
    grants in place."""
    lease, lost, release, outer, vague_ns, outermost = columns
    release[chosen] = -1
    width = 2 * history.epsilon_ns
    keys = np.unique(history.key[row[chosen]])
    releases = rows_of(history, F.RELEASE)
    says = (history.type[releases] != Type.FAIL) | links.not_held[releases]
    releases = releases[says & np.isin(history.key[releases], keys)]
    events = np.concatenate([releases, row[chosen]])
    # A level is there from its answer on, and may be gone once its release was asked for.
    at_ns = np.concatenate([history.invoke_ns[releases] - width, history.complete_ns[row[chosen]]])
    order = np.argsort(at_ns, kind="stable")
    events = events[order]
    # The grant of each event, -1 for a release.
    grants = np.append(np.full(len(releases), -1), np.flatnonzero(chosen))[order].tolist()
    keys_and_owners = zip(
        history.key[events].tolist(), owners(history)[events].tolist(), strict=True
    )
    invoked, told = history.invoke_ns[events].tolist(), links.not_held[events].tolist()
    done = answered_ns(history, events).tolist()
    failed, ending = (history.type[events] == Type.FAIL).tolist(), holds_end(history).tolist()
    ends, losses = lease.tolist(), lost.tolist()
    depths: dict[tuple[int, int], _Depth] = {}
    # When the releases were answered that may be about a grant to come.
    to_come: dict[tuple[int, int], list[int]] = {}
    for at, who in enumerate(keys_and_owners):
        held, i = depths.get(who), grants[at]
        # What is answered after that may be about another hold.
        over_ns = NULL
        if held is not None:
            over_ns = min(ends[held.outer], losses[held.outer]) - width
        if i >= 0:
            # Of two grants at the same time either may have been the last.
            at_once = held is not None and invoked[at] - width <= held.told_ns
            renewed = min(ends[i], ends[held.outer]) if held is not None and at_once else ends[i]
            if held is None or over_ns <= done[at]:
                ends[i] = renewed
                depths[who] = _Depth(i, 1, done[at])
                left = [end for end in to_come.pop(who, ()) if end >= invoked[at] - width]
                if left:
                    # It is over with one of them, and is no level of any hold.
                    del depths[who]
                    vague_ns[i] = invoked[at]
                    known = min(left) < FOREVER
                    to_come[who] = sorted(left)[1:] if known else left
                continue
            held.levels += 1
            outer[i], outermost[i] = False, held.outer
            if ends[i] < FOREVER:
                ends[held.outer] = renewed
            held.told_ns = max(held.told_ns, done[at])
            losses[held.outer] = min(losses[held.outer], losses[i])
            continue
        unsure = held is None or done[at] >= over_ns or (done[at] == FOREVER and ending[who[0]])
        if unsure and not failed[at]:
            to_come.setdefault(who, []).append(done[at])
        if held is not None:
            held.levels = 0 if told[at] else held.levels - 1
            if held.levels == 0:
                release[held.outer] = events[at]
                del depths[who]
    lease[:], lost[:] = ends, losses


def unbalanced(history: History) -> list[int]:
    """The reentrant keys on which the fast rule says nothing: where a hold may end by itself or an
    outcome is unknown, so that the depth is not certain; where an owner was told that he holds
    nothing, or extended; and where his levels do not go up and down one after the other."""
    reentrant = keys_of(history, REENTRANT)
    if not np.any(reentrant):
        return []
    lock = (history.f == F.ACQUIRE) | (history.f == F.RELEASE)
    done = lock & (history.type == Type.OK)
    harmless = lock & (history.type == Type.FAIL) & ~failed_with(history, "not-held")
    harmless |= (history.f > F.DEATH) | ((history.f == F.EXTEND) & (history.type == Type.INFO))
    other = ~done & ~harmless | (done & (history.valid_until_ns != NULL))
    bad = np.zeros(len(history.keys), np.bool_)
    bad[history.key[other]] = True
    bad |= bool(np.any(history.f == F.DEATH))
    rows = np.flatnonzero(done & (reentrant & ~bad)[history.key])
    rows = rows[np.lexsort((rows, owners(history)[rows], history.key[rows]))]
    if len(rows):
        who, key = owners(history)[rows], history.key[rows]
        first = np.ones(len(rows), np.bool_)
        first[1:] = (who[1:] != who[:-1]) | (key[1:] != key[:-1])
        level = np.cumsum(np.where(history.f[rows] == F.ACQUIRE, 1, -1))
        before = np.append(0, level[:-1])[first]
        level -= before[np.cumsum(first) - 1]
        ended = history.complete_ns[rows[:-1]] + 2 * history.epsilon_ns
        touching = ~first[1:] & (ended >= history.invoke_ns[rows[1:]])
        bad[key[level < 0]] = True
        bad[key[1:][touching]] = True
    return np.flatnonzero(bad & reentrant).tolist()
