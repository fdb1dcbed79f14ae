"""Holds what was observed against what a lock is expected to do.

Worst wins. Nothing unknown is green, nothing unexposed is green, and a break that had to show and
did not is the bench's own failure.

Silence is no claim. Of a fault that a declaration does not mention nobody has said anything: a
break under it is a violation like any other, but none that was expected to hold, and a case that
holds is told as "held, undeclared". Without a fault a lock's own ``source`` is the claim.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from lockbench.checker.catalogue import (
    ALWAYS,
    AT_THE_RESOURCE,
    CATALOGUE,
    GENERAL,
    NAMED,
    OF_LOCKS,
    Needs,
)
from lockbench.checker.follows import causes_of, following, told
from lockbench.locks.base import ANY, Expectation, System
from lockbench.locks.shared.lease import lives_on
from lockbench.nemesis.registry import NONE, faults
from lockbench.results.cases import COULD_NOT_RUN, DISTURBED
from lockbench.results.errors import Ending
from lockbench.results.judgements import (
    AS_EXPECTED,
    BROKE_UNDECLARED,
    CONTRADICTED,
    DID_NOT_SHOW,
    HELD_UNDECLARED,
    NOT_AS_ASKED,
    NOTHING_DECLARED,
    WORSE,
)

# What a holder does whose work outlasts its lease: it comes too late.
TOO_LATE = "client-pause"
# The service's own record shows that what the bench recorded was not so.
MAY = ("breaks", "may-break")
LOOSEST_FIRST = (*MAY, "undeclared", "holds", "n/a")


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
    holder may come as late as one that was paused, unless the lock keeps its grants alive itself.
    ``own``: the lock comes from a file of its user's, who may not have declared anything.
    ``at_store``: what is expected of the store that the lock guards, whatever the lock does.
    """

    system: System
    faults: tuple[str, ...]
    exact: bool = True
    outlasts: bool = False
    own: bool = False
    at_store: Mapping[str, Expectation] = field(default_factory=dict)

    def of(self, verdict: str) -> Expectation:
        """Of a verdict of which nothing is declared itself: it may break where a cause of it may
        (``lockbench.checker.follows``)."""
        declared = self._declared(verdict)
        if declared.expected in MAY or declared.expected == "n/a" or self._listed(verdict):
            return declared
        for cause in sorted(causes_of(verdict)):
            found = self._as_cause(cause)
            if found.expected in MAY:
                return Expectation("may-break", found.source, found.kind)
        return declared

    def words(self, required: Collection[str] = ALWAYS) -> dict[str, str]:
        """Verdict → what is expected, in one word, for a case's document."""
        names = dict.fromkeys((*OF_LOCKS, *required))
        unsaid = self.unpreventable(names)
        return {v: NOTHING_DECLARED if v in unsaid else self.of(v).expected for v in names}

    def excused(self, broken: Collection[str]) -> frozenset[str]:
        """Of the broken verdicts those that were expected to: by a declaration of their own, or
        because they follow from such a one that broke too."""
        # What has no resource to be seen at may have happened unseen.
        unseen = {v for v in AT_THE_RESOURCE if self.system.kind in CATALOGUE[v].not_of}
        expected = {v for v in {*broken, *unseen} if self._as_cause(v).expected in MAY}
        found = following(expected, {*broken, *unseen})
        return frozenset(v for v in found.intersection(broken) if self.of(v).expected in MAY)

    def silent(self) -> tuple[str, ...]:
        """The faults of the case that the declaration does not mention."""
        return tuple(f for f in self.faults if f != NONE and f not in self.system.expectations)

    def undeclared(self) -> bool:
        """Whether nothing is declared of a lock of one's own under any fault of the case."""
        return self.own and self.system.expectations.keys().isdisjoint(self._faults())

    def unpreventable(self, broken: Collection[str]) -> frozenset[str]:
        """Of the broken verdicts of such a lock, those that no lease can prevent."""
        stopping = {name for name, fault in faults().items() if fault.stops_clients}
        if not self.undeclared() or stopping.isdisjoint(self._faults()):
            return frozenset()
        return following({"stale-holder"}, broken)

    def proposal(self, broken: Collection[str]) -> list[str]:
        """Lines for the lock's declaration; none where there is one already, or nothing broke. An
        Expectation without a source is refused: whoever declares it has to fill it in."""
        if not self.undeclared() or not broken:
            return []
        lines = [
            f'        "{verdict}": Expectation("may-break", source="", kind="documented-limit"),'
            for verdict in told(sorted(broken))
        ]
        faults = self.faults or (NONE,)
        inside = [line for fault in faults for line in (f'    "{fault}": {{', *lines, "    },")]
        return ["expectations = {", *inside, "}"]

    def _listed(self, verdict: str) -> bool:
        """Whether something is declared of a verdict under every one of the faults."""
        declared = self.system.expectations
        return all(verdict in declared.get(fault, ()) for fault in self._faults())

    def _faults(self) -> tuple[str, ...]:
        return (*(self.faults or (NONE,)), *([TOO_LATE] if self._outlasts() else []))

    def _outlasts(self) -> bool:
        """Nothing is known of a lock of one's own whose declaration says nothing."""
        return self.outlasts and (self.own or not lives_on(self.system))

    def _declared(self, verdict: str) -> Expectation:
        if verdict in self.at_store:
            return self.at_store[verdict]
        return self._loosest([expectation(self.system, f, verdict) for f in self._mentioned()])

    def _as_cause(self, verdict: str) -> Expectation:
        """As declared, also where the kind of lock is not judged by it: what follows from it is."""
        if verdict in self.at_store:
            return self.at_store[verdict]
        listed = (
            self.system.expectations.get(fault, {}).get(verdict)
            or expectation(self.system, fault, verdict)
            for fault in self._mentioned()
        )
        return self._loosest(list(listed))

    def _mentioned(self) -> tuple[str, ...]:
        """Without the pause that work which outlasts its lease amounts to, where the declaration
        is silent of it: silence takes back no claim that was made of the other faults."""
        given = self.faults or (NONE,)
        return tuple(f for f in self._faults() if f in given or f in self.system.expectations)

    def _loosest(self, found: Sequence[Expectation]) -> Expectation:
        if self.exact and not self._outlasts():
            return found[0]
        loosest = min(found, key=lambda e: LOOSEST_FIRST.index(e.expected))
        if loosest.expected == "breaks":
            return Expectation("may-break", loosest.source, loosest.kind)
        return loosest


# What a declaration says of a fault that it does not mention.
SILENCE = Expectation("undeclared", "the declaration does not mention the fault")


def expectation(system: System, fault: str, verdict: str) -> Expectation:
    """What is expected of a lock under one fault, named without its parameters."""
    if (why := _not_judged(system, verdict)) is not None:
        return Expectation("n/a", why)
    under = system.expectations.get(fault, {})
    listed = under.get(verdict) or under.get(ANY)
    if listed is not None:
        return listed
    if fault != NONE and fault not in system.expectations:
        return SILENCE
    return Expectation("holds", system.queue if verdict == "queue-order" else system.source)


def _not_judged(system: System, verdict: str) -> str | None:
    """Why a lock is not judged by a verdict at all."""
    entry = CATALOGUE[verdict]
    if system.kind in entry.not_of:
        return f"it does not apply to a {system.kind} lock"
    lacks: Mapping[Needs, tuple[bool, str]] = {
        "a limit": (not system.limited, "its grants have no limit"),
        "a fence": (system.fence is None, "the lock offers no fence"),
        "a queue": (not system.queue, "the lock promises no order of waiters, or tells no places"),
    }
    if entry.needs is None or not lacks[entry.needs][0]:
        return None
    return lacks[entry.needs][1]


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
    required: Collection[str] = ALWAYS,
    contradicted: Mapping[str, str] | None = None,
    disturbed: str | None = None,
) -> Judgement:
    """Holds ``observed`` (verdict → valid, invalid or unknown) against what is expected.

    ``failure``: why the case itself failed. ``unable``: why it could not run
    (``lockbench.bench.usable``). ``short``: what of the requested load did not take place
    (``lockbench.bench.generator``). ``shown_before``: breaks that an earlier try showed.
    ``required``: verdicts that the load gives reason to reach. ``contradicted``: what the service's
    own record refutes → the sentence with which it does (``lockbench.checker.service``); it is no
    evidence against the lock, nor is a history that is not linearizable for it. ``disturbed``: what
    happened from outside; what it may have caused is not among the broken verdicts
    (``lockbench.checker.outside``), and such a case shows nothing else.
    """
    broken = [v for v, result in observed.items() if result == "invalid"]
    # What the resource applied is a fact of its own, whatever was promised.
    denied = {*(contradicted or ()), GENERAL}
    refuted = following(contradicted or (), denied.intersection(broken))
    excused = expected.excused(broken)
    unsaid = [v for v in broken if v in expected.unpreventable(broken) - excused]
    worse = [v for v in broken if v not in {*excused, *refuted, *unsaid}]
    if worse:
        return _violated(expected, worse)
    if disturbed is not None:
        return Judgement(Ending.BENCH, DISTURBED, disturbed)
    if contradicted:
        said = "; ".join(f"{what}: {sentence}" for what, sentence in contradicted.items())
        return Judgement(Ending.BENCH, CONTRADICTED, said)
    if unable is not None:
        return Judgement(Ending.BENCH, COULD_NOT_RUN, unable)
    if failure is not None:
        return Judgement(Ending.BENCH, "failed", failure)
    reached = [v for v in NAMED if v in required or v not in AT_THE_RESOURCE]
    due = [v for v in reached if expected.of(v).expected == "breaks"]
    missing = [v for v in due if v not in broken and v not in shown_before]
    if missing:
        return Judgement(
            Ending.BENCH,
            DID_NOT_SHOW,
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
    if unsaid:
        return Judgement(
            Ending.INCONCLUSIVE,
            NOTHING_DECLARED,
            f"{', '.join(unsaid)} broke; no lease can prevent it, and nothing is declared of "
            "what this lock is expected to do",
        )
    return _kept(expected, broken)


def _kept(expected: Expected, broken: Sequence[str]) -> Judgement:
    """Nothing broke but what was expected to."""
    if silent := expected.silent():
        also = f"; {', '.join(broken)} broke, as expected" if broken else ""
        return Judgement(
            Ending.OK, HELD_UNDECLARED, f"nothing is declared under {', '.join(silent)}{also}"
        )
    if broken:
        return Judgement(Ending.OK, AS_EXPECTED, f"{', '.join(broken)} broke, as expected")
    return Judgement(Ending.OK, AS_EXPECTED, "every promise was kept")


def _violated(expected: Expected, worse: Sequence[str]) -> Judgement:
    """Of several violations, one against a claim gives the case its word."""
    unclaimed = [v for v in worse if expected.of(v).expected == SILENCE.expected]
    claimed = [v for v in worse if v not in unclaimed]
    parts = [f"{', '.join(claimed)}: expected to hold and broke"] if claimed else []
    if unclaimed:
        under = ", ".join(expected.silent())
        parts.append(f"{', '.join(unclaimed)}: broke, and nothing is declared under {under}")
    word = WORSE if claimed else BROKE_UNDECLARED
    return Judgement(Ending.SAFETY, word, "; ".join(parts))
