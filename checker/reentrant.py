"""Reentrant locks: folds the grants that an owner received while it held already.

Only the outermost grant of a hold promises anything to the rest of the world; it ends with the
release that brings the owner's depth back to nothing. Where an outcome is unknown, the fold takes
the side that makes the promise shorter: an unknown acquire does not deepen the hold, an unknown
release does end one level. A hold whose lease ran out, or whose loss was notified, is no longer
there to be entered again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from checker.kinds import REENTRANT, keys_of
from checker.promises import FOREVER, Links, Rows, owners, rows_of
from history.columns import History, Ints
from history.op import NULL, F, Type


@dataclass(slots=True)
class _Depth:
    outer: int
    levels: int


def fold(
    history: History,
    links: Links,
    chosen: NDArray[np.bool_],
    row: Rows,
    columns: tuple[Ints, Ints, Rows, NDArray[np.bool_]],
) -> None:
    """Changes the columns (lease, lost, release, outer) of the ``chosen`` grants in place."""
    lease, lost, release, outer = columns
    release[chosen] = -1
    grant_at = {int(row[i]): int(i) for i in np.flatnonzero(chosen)}
    keys = np.unique(history.key[row[chosen]])
    everyone = owners(history)
    releases = rows_of(history, F.RELEASE)
    releases = releases[np.isin(history.key[releases], keys)]
    depths: dict[tuple[int, int], _Depth] = {}
    width = 2 * history.epsilon_ns
    for event in sorted([*grant_at, *releases.tolist()]):
        who = (int(history.key[event]), int(everyone[event]))
        held = depths.get(who)
        if event in grant_at:
            i = grant_at[event]
            now = int(history.invoke_ns[event])
            if held is None or min(int(lease[held.outer]), int(lost[held.outer])) - width <= now:
                depths[who] = _Depth(i, 1)
                continue
            held.levels += 1
            outer[i] = False
            if lease[i] < FOREVER:
                lease[held.outer] = lease[i]
            lost[held.outer] = min(int(lost[held.outer]), int(lost[i]))
        elif held is not None:
            if links.not_held[event]:
                held.levels = 0
            elif history.type[event] != Type.FAIL:
                held.levels -= 1
            if held.levels == 0:
                release[held.outer] = event
                del depths[who]


def unbalanced(history: History, links: Links, row: Rows, outer: NDArray[np.bool_]) -> list[int]:
    """The reentrant keys on which levels do not simply go up and down: a release, an extend or a
    not-held answer at a level at which it cannot be, by the smallest levels; or a hold that was
    entered again after its promise, of which the service may have made a deeper level or a new
    hold. Only a search can say whether another level explains it. ``row`` are the granted acquires,
    ``outer`` those that began a hold."""
    reentrant = keys_of(history, REENTRANT)
    if not np.any(reentrant):
        return []
    events = np.flatnonzero(reentrant[history.key] & ((history.type != Type.FAIL) | links.not_held))
    everyone = owners(history)
    levels: dict[tuple[int, int], int] = {}
    # Of grants with a limit and grants without one, which belongs to which hold is not certain.
    granted = events[(history.f[events] == F.ACQUIRE) & (history.type[events] == Type.OK)]
    limited = history.valid_until_ns[granted] != NULL
    mixed = np.intersect1d(history.key[granted[limited]], history.key[granted[~limited]])
    bad: set[int] = set(mixed.tolist())
    begins = set(row[outer].tolist())
    for event in events.tolist():
        f, known = history.f[event], history.type[event] == Type.OK
        who = (int(history.key[event]), int(everyone[event]))
        level = levels.get(who, 0)
        if f == F.ACQUIRE:
            if known and level > 0 and event in begins:
                bad.add(who[0])
            levels[who] = level + 1 if known else level
        elif links.not_held[event] or (f == F.EXTEND and known and level == 0):
            bad.add(who[0])
        elif f == F.RELEASE:
            if level == 0:
                bad.add(who[0])
            levels[who] = max(0, level - 1)
    return sorted(bad)
