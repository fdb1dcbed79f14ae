"""Holds what was observed against what a lock is expected to do.

Worst wins. Nothing unknown is green, nothing unexposed is green, and a break that had to show and
did not is the bench's own failure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bench.errors import Ending
from locks.base import NAMED_VERDICTS, NOT_JUDGED, VERDICTS, Expectation, System
from nemesis.registry import NONE
from results.cases import COULD_NOT_RUN

# Verdicts that not every workload reaches.
AT_THE_RESOURCE = ("stale-holder", "lost-update")
# What comes of a workload (``checker.jobs``) is as good as its lock.
OF_JOBS = {
    "oversold": ("lost-update",),
    "charged-twice": (*AT_THE_RESOURCE, "double-grant"),
    "ran-twice": ("stale-holder", "double-grant"),
    "two-leaders": ("stale-holder", "double-grant"),
    "rate-exceeded": ("stale-holder", "double-grant"),
    "over-capacity": ("stale-holder", "double-grant"),
}
# Verdicts that follow from another one are expected where that one is.
FOLLOWS = {
    "linearizable": ("double-grant", "wrong-release", "false-release", "lost-update"),
    "false-release": ("wrong-release", "double-grant"),
    **OF_JOBS,
}
# What a holder does whose work outlasts its lease: it comes too late.
TOO_LATE = "client-pause"
# The word for a case without a fault whose load did not take place.
NOT_AS_ASKED = "not as asked"
MAY = ("breaks", "may-break")
LOOSEST_FIRST = (*MAY, "holds", "n/a")


@dataclass(frozen=True, slots=True)
class Judgement:
    """``word`` for the tables, ``why`` in one sentence."""

    ending: Ending
    word: str
    why: str


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a lock under the faults of a case, named without their parameters.

    ``exact``: one fault as the expectations were written for it. Of anything else (parameters, a
    combination, a random schedule) nothing has to break, but everything may that one of the faults
    may break. ``outlasts``: the work may last longer than its lease, so that without any fault its
    holder may come as late as one that was paused.
    """

    system: System
    faults: tuple[str, ...]
    exact: bool = True
    outlasts: bool = False

    def of(self, verdict: str) -> Expectation:
        """For verdicts that follow from others too: those may break where a cause of theirs may."""
        for cause in FOLLOWS.get(verdict, ()):
            found = self._declared(cause, as_cause=verdict in OF_JOBS)
            if found.expected in MAY:
                return Expectation("may-break", found.source, found.kind)
        return self._declared(verdict)

    def words(self, required: Collection[str] = VERDICTS) -> dict[str, str]:
        """Verdict → what is expected, in one word, for a case's document."""
        always = (*VERDICTS, "linearizable", "false-release")
        return {v: self.of(v).expected for v in dict.fromkeys((*always, *required))}

    def excuses(self, verdict: str, broken: Collection[str]) -> bool:
        """Whether a break was expected. One that follows from others is, only if one of them broke
        or it is declared itself."""
        if self.of(verdict).expected not in MAY:
            return False
        if self._declared(verdict).expected in MAY:
            return True
        causes = FOLLOWS.get(verdict)
        # What is not judged for a kind of lock may have broken unseen.
        unseen = NOT_JUDGED.get(self.system.kind, ()) if verdict in OF_JOBS else ()
        return causes is None or any(cause in {*broken, *unseen} for cause in causes)

    def _declared(self, verdict: str, *, as_cause: bool = False) -> Expectation:
        """``as_cause``: as listed, also where this kind of lock is not judged by it: what follows
        from it is."""
        faults = [*(self.faults or (NONE,)), *([TOO_LATE] if self.outlasts else [])]
        found = [self.system.expectation(fault, verdict) for fault in faults]
        if as_cause:
            listed = [self.system.expectations.get(fault, {}).get(verdict) for fault in faults]
            found = [more or said for more, said in zip(listed, found, strict=True)]
        if self.exact and not self.outlasts:
            return found[0]
        loosest = min(found, key=lambda e: LOOSEST_FIRST.index(e.expected))
        if loosest.expected == "breaks":
            return Expectation("may-break", loosest.source, loosest.kind)
        return loosest


def judge(
    expected: Expected,
    observed: Mapping[str, str],
    *,
    exposed: bool,
    exposure: str,
    failure: str | None,
    unable: str | None = None,
    short: str | None = None,
    shown_before: frozenset[str] = frozenset(),
    required: Collection[str] = VERDICTS,
) -> Judgement:
    """``observed`` maps verdict → valid, invalid or unknown. ``failure`` says why the case itself
    failed, ``unable`` why it could not run at all (see ``bench.usable``), ``short`` what of the
    load that was asked for did not take place (``bench.watch``). ``shown_before`` are breaks that
    an earlier try of the same case showed. ``required`` are the verdicts that the load gives reason
    to reach, unless they are not applicable."""
    broken = [v for v, result in observed.items() if result == "invalid"]
    worse = [v for v in broken if not expected.excuses(v, broken)]
    if worse:
        return Judgement(
            Ending.SAFETY, "worse than expected", f"{', '.join(worse)}: expected to hold and broke"
        )
    if unable is not None:
        return Judgement(Ending.BENCH, COULD_NOT_RUN, unable)
    if failure is not None:
        return Judgement(Ending.BENCH, "failed", failure)
    reached = [v for v in NAMED_VERDICTS if v in required or v not in AT_THE_RESOURCE]
    due = [v for v in reached if expected.of(v).expected == "breaks"]
    missing = [v for v in due if v not in broken and v not in shown_before]
    if missing:
        return Judgement(
            Ending.BENCH,
            "did not show",
            f"{', '.join(missing)}: had to break and did not ({exposure})",
        )
    if short is not None:
        return Judgement(Ending.INCONCLUSIVE, NOT_AS_ASKED, short)
    if not exposed:
        return Judgement(Ending.INCONCLUSIVE, "not exposed", exposure)
    undecided = [
        v
        for v in {*observed, *required}
        # A verdict that had to be reached and is absent is as good as unknown.
        if observed.get(v, "unknown") == "unknown" and expected.of(v).expected != "n/a"
    ]
    if undecided:
        return Judgement(
            Ending.INCONCLUSIVE, "undecided", f"{', '.join(sorted(undecided))}: undecided"
        )
    if broken:
        return Judgement(Ending.OK, "as expected", f"{', '.join(broken)} broke, as expected")
    return Judgement(Ending.OK, "as expected", "every promise was kept")
