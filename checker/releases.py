"""``wrong-release``, ``false-release``, ``wrong-extend``: what was done for a hold that was over.

A release of A, answered ok, *ended B's grant* when B was promised the key throughout it and then,
before B's promise had ended and without B releasing, B was told not-held or somebody else was
granted the key. It is only blamed on A where A's own hold was over before (its lease had run out,
the loss was notified, or it had been released): with two holders at once, B's loss could have other
causes.

A release answered ok for a hold that was over, while somebody else had been granted the key since
(or after it had been released already), without such an effect, is a ``false-release``: the service
said that it had ended something that no longer was. *Since* is certain where the other grant was
asked for after the hold had been granted, or its promise began after that of the hold had ended: as
with fences, two promises of one mutex are in order. Of a lock that can be shared, the hold had
certainly ended where others, granted the key since, left it no place: all permits, or a writer
beside it.

An extend answered ok is wrong when somebody else, granted the key after the lease had run out, was
promised it throughout the extend.

Windows are closed: what happened at the same instant may have happened in either order, and proves
nothing. Unknown outcomes prove nothing here. Wrong releases and extends are judged only of locks
with one owner at a time.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.exclusion import permits_of
from lockbench.checker.intervals import ByKey, running_max
from lockbench.checker.kinds import OWNED, REENTRANT, SHARED, keys_of
from lockbench.checker.promises import first_under
from lockbench.checker.rows import (
    FOREVER,
    Bools,
    Rows,
    answered_ns,
    by_key_and_time,
    owners,
    rows_of,
)
from lockbench.checker.verdict import Verdict
from lockbench.checker.words import clock, during, faults_on, grant, many, operation
from lockbench.history.columns import Ids, Ints
from lockbench.history.op import NULL, F, Mode, Type

CROWD: Final = 64  # promises looked at when the longest one is the releaser's own


@dataclass(frozen=True)
class _Timeline:
    """The non-empty promises of one key in the order of their start."""

    grants: Rows
    start: Ints
    longest: Rows  # of the promises up to each entry, the one that ends last
    invoked: Ints  # when the grants were invoked, in that order,
    first_done: Rows  # and of the grants from each of them on, the one that completed first


class Releases:
    """The releases of a history, judged once for all three verdicts."""

    def __init__(self, analysis: Analysis) -> None:
        self._analysis = analysis
        self._links = analysis.links
        self._epsilon = analysis.history.epsilon_ns
        history, links = analysis.history, analysis.links
        self._grant_of = analysis.grant_of
        # For every acquire, the first release or extend under it that was told not-held.
        told = links.not_held & ((history.f == F.RELEASE) | (history.f == F.EXTEND))
        self._told = first_under(history, links, links.under(np.flatnonzero(told)))
        self._timelines: dict[int, _Timeline] = {}
        self._places: ByKey | None = None
        released = rows_of(history, F.RELEASE, Type.OK)
        self._owned = owned = keys_of(history, OWNED)
        self.judged = released[owned[history.key[released]]]
        self.confirmed = released[(owned | keys_of(history, SHARED))[history.key[released]]]
        self.wrong: list[tuple[int, int, int]] = []  # (release, grant ended, row that shows it)
        self.false: list[tuple[int, int]] = []  # (release, later grant or -1 for released before)
        for row, again in self._suspects():
            shared = not owned[history.key[row]]
            effect = None if shared else self._effect(row)
            if effect is not None:
                self.wrong.append((row, *effect))
            elif again:
                self.false.append((row, -1))
            else:
                since = self._given_away(row) if shared else self._granted_since(row)
                if since is not None:
                    self.false.append((row, since))

    def wrong_release(self) -> Verdict | None:
        """Absent when no release was ever answered ok."""
        if len(self.judged) == 0:
            return None
        if not self.wrong:
            return Verdict(
                "valid", f"{many(len(self.judged), 'release')}, none ended another's grant"
            )
        analysis = self._analysis
        row, ended, shown = self.wrong[0]
        history, promises = analysis.history, analysis.promises
        begin, end = int(history.invoke_ns[row]), int(history.complete_ns[shown])
        done, seen = clock(history, [int(history.complete_ns[row]), end])
        if history.f[shown] == F.ACQUIRE:
            what = f"{analysis.name(shown)} was granted it at {seen} s"
        else:
            what = f"{analysis.name(shown)} was told at {seen} s that it did not hold it"
        reason = (
            f"{analysis.name(row)} released {analysis.key(row)} at {done} s though its own hold "
            f"was over, and ended the grant of {analysis.name(int(promises.row[ended]))}: {what}"
            f"{during(analysis, begin, end)}; {many(len(self.wrong), 'wrong release')}"
        )
        evidence = (grant(analysis, ended), operation(analysis, row), operation(analysis, shown))
        return Verdict("invalid", reason, (*evidence, *faults_on(analysis, begin, end)))

    def false_release(self) -> Verdict | None:
        """Absent when no release was ever answered ok."""
        if len(self.confirmed) == 0:
            return None
        if not self.false:
            return Verdict(
                "valid", f"{many(len(self.confirmed), 'release')}, each of a hold of its own"
            )
        analysis = self._analysis
        row, since = self.false[0]
        (done,) = clock(analysis.history, [int(analysis.history.complete_ns[row])])
        if since < 0:
            why = "had been released before"
            evidence: tuple[dict[str, object], ...] = (operation(analysis, row),)
        else:
            other = analysis.name(int(analysis.promises.row[since]))
            why = f"was over: {other} had been granted it since"
            evidence = (
                *(grant(analysis, i) for i in self._beside(since)),
                operation(analysis, row),
            )
        reason = (
            f"{analysis.name(row)} was told at {done} s that its hold of {analysis.key(row)} was "
            f"released, but that hold {why}; {many(len(self.false), 'false release')}"
        )
        return Verdict("invalid", reason, evidence)

    def wrong_extend(self) -> Verdict | None:
        """Absent when no extend of a lock with one owner was ever answered ok."""
        analysis, links = self._analysis, self._links
        history, promises = analysis.history, analysis.promises
        extends = links.under(rows_of(history, F.EXTEND, Type.OK))
        extends = extends[self._owned[history.key[extends]]]
        if len(extends) == 0:
            return None
        wrong = []
        for row, over_ns in self._late_extends(extends):
            holder = self._promised_throughout(row)
            if holder is None:
                continue
            # What began at the same instant may have come after the extend.
            before = promises.start[holder] < history.invoke_ns[row] - self._epsilon
            if before and promises.start[holder] >= over_ns:
                wrong.append((row, holder))
        if not wrong:
            return Verdict("valid", f"{many(len(extends), 'extend')}, none of a hold that was over")
        row, holder = wrong[0]
        begin, end = int(promises.start[holder]), int(history.complete_ns[row])
        since, done = clock(history, [begin, end])
        reason = (
            f"{analysis.name(row)} was told at {done} s that its hold of {analysis.key(row)} was "
            "extended, though its lease had run out and "
            f"{analysis.name(int(promises.row[holder]))} was promised it since {since} s"
            f"{during(analysis, begin, end)}; {many(len(wrong), 'wrong extend')}"
        )
        evidence = (
            grant(analysis, holder),
            operation(analysis, row),
            *faults_on(analysis, begin, end),
        )
        return Verdict("invalid", reason, evidence)

    def _suspects(self) -> list[tuple[int, bool]]:
        """Releases answered ok of a hold that was over when they were invoked: (row, whether it
        had been released before)."""
        history, promises, links = self._analysis.history, self._analysis.promises, self._links
        releases = links.under(self.confirmed)
        index = self._grant_of[links.acquire[releases]]
        # An unknown acquire may have taken effect late, an inner one is no hold of its own.
        known = index >= 0
        known[known] = promises.outer[index[known]]
        releases, index = releases[known], index[known]
        over = np.minimum(promises.lease[index], promises.lost[index])
        over[over < FOREVER] += history.epsilon_ns
        lapsed = over <= history.invoke_ns[releases]
        first = first_under(history, links, releases)[links.acquire[releases]]
        again = (first >= 0) & (first != releases)
        again &= history.complete_ns[first] < history.invoke_ns[releases] - 2 * history.epsilon_ns
        again &= ~keys_of(history, REENTRANT)[promises.key[index]]
        repeated = np.flatnonzero(again)
        again[repeated] = self._certainly_again(releases[repeated], first[repeated])
        chosen = np.flatnonzero(lapsed)
        lapsed[chosen] = self._of_the_present_hold(releases[chosen], index[chosen])
        chosen = np.flatnonzero(lapsed | again)
        return [(int(releases[c]), bool(again[c])) for c in chosen]

    def _of_the_present_hold(self, rows: Rows, index: Rows) -> Bools:
        """Whether operations under these grants can be of no other hold, which came later for all
        that is known. A reentrant lock knows its owner alone: under whatever name, it is the hold
        of now that he gives back or extends."""
        promises = self._analysis.promises
        certain = np.ones(len(rows), np.bool_)
        for i in self._of_several(rows):
            grant = int(index[i])
            others = self._acquires_of(int(rows[i]), promises.row[grant])
            certain[i] = not np.any(others != promises.row[grant])
        return certain

    @cached_property
    def _acquires(self) -> Rows:
        """What may have begun a hold of its own."""
        history, promises = self._analysis.history, self._analysis.promises
        acquires = rows_of(history, F.ACQUIRE, Type.OK, Type.INFO)
        return acquires[~np.isin(acquires, promises.row[~promises.outer])]

    @cached_property
    def _identity(self) -> Ints:
        """For every acquire, who asked for which key: the hold where it is named, else the
        owner."""
        history = self._analysis.history
        acquires = rows_of(history, F.ACQUIRE)
        reentrant = keys_of(history, REENTRANT)[history.key[acquires]]
        named = (history.hold[acquires] != NULL) & ~reentrant
        name = np.where(named, history.hold[acquires], owners(history)[acquires])
        found = np.full(len(history), -1, np.int64)
        who = np.stack([named.astype(np.int64), name, history.key[acquires]])
        found[acquires] = np.unique(who, axis=1, return_inverse=True)[1].reshape(-1)
        return found

    def _certainly_again(self, rows: Rows, first: Rows) -> Bools:
        """Whether these releases can be of no other hold than those that were released before, with
        ``first``: no acquire can have taken effect since, or there are fewer than releases."""
        links = self._links
        certain = np.ones(len(rows), np.bool_)
        for i in self._of_several(rows):
            row = int(rows[i])
            acquires = self._acquires_of(row, None)
            before = self.confirmed[self.confirmed <= row]
            mine = self._identity[links.acquire[before]] == self._identity[links.acquire[row]]
            late = len(self._acquires_of(row, first[i])) > 0
            certain[i] = not late or int(np.count_nonzero(mine)) > len(acquires)
        return certain

    def _of_several(self, rows: Rows) -> list[int]:
        """The places of those under an identity that asked for the key more than once."""
        if len(rows) == 0:
            return []
        names, often = np.unique(self._identity[self._acquires], return_counts=True)
        acquires = self._links.acquire[rows]
        several = np.isin(self._identity[acquires], names[often > 1])
        return [int(i) for i in np.flatnonzero(several)]

    def _acquires_of(self, row: int, since: int | None) -> Rows:
        """The acquires of the identity of an operation that were asked for before it was answered;
        those that may have taken effect only after the operation ``since`` was asked for."""
        history, width = self._analysis.history, 2 * self._analysis.history.epsilon_ns
        mine = self._identity[self._acquires] == self._identity[self._links.acquire[row]]
        mine &= history.invoke_ns[self._acquires] <= history.complete_ns[row] + width
        if since is not None:
            done = answered_ns(history, self._acquires)
            mine &= done >= history.invoke_ns[since] - width
        found: Rows = self._acquires[mine]
        return found

    def _effect(self, release: int) -> tuple[int, int] | None:
        """The grant that a release ended and the row that shows it, or None."""
        holder = self._promised_throughout(release)
        if holder is None:
            return None
        history, promises = self._analysis.history, self._analysis.promises
        told = int(self._told[promises.row[holder]])
        lease_over = min(int(promises.lease[holder]), int(promises.lost[holder]))
        # -1, no release at all, counts as one that never comes.
        released = int(promises.release[holder]) if promises.release[holder] >= 0 else len(history)
        seen = int(history.complete_ns[told]) + 2 * history.epsilon_ns
        if 0 <= told <= released and history.invoke_ns[release] < seen < lease_over:
            return holder, told
        line = self._timeline(int(history.key[release]))
        after = int(np.searchsorted(line.start, history.invoke_ns[release], side="right"))
        for other in line.grants[after : after + 2].tolist():
            if other != holder and promises.start[other] < promises.end[holder]:
                return holder, int(promises.row[other])
        return None

    def _promised_throughout(self, row: int) -> int | None:
        """The grant that somebody else was promised during all of an operation."""
        history, promises = self._analysis.history, self._analysis.promises
        line = self._timeline(int(history.key[row]))
        invoked, done = history.invoke_ns[row] - self._epsilon, history.complete_ns[row]
        at = int(np.searchsorted(line.start, invoked, side="right")) - 1
        if at < 0:
            return None
        mine = int(self._grant_of[self._links.acquire[row]])
        # The one that lasts longest: of an overlapping crowd, any will do.
        candidates = [int(line.longest[at]), *line.grants[max(0, at - CROWD) : at + 1].tolist()]
        for holder in candidates:
            if holder != mine and promises.end[holder] >= done + self._epsilon:
                return int(holder)
        return None

    def _granted_since(self, release: int) -> int | None:
        """A grant that certainly came after the hold of a release and was there before it."""
        history, promises, epsilon = self._analysis.history, self._analysis.promises, self._epsilon
        mine = int(self._grant_of[self._links.acquire[release]])
        line = self._timeline(int(history.key[release]))
        candidates = []
        asked = int(np.searchsorted(line.invoked, promises.start[mine] + epsilon, side="right"))
        if asked < len(line.invoked):
            candidates.append(int(line.first_done[asked]))
        if promises.nonempty[mine]:
            after = int(np.searchsorted(line.start, promises.end[mine], side="left"))
            candidates += line.grants[after : after + 1].tolist()
        before = int(history.invoke_ns[release]) - epsilon
        there = [other for other in candidates if other != mine and promises.start[other] < before]
        return min(there, key=lambda other: int(promises.start[other]), default=None)

    def _given_away(self, release: int) -> int | None:
        """Of a lock that can be shared: a grant that, with others, left the hold of a release no
        place after its promise and before the release."""
        history, promises = self._analysis.history, self._analysis.promises
        mine = int(self._grant_of[self._links.acquire[release]])
        key = int(history.key[release])
        others = self._timeline(key).grants
        if history.kinds[key] == "semaphore":
            others = others[others != mine]
        else:
            others = others[promises.owner[others] != promises.owner[mine]]
            if history.mode[promises.row[mine]] == Mode.READ:
                others = others[history.mode[promises.row[others]] != Mode.READ]
        start = promises.start[others]
        crowded = promises.at_once(others, start) >= permits_of(history, key)
        since = max(int(promises.end[mine]), int(promises.start[mine]))
        crowded &= (start >= since) & (start < history.invoke_ns[release] - self._epsilon)
        found = np.flatnonzero(crowded)
        return int(others[found[0]]) if len(found) else None

    def _beside(self, latest: int) -> list[int]:
        """A grant, and those of a shared lock that were promised when it was made."""
        promises = self._analysis.promises
        key = int(promises.key[latest])
        if self._owned[key]:
            return [latest]
        others = self._timeline(key).grants
        at = promises.start[latest]
        held = (promises.start[others] <= at) & (at < promises.end[others])
        return [int(i) for i in others[held][:CROWD]]

    def _late_extends(self, extends: Rows) -> list[tuple[int, int]]:
        """Extends answered ok after the promise before them had run out: (row, when it had)."""
        history, links = self._analysis.history, self._links
        index = self._grant_of[links.acquire[extends]]
        extends, index = extends[index >= 0], index[index >= 0]
        group = links.acquire[extends]
        order = np.argsort(group, kind="stable")
        extends, group = extends[order], group[order]
        before = history.valid_until_ns[group]
        same = np.zeros(len(group), np.bool_)
        same[1:] = group[1:] == group[:-1]
        before[same] = history.valid_until_ns[extends[:-1]][same[1:]]
        before[before == NULL] = FOREVER
        before[before < FOREVER] += history.epsilon_ns
        late = np.flatnonzero(before <= history.complete_ns[extends])
        late = late[self._of_the_present_hold(extends[late], self._grant_of[group[late]])]
        return [(int(extends[i]), int(before[i])) for i in late]

    def _timeline(self, key: int) -> _Timeline:
        if key not in self._timelines:
            if self._places is None:
                self._places = ByKey(self._analysis.promises.key)
            self._timelines[key] = _timeline(self._analysis, self._places[key])
        return self._timelines[key]


def _timeline(analysis: Analysis, grants: Rows) -> _Timeline:
    """Of the promises of one key."""
    history, promises = analysis.history, analysis.promises
    grants = grants[promises.nonempty[grants]]
    one_key: Ids = np.zeros(len(grants), np.int32)
    backwards = grants[::-1]
    _, earliest = running_max(one_key, -promises.start[backwards])
    order = grants[by_key_and_time(promises.key[grants], promises.start[grants])]
    _, longest = running_max(one_key, promises.end[order])
    return _Timeline(
        grants=order,
        start=promises.start[order],
        longest=order[longest],
        invoked=history.invoke_ns[promises.row[grants]],
        first_done=backwards[earliest][::-1],
    )
