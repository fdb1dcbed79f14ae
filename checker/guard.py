"""``broken-guard``: whether a guarded store did what its own check says, write by write.

A store applies a write by its guard's rule (``lockbench.history.guarded.Rule``) and keeps a record
of what it applied, in its own order. The rule is replayed over that record and over what clients
were told:

``newer``      a write is applied if its fence is above every fence applied before;
``unchanged``  a write is applied if nothing was applied since the version that it was made from;
``held``       a write is applied while the service's own record has the hold's entry;
``once``       a write is applied if the thing that it does was not done before: here the writes are
               effects, and the record has no order;
``any``        every write is applied.

The store is accused of four things, and of nothing else:

- it applied a write although the rule refuses it at its place in the record;
- it refused a write although nothing that may have been applied before gave it a reason: of a
  refusal the place is not known, so every write that began before the refusal was answered counts;
- it put a write behind one that was begun only after it had been confirmed;
- it holds a write whose client was told that nothing was done.

A confirmed write that the record does not have is counted (``gone``). Whether it was lost is what
``lost-update`` says; a store that was failed over may have lost it and the highest fence with it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.resource import Uses, uses_in
from lockbench.checker.rows import Bools, Rows
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import during, many, operation
from lockbench.history.guarded import Applied, Guarded
from lockbench.history.op import INT_MAX, NULL, F, Type
from lockbench.history.service import Tenure

REFUSED = "refused"  # how the error of a write begins that the guard refused
REFUSES = {
    "newer": "its check refuses a fence that is not above every fence applied before",
    "unchanged": "its check refuses a write that was made from another version",
    "held": "its check refuses a write whose lock is not held any more",
    "once": "its check refuses a thing that was done before",
    "any": "it refuses nothing",
}


@dataclass(frozen=True)
class Difference:
    """One write on which store and rule differ: the sentence, and rows that show it."""

    said: str
    rows: tuple[int, ...]


class Guard:
    """A store's record and what its clients were told, side by side."""

    def __init__(self, analysis: Analysis, guarded: Guarded) -> None:
        self._analysis = analysis
        self._history = analysis.history
        self.guarded = guarded
        once = guarded.rule == "once"
        self.writes = np.flatnonzero(self._history.f == (F.EFFECT if once else F.WRITE))
        self._made = self._history.version if once else self._history.value

    @cached_property
    def by_key(self) -> dict[str, list[Applied]]:
        """The record of every key, in the store's order."""
        found: dict[str, list[Applied]] = defaultdict(list)
        for one in sorted(self.guarded.applied, key=lambda one: one.place):
            found[one.key].append(one)
        return found

    @cached_property
    def row_of(self) -> dict[tuple[str, int, int], int]:
        """The write behind an entry of the record, by key, hold and what it made. A write whose
        answer is missing takes what its hold has left."""
        history = self._history
        taken: dict[tuple[str, int, int], int] = {}
        open_: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in self.writes.tolist():
            key, hold = history.keys[int(history.key[row])], int(history.hold[row])
            if history.type[row] == Type.OK:
                taken[key, hold, int(self._made[row])] = row
            elif history.type[row] == Type.INFO:
                open_[key, hold].append(row)
        for one in self.guarded.applied:
            name = (one.key, one.hold, one.made)
            if name not in taken and open_[one.key, one.hold]:
                taken[name] = open_[one.key, one.hold].pop(0)
        return taken

    @cached_property
    def recorded(self) -> dict[int, Applied]:
        """Of every write that the record has, its entry."""
        found = {}
        for one in self.guarded.applied:
            row = self.row_of.get((one.key, one.hold, one.made))
            if row is not None:
                found[row] = one
        return found

    @cached_property
    def gone(self) -> list[int]:
        """Writes that were confirmed, and that the record does not have."""
        done = self.writes[self._history.type[self.writes] == Type.OK]
        return [row for row in done.tolist() if row not in self.recorded]

    def refused(self) -> Bools:
        """Which of the writes the guard refused."""
        history = self._history
        errors = np.array([text.startswith(REFUSED) for text in (*history.errors, "")], np.bool_)
        return np.asarray(
            (history.type[self.writes] == Type.FAIL) & errors[history.error[self.writes]]
        )

    def differences(self) -> Iterator[Difference]:
        """Every write on which the store and its rule differ."""
        for key, entries in self.by_key.items():
            yield from self._misapplied(key, entries)
            if self.guarded.rule != "once":
                yield from self._out_of_order(entries)
        yield from self._refused_anyway()
        yield from self._refused_without_reason()

    def _misapplied(self, key: str, entries: Sequence[Applied]) -> Iterator[Difference]:
        rule = self.guarded.rule
        before: Applied | None = None
        made: set[int] = set()
        for one in entries:
            wrong = False
            if rule == "newer" and before is not None:
                wrong = (one.fence or 0) <= (before.fence or 0)
            elif rule == "unchanged":
                wrong = one.read != one.made - 1 or (before is not None and one.read != before.made)
            elif rule == "held":
                wrong = not self._held(one)
            elif rule == "once":
                wrong = one.made in made
            made.add(one.made)
            if wrong:
                yield self._applied(key, one, before)
            if rule != "newer" or before is None or (one.fence or 0) > (before.fence or 0):
                before = one

    def _applied(self, key: str, one: Applied, before: Applied | None) -> Difference:
        row = self.row_of.get((one.key, one.hold, one.made))
        whose = "a write" if row is None else f"{self._analysis.name(row)}'s write"
        what, than = {
            "newer": (f"fence {one.fence}", "" if before is None else f" after {before.fence}"),
            "unchanged": (f"version {one.made}", f" from {one.read}"),
            "once": (f"thing {one.made}", ""),
        }.get(self.guarded.rule, (f"version {one.made}", ""))
        other = None if before is None else self.row_of.get((key, before.hold, before.made))
        said = f"applied {whose} of {key} ({what}{than}), and {REFUSES[self.guarded.rule]}"
        return Difference(said, tuple(r for r in (other, row) if r is not None))

    def _held(self, one: Applied) -> bool:
        """Whether the service's record has an entry of this hold at the place of the write. Both
        are in one order: the lock is on the same servers."""
        return any(
            tenure.made < one.place and (tenure.ended is None or one.place < tenure.ended)
            for tenure in self._tenures.get((one.key, one.hold), ())
        )

    @cached_property
    def _tenures(self) -> dict[tuple[str, int], list[Tenure]]:
        found: dict[tuple[str, int], list[Tenure]] = defaultdict(list)
        if self._history.service is not None:
            for tenure in self._history.service.tenures:
                found[tenure.key, tenure.hold].append(tenure)
        return found

    @cached_property
    def unwitnessed(self) -> str | None:
        """Why the service's record does not say who held, if it does not."""
        service = self._history.service
        if service is None:
            return "the service's own record is missing, which says who held"
        if service.partial is not None:
            return f"the service's own record does not say who held: {service.partial}"
        holds = {(self._history.keys[key], hold) for key, hold in self._written_by}
        unseen = [key for key, hold in holds if not self._tenures.get((key, hold))]
        if unseen:
            who = many(len(unseen), "hold")
            return f"the service's own record shows nothing of {who} that wrote"
        return None

    @property
    def _written_by(self) -> set[tuple[int, int]]:
        """The key and the hold of every write that may have been applied."""
        history = self._history
        rows = self.writes[history.type[self.writes] != Type.FAIL]
        return {*zip(history.key[rows].tolist(), history.hold[rows].tolist(), strict=True)}

    def _out_of_order(self, entries: Sequence[Applied]) -> Iterator[Difference]:
        """An entry that was confirmed before an earlier one was begun."""
        history = self._history
        last, last_ns = -1, NULL
        for one in entries:
            row = self.row_of.get((one.key, one.hold, one.made))
            if row is None:
                continue
            done_ns = int(history.complete_ns[row])
            if done_ns != NULL and done_ns + 2 * history.epsilon_ns < last_ns:
                yield Difference(
                    f"put {self._analysis.name(row)}'s write of {one.key} behind one that was "
                    "begun after it had been confirmed",
                    (last, row),
                )
            if int(history.invoke_ns[row]) > last_ns:
                last, last_ns = row, int(history.invoke_ns[row])

    def _refused_anyway(self) -> Iterator[Difference]:
        """Entries that no write of their hold can be, because none is without an answer."""
        history = self._history
        told: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in self.writes.tolist():
            told[history.keys[int(history.key[row])], int(history.hold[row])].append(row)
        for one in self.guarded.applied:
            rows = told.get((one.key, one.hold), [])
            if (one.key, one.hold, one.made) not in self.row_of and rows:
                yield Difference(
                    f"holds a write of {one.key} by {self._analysis.name(rows[0])} as version "
                    f"{one.made}, which was told that nothing was done",
                    tuple(rows),
                )

    def _refused_without_reason(self) -> Iterator[Difference]:
        history, rule = self._history, self.guarded.rule
        if rule == "held":
            return
        # Where a failover took back what was confirmed, any version may be another one.
        lost = {int(history.key[row]) for row in self.gone}
        # What may have been a reason, by key: when it began, its fence, what it made.
        reasons: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
        for row in self.writes[history.type[self.writes] != Type.FAIL].tolist():
            entry = self.recorded.get(row)
            made = int(self._made[row]) if entry is None else entry.made
            # A write without an answer is not known to have a fence: it may be any.
            fence = int(history.fence[row]) if entry is None else entry.fence or 0
            reasons[int(history.key[row])].append(
                (int(history.invoke_ns[row]), INT_MAX if fence == NULL else fence, made)
            )
        for row in self.writes[self.refused()].tolist():
            until_ns = int(history.complete_ns[row]) + 2 * history.epsilon_ns
            fence, read = int(history.fence[row]), int(history.version[row])
            before = [one for one in reasons[int(history.key[row])] if one[0] <= until_ns]
            if rule == "newer":
                reason = any(other >= fence for _, other, _ in before)
            elif rule == "once":  # the number of its thing is where others have what they read
                reason = any(made == read for *_, made in before)
            else:
                reason = rule == "unchanged" and (
                    int(history.key[row]) in lost
                    or any(made > read or made == NULL for *_, made in before)
                )
            if not reason:
                yield Difference(
                    f"refused {self._analysis.name(row)}'s write of {self._analysis.key(row)}, and "
                    "nothing had been applied that its check would refuse it for",
                    (row,),
                )


def broken_guard(analysis: Analysis) -> Verdict | None:
    """Absent where the lock guards no store of its own record."""
    guarded = analysis.history.guarded
    if guarded is None:
        return None
    guard = Guard(analysis, guarded)
    if len(guard.writes) == 0:
        return Verdict("unknown", f"nothing was written to {guarded.store}")
    if guarded.rule == "held" and (why := guard.unwitnessed):
        return Verdict("unknown", why)
    found = list(guard.differences())
    if not found:
        refused = int(np.count_nonzero(guard.refused()))
        said = f"{many(len(guard.writes), 'write')} of {guarded.store}, {refused} refused"
        return Verdict("valid", f"{said}, each as its guard {guarded.guard} says")
    first = found[0]
    rows = [row for row in first.rows if row >= 0]
    at = [int(analysis.history.invoke_ns[row]) for row in rows]
    when = during(analysis, min(at), max(at)) if at else ""
    reason = (
        f"{guarded.store} {first.said}{when}; {many(len(found), 'difference')} between its record "
        f"({guarded.record}) and its guard {guarded.guard}"
    )
    return Verdict("invalid", reason, tuple(operation(analysis, row) for row in rows))


def counts(analysis: Analysis) -> dict[str, object] | None:
    """What became of the writes to a guarded store; None without one. A write counts as stale where
    all of its window was late, and as rightful where all of it was within its promise; one that is
    sent again is neither, and counted apart."""
    history = analysis.history
    if history.guarded is None:
        return None
    guard = Guard(analysis, history.guarded)
    rows = guard.writes
    tried: Uses = uses_in(analysis, rows)
    refused = guard.refused()
    applied = np.array(
        [history.type[row] == Type.OK or row in guard.recorded for row in rows.tolist()], np.bool_
    )
    again = _again(analysis, rows)
    first = ~again
    stale = tried.stale & first
    unknown = ~applied & ~refused & (history.type[rows] == Type.INFO)
    known = np.flatnonzero(refused & first & (tried.grant >= 0))
    in_time = history.complete_ns[rows[known]] < analysis.promises.end[tried.grant[known]]
    return {
        "store": history.guarded.store,
        "guard": history.guarded.guard,
        "writes": len(rows),
        "refused": int(np.count_nonzero(refused)),
        "unknown": int(np.count_nonzero(unknown)),
        "stale_attempted": int(np.count_nonzero(stale & (applied | refused))),
        "stale_refused": int(np.count_nonzero(stale & refused)),
        "stale_applied": int(np.count_nonzero(stale & applied)),
        "stale_applied_late": _applied_late(guard, rows[stale & applied]),
        "stale_unknown": int(np.count_nonzero(stale & unknown)),
        "rightful_refused": int(np.count_nonzero(in_time)),
        "again": int(np.count_nonzero(again & (applied | refused))),
        "again_applied": int(np.count_nonzero(again & applied)),
        "gone": len(guard.gone),
        "differences": sum(1 for _ in guard.differences()),
    }


def _again(analysis: Analysis, rows: Rows) -> Bools:
    """Which writes a hold had sent to the same key before."""
    history = analysis.history
    seen: set[tuple[int, int]] = set()
    again = np.zeros(len(rows), np.bool_)
    for i, row in enumerate(rows.tolist()):
        name = (int(history.key[row]), int(history.hold[row]))
        again[i] = name in seen
        seen.add(name)
    return again


def _applied_late(guard: Guard, rows: Rows) -> int:
    """Of the stale writes that were applied, those that came after one of a newer grant: what a
    fence is there to refuse. The others came before any newer holder had written."""
    late = 0
    for row in rows.tolist():
        mine = guard.recorded.get(row)
        if mine is not None and guard.guarded.rule == "once":
            late += any(
                other.place < mine.place and other.made == mine.made
                for other in guard.by_key[mine.key]
            )
        elif mine is not None and mine.fence is not None:
            late += any(
                other.place < mine.place and (other.fence or 0) > mine.fence
                for other in guard.by_key[mine.key]
            )
        elif mine is not None:
            late += mine.read != mine.made - 1
    return late
