"""Holds what was observed against what a lock is expected to do.

Worst wins. Nothing unknown is green, nothing unexposed is green, and a break that had to show and
did not is the bench's own failure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bench.errors import Ending
from locks.base import VERDICTS, Expectation, System

# Verdicts that follow from another one are expected where that one is.
FOLLOWS = {
    "linearizable": ("double-grant", "wrong-release", "lost-update"),
    "false-release": ("wrong-release", "double-grant"),
    "wrong-extend": (),
}
MAY = ("breaks", "may-break")


@dataclass(frozen=True, slots=True)
class Judgement:
    """``word`` for the tables, ``why`` in one sentence."""

    ending: Ending
    word: str
    why: str


def expectation(system: System, fault: str, verdict: str) -> Expectation:
    """What is expected of a lock, for verdicts that follow from others too."""
    for cause in FOLLOWS.get(verdict, ()):
        cause_expected = system.expectation(fault, cause)
        if cause_expected.expected in MAY:
            return Expectation("may-break", cause_expected.source, cause_expected.kind)
    return system.expectation(fault, verdict)


def expected_words(system: System, fault: str) -> dict[str, str]:
    """Verdict → what is expected, in one word, for a case's document."""
    return {verdict: system.expectation(fault, verdict).expected for verdict in VERDICTS}


def judge(
    system: System,
    fault: str,
    observed: Mapping[str, str],
    *,
    exposed: bool,
    exposure: str,
    failure: str | None,
    shown_before: frozenset[str] = frozenset(),
) -> Judgement:
    """``observed`` maps verdict → valid, invalid or unknown. ``failure`` says why the case itself
    failed. ``shown_before`` are breaks that an earlier try of the same case showed."""
    broken = [v for v, result in observed.items() if result == "invalid"]
    worse = [v for v in broken if expectation(system, fault, v).expected not in MAY]
    if worse:
        return Judgement(
            Ending.SAFETY, "worse than expected", f"{', '.join(worse)}: expected to hold and broke"
        )
    if failure is not None:
        return Judgement(Ending.BENCH, "failed", failure)
    due = [v for v in VERDICTS if system.expectation(fault, v).expected == "breaks"]
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
        for v, result in observed.items()
        if result == "unknown" and expectation(system, fault, v).expected != "n/a"
    ]
    if undecided:
        return Judgement(Ending.INCONCLUSIVE, "undecided", f"{', '.join(undecided)}: undecided")
    if broken:
        return Judgement(Ending.OK, "as expected", f"{', '.join(broken)} broke, as expected")
    return Judgement(Ending.OK, "as expected", "every promise was kept")
