"""Holds what was observed against what a lock is expected to do.

Worst wins. Nothing unknown is green, nothing unexposed is green, and a break that had to show and
did not is the bench's own failure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bench.errors import Ending
from locks.base import NAMED_VERDICTS, VERDICTS, Expectation, System

# Verdicts that follow from another one are expected where that one is.
FOLLOWS = {
    "linearizable": ("double-grant", "wrong-release", "lost-update"),
    "false-release": ("wrong-release", "double-grant"),
}
MAY = ("breaks", "may-break")


@dataclass(frozen=True, slots=True)
class Judgement:
    """``word`` for the tables, ``why`` in one sentence."""

    ending: Ending
    word: str
    why: str


def expectation(system: System, fault: str, verdict: str) -> Expectation:
    """What is expected of a lock, for verdicts that follow from others too: those may break where
    a cause of theirs may."""
    for cause in FOLLOWS.get(verdict, ()):
        cause_expected = system.expectation(fault, cause)
        if cause_expected.expected in MAY:
            return Expectation("may-break", cause_expected.source, cause_expected.kind)
    return system.expectation(fault, verdict)


def expected_words(system: System, fault: str) -> dict[str, str]:
    """Verdict → what is expected, in one word, for a case's document."""
    return {v: expectation(system, fault, v).expected for v in (*VERDICTS, *FOLLOWS)}


def _excused(system: System, fault: str, verdict: str, broken: Collection[str]) -> bool:
    """Whether a break was expected. One that follows from others is, only if one of them broke."""
    if expectation(system, fault, verdict).expected not in MAY:
        return False
    causes = FOLLOWS.get(verdict)
    return causes is None or any(cause in broken for cause in causes)


def judge(
    system: System,
    fault: str,
    observed: Mapping[str, str],
    *,
    exposed: bool,
    exposure: str,
    failure: str | None,
    shown_before: frozenset[str] = frozenset(),
    required: Collection[str] = VERDICTS,
) -> Judgement:
    """``observed`` maps verdict → valid, invalid or unknown. ``failure`` says why the case itself
    failed. ``shown_before`` are breaks that an earlier try of the same case showed. ``required``
    are the verdicts that the load gives reason to reach, unless they are not applicable."""
    broken = [v for v, result in observed.items() if result == "invalid"]
    worse = [v for v in broken if not _excused(system, fault, v, broken)]
    if worse:
        return Judgement(
            Ending.SAFETY, "worse than expected", f"{', '.join(worse)}: expected to hold and broke"
        )
    if failure is not None:
        return Judgement(Ending.BENCH, "failed", failure)
    due = [v for v in NAMED_VERDICTS if system.expectation(fault, v).expected == "breaks"]
    missing = [v for v in due if v not in broken and v not in shown_before]
    if missing:
        return Judgement(
            Ending.BENCH,
            "did not show",
            f"{', '.join(missing)}: had to break and did not ({exposure})",
        )
    if not exposed:
        return Judgement(Ending.INCONCLUSIVE, "not exposed", exposure)
    undecided = [
        v
        for v in {*observed, *required}
        # A verdict that had to be reached and is absent is as good as unknown.
        if observed.get(v, "unknown") == "unknown"
        and expectation(system, fault, v).expected != "n/a"
    ]
    if undecided:
        return Judgement(
            Ending.INCONCLUSIVE, "undecided", f"{', '.join(sorted(undecided))}: undecided"
        )
    if broken:
        return Judgement(Ending.OK, "as expected", f"{', '.join(broken)} broke, as expected")
    return Judgement(Ending.OK, "as expected", "every promise was kept")
