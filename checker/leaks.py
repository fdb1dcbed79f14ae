"""``leaked-lock``: a key that nobody can hold any more, and that nobody is granted.

Judged where the history has a quiet phase: when the load is over, its recorder marks each key with
``F.QUIET`` and asks for it until it is granted. A history without such marks has no such verdict.

Nobody can hold a key from the latest of these on: the mark; the last heal; the last death of a
client; the end of every known hold (its confirmed release, its lease, its loss); the invocation of
every acquire and release whose outcome is unknown. What may still be on its way then, or be kept by
a service that has not noticed a death, is over a lease and a slack later (``Object.lease_ns`` and
``slack_ns``; a longer lease that was ever promised counts instead).

- *leaked*: an attempt that began only after that was refused, and the service granted another key
  at that time or later; and nobody else who asks in the quiet phase may have had it just then. Of
  a semaphore: not all its permits.
- *free*: it was granted (a semaphore: all permits at once), and never refused that late.
- *undecided*: anything else: attempts without an answer, a holder that may still be there, too few
  attempts.

One leaked key is invalid; else one undecided key is unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.exclusion import permits_of
from lockbench.checker.intervals import ByKey, open_during
from lockbench.checker.kinds import OWNERLESS, keys_of
from lockbench.checker.rows import FOREVER, Rows, rows_of
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import clock, during, faults_on, many, operation
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Type

# What a refusal begins with that says: somebody else has it.
TAKEN: Final = ("held", "gave-up")
# It was not even asked.
NOT_ASKED: Final = ("no-effect", "gave-up: no-effect")


def quiet_ns(history: History) -> int:
    """When the load was over: what was asked for from then on is no part of it. FOREVER where a
    history has no quiet phase."""
    marks = rows_of(history, F.QUIET)
    return int(history.invoke_ns[marks].min()) if len(marks) else FOREVER


def of_the_load(history: History, rows: Rows) -> Rows:
    """Without what was asked for in the quiet phase."""
    end_ns = quiet_ns(history)
    return rows if end_ns == FOREVER else rows[history.invoke_ns[rows] < end_ns]


@dataclass(frozen=True, slots=True)
class _Leak:
    """``free_ns``: from when on nobody could hold the key; ``left`` the last operation before the
    quiet phase that may have left it behind, of those without an answer if there are any;
    ``refused`` the attempts that were too late to be refused; ``served`` a grant of another key."""

    key: int
    free_ns: int
    left: int
    refused: Rows
    served: int


def leaked_lock(analysis: Analysis) -> Verdict | None:
    """Absent in a history without a quiet phase."""
    history, found = analysis.history, _asked_in_quiet(analysis)
    if not found:
        return None
    leaks = [answer for answer in found.values() if isinstance(answer, _Leak)]
    undecided = [f"{history.keys[k]}: {why}" for k, why in found.items() if isinstance(why, str)]
    if leaks:
        return _invalid(analysis, leaks)
    if undecided:
        more = f"; {len(undecided)} keys of {len(found)}" if len(undecided) > 1 else ""
        return Verdict("unknown", f"{undecided[0]}{more}")
    return Verdict("valid", f"{many(len(found), 'key')}, each granted again after the load")


def leaked_keys(analysis: Analysis) -> dict[int, int]:
    """The keys that ``leaked-lock`` calls leaked, though the service granted others: key → the row
    of the last operation that may have left it behind."""
    found = _asked_in_quiet(analysis).items()
    return {key: answer.left for key, answer in found if isinstance(answer, _Leak)}


def _asked_in_quiet(analysis: Analysis) -> dict[int, _Leak | str | None]:
    """For each key of the quiet phase a leak, why it cannot be decided, or None: it is free."""
    history = analysis.history
    marks = rows_of(history, F.QUIET)
    marks = marks[~keys_of(history, frozenset({OWNERLESS}))[history.key[marks]]]
    keys, first = np.unique(history.key[marks], return_index=True)
    asked = _Asked(analysis)
    marked = zip(keys.tolist(), marks[first].tolist(), strict=True)
    return {key: asked.of(key, int(history.invoke_ns[mark])) for key, mark in marked}


class _Asked:
    """What was asked of each key, before the quiet phase and in it."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        history = self._history = analysis.history
        self._healed_ns = max(
            (FOREVER if f.heal_ns is None else f.heal_ns[1] for f in history.faults), default=0
        )
        acquires = rows_of(history, F.ACQUIRE)
        self._acquires = ByKey(history.key[acquires], acquires)
        unsure = analysis.links.under(rows_of(history, F.RELEASE, Type.INFO))
        self._unsure_releases = ByKey(history.key[unsure], unsure)
        self._granted = rows_of(history, F.ACQUIRE, Type.OK)
        deaths = rows_of(history, F.DEATH)
        self._dead = np.unique(history.process[deaths])
        self._died_ns = int(np.max(history.invoke_ns[deaths], initial=0))
        self._lease_ns = _longest_lease(history)
        holds = np.flatnonzero(analysis.promises.outer)
        self._holds = ByKey(analysis.promises.key[holds], holds)

    def of(self, key: int, mark_ns: int) -> _Leak | str | None:
        """A leak, why it cannot be decided, or None: the key is free."""
        history = self._history
        acquires = self._acquires[key]
        quiet = history.invoke_ns[acquires] >= mark_ns
        before, attempts = acquires[~quiet], acquires[quiet]
        unknown = acquires[history.type[acquires] == Type.INFO]
        if not self._answered_or_dead(unknown):
            return "an acquire was still under way when the history ended"
        unsure = self._unsure_releases[key]
        ends, holds = self._ends(key, mark_ns)
        free_ns = max(
            mark_ns,
            self._healed_ns,
            self._died_ns,
            int(np.max(history.invoke_ns[unknown], initial=0)),
            int(np.max(history.invoke_ns[unsure], initial=0)),
            int(np.max(ends, initial=0)),
        )
        named = history.object_of(history.keys[key])
        lease_ns = max(named.lease_ns or 0, self._lease_ns)
        width_ns = 2 * history.epsilon_ns
        due_ns = free_ns + lease_ns + (named.slack_ns or 0) + width_ns
        refused = attempts[(history.type[attempts] == Type.FAIL) & self._taken(attempts)]
        late = refused[history.invoke_ns[refused] >= due_ns]
        late = late[self._held_during(key, late, mark_ns) < permits_of(history, key)]
        if free_ns < FOREVER and len(late):
            served = self._served(key, due_ns)
            if served is None:
                return "it was refused, but nothing else was granted at that time"
            # Of a hold that is over for certain nothing should be left.
            open_ends = [*before[np.isin(before, unknown)], *unsure]
            left = max(open_ends or holds, default=int(late[0]))
            return _Leak(key, free_ns, int(left), late, served)
        if self._all_permits(key, attempts):
            return None
        if len(attempts) == 0:
            return "nobody asked for it after the load"
        if free_ns >= FOREVER:
            return "somebody may still hold it, without a limit, or a fault was never healed"
        return f"{many(len(attempts), 'attempt')}, none granted, none refused late enough"

    def _answered_or_dead(self, unknown: Rows) -> bool:
        """Whether each of these ended in an error or with its client: what is still being waited
        for may be granted at any time."""
        history = self._history
        open_ = history.error[unknown] < 0
        return bool(np.all(np.isin(history.process[unknown[open_]], self._dead)))

    def _ends(self, key: int, mark_ns: int) -> tuple[list[int], list[int]]:
        """When each known hold from before the quiet phase was over, and the row that ended it, as
        far as there is one."""
        history, held = self._history, self._analysis.promises
        ends, rows = [], []
        for i in self._holds[key].tolist():
            if history.invoke_ns[held.row[i]] >= mark_ns:
                continue
            release = int(held.release[i])
            done = int(history.complete_ns[release]) if release >= 0 else NULL
            end = int(held.end[i])
            shrunk = 2 * history.epsilon_ns if end < FOREVER else 0
            ends.append(end + shrunk if done == NULL else done)
            rows.append(release if release >= 0 else int(held.row[i]))
        return ends, rows

    def _held_during(self, key: int, rows: Rows, mark_ns: int) -> Ints:
        """How many of those who asked after the load may have held the key during each of these:
        from the request until the release was answered, or without that until the lease was over.
        """
        history, held, width = self._history, self._analysis.promises, self._history.epsilon_ns
        first, last = history.invoke_ns[rows] - width, history.complete_ns[rows] + width
        holds = self._holds[key]
        holds = holds[history.invoke_ns[held.row[holds]] >= mark_ns]
        release = held.release[holds]
        done = np.where(release >= 0, history.complete_ns[release], NULL)
        begun = history.invoke_ns[held.row[holds]]
        ended = np.minimum(held.lease[holds], held.lost[holds])
        over = np.maximum(np.where(done == NULL, ended, done), begun)
        return open_during(begun, over, first, last)

    def _taken(self, rows: Rows) -> np.ndarray:
        """Which of these were told that somebody else has it."""
        said = [i for i, e in enumerate(self._history.errors) if e.startswith(TAKEN)]
        never = [i for i, e in enumerate(self._history.errors) if e.startswith(NOT_ASKED)]
        error = self._history.error[rows]
        return np.isin(error, said) & ~np.isin(error, never)

    def _served(self, key: int, since_ns: int) -> int | None:
        """A grant of another key that was answered after a time: the service is there."""
        history, granted = self._history, self._granted
        others = granted[(history.key[granted] != key) & (history.complete_ns[granted] >= since_ns)]
        return int(others[0]) if len(others) else None

    def _all_permits(self, key: int, attempts: Rows) -> bool:
        """Whether who asked had as many holds at once as there are permits."""
        history, held = self._history, self._analysis.promises
        got = attempts[history.type[attempts] == Type.OK]
        permits = permits_of(history, key)
        if permits == 1 or len(got) < permits:
            return len(got) >= permits
        mine = np.flatnonzero(np.isin(held.row, got))
        return int(np.max(held.at_once(mine, held.start[mine]), initial=0)) >= permits


def _longest_lease(history: History) -> int:
    """The longest lease that anybody was ever promised in one answer, counted from its request."""
    longest = 0
    for f in (F.ACQUIRE, F.EXTEND):
        rows = rows_of(history, f, Type.OK)
        limited = rows[history.valid_until_ns[rows] != NULL]
        sent = history.sent_ns[limited]
        since = np.where(sent == NULL, history.invoke_ns[limited], sent)
        longest = max(longest, int(np.max(history.valid_until_ns[limited] - since, initial=0)))
    return longest


def _invalid(analysis: Analysis, leaks: list[_Leak]) -> Verdict:
    history, leak = analysis.history, leaks[0]
    last = int(leak.refused[-1])
    end_ns = int(history.complete_ns[last])
    free, until = clock(history, [leak.free_ns, end_ns])
    begin_ns = int(history.invoke_ns[leak.left])
    reason = (
        f"nobody could hold {analysis.key(last)} from {free} s on, and {analysis.name(last)} was "
        f"still refused it at {until} s, {(end_ns - leak.free_ns) / 1e9:.1f} s later, while "
        f"{analysis.key(leak.served)} was granted{during(analysis, begin_ns, begin_ns)}; "
        f"{many(len(leaks), 'leaked key')}"
    )
    evidence = (
        operation(analysis, leak.left, ", the last that may have left it behind"),
        operation(analysis, last),
        operation(analysis, leak.served),
    )
    return Verdict("invalid", reason, (*evidence, *faults_on(analysis, begin_ns, begin_ns)))
