"""Verdicts on a history of several machines: what stands whatever their clocks were.

Each verdict is one of three, decided by what the bounds of the clocks allow
(``lockbench.checker.bounds``):

``invalid``   no offsets within the bounds explain what was recorded
``valid``     some do: the history on these clocks is valid
``unknown``   otherwise

*Invalid* is, by what needs no clock or is certain by every one: the keys that one machine alone
used (not what a fault left behind there: its heal is on another clock), and answers inside one
hold; two promises whose certain parts meet
(``lockbench.checker.clocks``); holds that leave no offsets of two machines
(``lockbench.checker.rivals``); and what is invalid with an ε of the widest bounds. *Valid* is
decided with offsets under which no two holds are at once (``lockbench.checker.offsets``), the same
for all verdicts. ``linearizable`` needs no ε: the smallest holds are compared as the promises are,
so operations are never widened one by one.

Whatever is valid, but for facts of one clock, is unknown where less than ``SURE`` of the promises
of shared keys have a certain part. With a clock that contradicts itself everything is unknown, and
nothing is invalid where something happened from outside: it is not certain what came before it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from time import perf_counter
from typing import Final

import numpy as np

from lockbench.checker.analysis import Analysis
from lockbench.checker.bounds import ANY_NS
from lockbench.checker.catalogue import CATALOGUE
from lockbench.checker.clocks import Clocks, Offset, shifted
from lockbench.checker.exact import sections
from lockbench.checker.exclusion import double_grant
from lockbench.checker.kinds import OWNED, keys_of
from lockbench.checker.linearizable import contradictory, exact_keys
from lockbench.checker.offsets import explaining
from lockbench.checker.outside import from_outside
from lockbench.checker.rivals import Holds, by_middle, rivals, swept
from lockbench.checker.rows import Rows, owners
from lockbench.checker.verdict import Report, Verdict
from lockbench.checker.words import faults_on, grant
from lockbench.history.columns import History, Ints
from lockbench.history.op import NULL, F, Mode

SURE: Final = 0.95  # of the contended promises
# Of one clock each, whatever the others show: a grant by its own machine's, effects by the
# resource's.
ON_ONE_CLOCK: Final = frozenset(
    name for name, entry in CATALOGUE.items() if name == "late-grant" or entry.blames == "nobody"
)
OF_PROMISES: Final = frozenset({"double-grant", "linearizable"})
DECADES: Final = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"))

Judge = Callable[[History, Collection[str] | None], Report]


def check_machines(history: History, judge: Judge, only: Collection[str] | None) -> Report:
    """What ``lockbench.checker.check.check`` says of a history that names machines. ``judge``
    decides histories of one clock."""
    began = perf_counter()
    found = _Machines(Clocks.of(history), judge, only)
    report = found.report()
    return replace(report, seconds={"check": perf_counter() - began})


@dataclass(frozen=True)
class _Way:
    """Whether some holds can be explained: by ``offset``, or not at all because of ``conflict``
    (rows of grants, a pair after the other); neither where nobody knows."""

    offset: Offset | None
    conflict: tuple[int, ...]


@dataclass(frozen=True)
class _Machines:
    clocks: Clocks
    judge: Judge
    only: Collection[str] | None

    def report(self) -> Report:
        clocks = self.clocks
        void = clocks.contradiction()
        if void is not None:
            report = self.judge(clocks.placed, self.only)
            verdicts = {name: Verdict("unknown", void) for name in report.verdicts}
            return replace(report, verdicts=verdicts, measurements={})
        offset = self._cores.offset or self._promises.offset
        under = clocks.placed if offset is None else shifted(clocks.recorded, offset)
        report = self.judge(_in_order(under), self.only)
        certain = self._invalid()
        verdicts = {
            name: certain.get(name) or self._weighed(name, verdict, explained=offset is not None)
            for name, verdict in report.verdicts.items()
        }
        measured = report.measurements
        if self.only is None:
            measured = {**measured, "clocks": self._measured()}
        return replace(report, verdicts=verdicts, measurements=measured)

    def _weighed(self, name: str, verdict: Verdict, *, explained: bool) -> Verdict:
        """What is not certainly invalid, as it was decided under some offsets."""
        if verdict.result == "unknown" or name == "late-grant":
            return verdict
        vague = None if name in ON_ONE_CLOCK else self._vague()
        if vague:
            return Verdict("unknown", vague)
        if verdict.result == "invalid":
            return Verdict("unknown", f"{self._agree}; so it may be the clocks: {verdict.reason}")
        if name not in OF_PROMISES:
            return verdict
        if not explained:
            return Verdict("unknown", f"{self._agree}; no offsets were found that explain it all")
        return replace(verdict, reason=f"{verdict.reason}; {self._agree}")

    # What is certain.

    def _invalid(self) -> dict[str, Verdict]:
        found: dict[str, Verdict] = {}
        for verdicts in self._certain():
            for name, verdict in verdicts.items():
                if verdict.result == "invalid" and (self.only is None or name in self.only):
                    found.setdefault(name, verdict)
        return found

    def _certain(self) -> Iterator[dict[str, Verdict]]:
        """Verdicts of which those that are invalid are so whatever the clocks were."""
        clocks, analysis = self.clocks, self._placed
        if from_outside(clocks.placed):
            return
        yield self._alone()
        if clocks.epsilon_ns < ANY_NS // 2:
            names = {*CATALOGUE} - OF_PROMISES - self._unordered()
            asked = names if self.only is None else names.intersection(self.only)
            yield dict(self.judge(clocks.curtailed, asked).verdicts)
        answers = contradictory(analysis, exact_keys(clocks.local))
        if answers is not None:
            yield {"linearizable": answers}
        first, last = clocks.certain
        sure = replace(analysis.promises, start=first, end=last)
        meeting = double_grant(replace(analysis, promises=sure))
        if meeting is not None and meeting.result == "invalid":
            told = replace(meeting, reason=f"{meeting.reason}; {self._agree}")
            yield {"double-grant": told, "linearizable": told}
        if self._promises.conflict:
            told = self._unexplained(self._promises.conflict, "promises")
            yield {"double-grant": told, "linearizable": told}
        if self._cores.conflict:
            yield {"linearizable": self._unexplained(self._cores.conflict, "holds")}

    @cached_property
    def _placed(self) -> Analysis:
        return Analysis.of(self.clocks.placed)

    def _alone(self) -> dict[str, Verdict]:
        """Of the keys that one machine alone used: its clock decides, except where the resource's
        is compared with it."""
        history = self.clocks.placed
        mine = ~self.clocks.shared[history.key] | (history.f == F.DEATH)
        rows = np.flatnonzero(mine)
        if not np.any(mine & (history.f != F.DEATH)):
            return {}
        # What a fault may have left is counted from its heal, by the resource's clock.
        compared = {"stale-holder", "leaked-lock"} if history.faults else {"stale-holder"}
        report = self.judge(history.only(rows), self.only)
        return {
            name: _of_rows(verdict, rows)
            for name, verdict in report.verdicts.items()
            if name not in compared and name not in self._unordered()
        }

    def _unordered(self) -> frozenset[str]:
        """The verdicts of jobs, where the resource did not stamp all that it applied."""
        history = self.clocks.placed
        did = np.isin(history.f, (F.EFFECT, F.WRITE, F.FOUND))
        if not np.any(did & (history.applied_ns == NULL)):
            return frozenset()
        return frozenset(name for name, entry in CATALOGUE.items() if entry.job)

    def _unexplained(self, conflict: tuple[int, ...], what: str) -> Verdict:
        analysis, history = self._placed, self.clocks.placed
        # All of them: fewer would prove nothing, and need not have the two that were at once.
        rows = list(dict.fromkeys(conflict))
        machines = dict.fromkeys(self.clocks.name(int(self.clocks.machine[row])) for row in rows)
        names = [analysis.name(row) for row in rows[:2]]
        begin, end = (int(side(history.invoke_ns[rows])) for side in (np.min, np.max))
        reason = (
            f"no offsets of {' and '.join(machines)} explain the {what} of "
            f"{analysis.key(rows[0])}, such as those of {' and '.join(names)}: at least two of the "
            f"{len(rows)} {what} in evidence were at once; {self._agree}"
        )
        granted = [int(analysis.grant_of[row]) for row in rows]
        evidence = [grant(analysis, i) for i in granted if i >= 0]
        return Verdict("invalid", reason, (*evidence, *faults_on(analysis, begin, end)))

    # What can be explained.

    @cached_property
    def _promises(self) -> _Way:
        promises = self.clocks.local.promises
        held = np.flatnonzero(promises.nonempty)
        return self._way(promises.row[held], promises.start[held], promises.end[held])

    @cached_property
    def _cores(self) -> _Way:
        """Of the smallest holds: a promise lies inside one."""
        local = self.clocks.local
        found = sections(local)
        kept = np.flatnonzero(~found.floating & exact_keys(local)[found.key])
        row, begin, end = found.row[kept], found.begin[kept], found.end[kept]
        promises = local.promises
        held = np.flatnonzero(promises.nonempty)
        same = (promises.row[held], promises.start[held], promises.end[held])
        if all(map(np.array_equal, (row, begin, end), same)):
            return self._promises
        return self._way(row, begin, end)

    def _way(self, row: Rows, start: Ints, end: Ints) -> _Way:
        clocks, history = self.clocks, self.clocks.recorded
        writers = keys_of(history, frozenset({"read-write"}))
        chosen = (keys_of(history, OWNED) | writers)[history.key[row]]
        row, start, end = row[chosen], start[chosen], end[chosen]
        holds = Holds(
            row=row, key=history.key[row], machine=clocks.machine[row], start=start, end=end,
            owner=owners(history)[row], reads=history.mode[row] == Mode.READ,
            together=writers[history.key[row]],
        )  # fmt: skip
        found = rivals(holds, clocks)
        # Offsets make nothing valid where most promises are too short.
        vague = self._vague() is not None
        offset = None if vague else explaining(holds, found, by_middle(found), clocks)
        if offset is not None:
            return _Way(offset, ())
        decided = swept(holds, found)
        if decided.conflict is not None:
            both = np.stack([found.p[decided.conflict], found.q[decided.conflict]], axis=1)
            return _Way(None, tuple(row[both.ravel()].tolist()))
        if vague:
            return _Way(None, ())
        return _Way(explaining(holds, found, decided.p_first, clocks), ())

    # How sure.

    @cached_property
    def _contended(self) -> Rows:
        """The promises of shared keys."""
        promises = self.clocks.local.promises
        return np.flatnonzero(promises.nonempty & self.clocks.shared[promises.key])

    @cached_property
    def _short(self) -> int:
        first, last = (side[self._contended] for side in self.clocks.certain)
        return int(np.count_nonzero(first >= last))

    @cached_property
    def _agree_ns(self) -> int:
        """What clocks agree to: the median over the ends of contended promises, but for those by
        the clock of the resource."""
        promises, mine = self.clocks.local.promises, self._contended
        machine = self.clocks.machine[promises.row[mine]]
        mine, machine = mine[machine >= 0], machine[machine >= 0]
        if len(mine) == 0:
            return self.clocks.epsilon_ns
        return int(np.median(self.clocks.at(machine, promises.start[mine], "half_width")))

    @property
    def _agree(self) -> str:
        if self._agree_ns >= ANY_NS // 2:
            return "nothing says how the clocks are set"
        return f"clocks agree to ±{_duration(self._agree_ns)}"

    def _vague(self) -> str | None:
        """Why too few promises have a certain part, or None."""
        count = len(self._contended)
        if count - self._short >= SURE * count:
            return None
        return f"{self._agree}; {self._short:,} of {count:,} promises are shorter"

    def _measured(self) -> dict[str, object]:
        return {
            "agree_to_ns": self._agree_ns,
            "contended_promises": len(self._contended),
            "without_certain_part": self._short,
            "epsilon_ns": self.clocks.epsilon_ns,
        }


def _in_order(history: History) -> History:
    return history.only(np.argsort(history.invoke_ns, kind="stable"))


def _of_rows(verdict: Verdict, rows: Rows) -> Verdict:
    """A verdict on some rows of a history, with the numbers that they have there."""
    evidence = tuple(
        {**item, "row": int(rows[int(str(item["row"]))])} if "row" in item else item
        for item in verdict.evidence
    )
    return replace(verdict, evidence=evidence)


def _duration(nanoseconds: int) -> str:
    for unit_ns, unit in DECADES:
        if nanoseconds >= unit_ns:
            return f"{nanoseconds / unit_ns:.3g} {unit}"
    return f"{nanoseconds} ns"
