"""Alert replay: would the monitoring have noticed? Each violation of a case against each alert.

Two readings, never mixed:

* ``recorded``: what was recorded happened once, after silence and before silence.
* ``repeated``: the recorded seconds happen again and again without a gap for half an hour (an
  extrapolation: same load, same fault, same rate).

An alert that fires on the quiet stretch before the fault as well, read in the same way, says
nothing about the violation: it fires ``anyway``. Where that stretch has too few acquisitions for a
ratio, whether the load alone would have fired it is ``unclear``.

A violation is the first one of a verdict that is ``invalid``, at the moment from which it was
there. ``leaked-lock`` is a measurement too, and stands among them where a dead holder's lock stayed
taken for longer than its lease, whatever the verdict says. Only alerts for the violation's own
resource count. ``linearizable`` is left out where another verdict says the same with a moment.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil
from typing import Any, Final

import numpy as np

from lockbench.checker.catalogue import CATALOGUE, GENERAL
from lockbench.checker.check import check
from lockbench.checker.clocks import on_one_clock
from lockbench.checker.verdict import Report
from lockbench.history.columns import History
from lockbench.history.joining import killed_worker
from lockbench.history.op import F
from lockbench.results.alert_metrics import (
    ACQUISITIONS,
    ALERTS,
    EVALUATION_S,
    NS_PER_S,
    PHASES_S,
    Alert,
    Counters,
    Evaluated,
    counters,
    evaluate,
    longest_true_s,
)

REPEATED_S: Final = 1800.0
QUIET_ACQUISITIONS_MIN: Final = 10
LEAK_S_MIN: Final = 1.0  # beyond its lease, a second for those who ask again and again
LEAKED: Final = "leaked-lock"


@dataclass(frozen=True)
class Violation:
    """``at_ns``: the history's clock; ``key`` the resource it happened on."""

    verdict: str
    key: str
    at_ns: int


@dataclass(frozen=True)
class Sight:
    """What one alert did about one violation in one reading.

    ``word``: ``fires``, ``anyway`` and ``unclear`` (see the module), ``before`` (it was
    firing already), ``unseen``, ``no metric``. ``late_s``: (earliest, latest) after the
    violation's moment, over the phases of the scrapes. ``phases``: in how many of them it fires.
    """

    alert: str
    origin: str
    word: str
    late_s: tuple[float, float] | None
    phases: int
    why: str


@dataclass(frozen=True)
class ReplayedViolation:
    """One violation, with one sight per alert in each reading. ``at_s``: since the first
    operation."""

    verdict: str
    key: str
    at_s: float
    recorded: tuple[Sight, ...]
    repeated: tuple[Sight, ...]


@dataclass(frozen=True)
class Replayed:
    """A case. ``alarms``: alert → resources on which it fires when the recording is repeated,
    whether anything was violated or not."""

    seconds: float
    violations: tuple[ReplayedViolation, ...]
    alarms: Mapping[str, tuple[str, ...]]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def replay(history: History, *, unknown_after_s: float = 0.0) -> Replayed:
    """Judges the history anew and replays its counters."""
    placed = on_one_clock(history)
    counted = counters(placed, unknown_after_s=unknown_after_s)
    found = violations_of(placed, check(history))
    violations = tuple(_replayed(placed, counted, violation) for violation in found)
    return Replayed(counted.span_s, violations, _alarms(counted))


def replay_judged(
    history: History, report: Report, *, unknown_after_s: float = 0.0
) -> tuple[ReplayedViolation, ...]:
    """The violations of a history that is on one clock, and judged already. Nothing is counted
    where there are none."""
    found = list(violations_of(history, report))
    if not found:
        return ()
    counted = counters(history, unknown_after_s=unknown_after_s)
    return tuple(_replayed(history, counted, violation) for violation in found)


def violations_of(history: History, report: Report) -> Iterator[Violation]:
    """The first of each kind, in the order of the verdicts; then leaks."""
    broken = {n: v.evidence for n, v in report.verdicts.items() if v.result == "invalid"}
    leaks = list(_leaks(history, report))
    for name, evidence in broken.items():
        if (name == GENERAL and len(broken) > 1) or (name == LEAKED and leaks):
            continue
        found = _moment(name, evidence)
        if found is not None:
            yield Violation(name, *found)
    yield from leaks


def _moment(verdict: str, evidence: Sequence[Mapping[str, Any]]) -> tuple[str, int] | None:
    """(key, time) from which the violation was there: the grant that should not have been, else the
    operation that should not have been (when it was applied, else completed, else invoked)."""
    grants = [item for item in evidence if item.get("what") == "grant"]
    operations = [item for item in evidence if item.get("what") == "operation"]
    act = CATALOGUE[verdict].act
    if grants and (act.endswith("grant") or not operations):
        first = act == "first grant"
        chosen = grants[0] if first else max(grants, key=lambda item: int(item["granted_ns"]))
        return str(chosen["key"]), int(chosen["granted_ns"])
    if not operations:
        return None
    # A wrong release or extend comes before what shows it, as does what left a key behind; of lost
    # updates the last is at fault.
    chosen = operations[0] if act == "first operation" else operations[-1]
    for name in ("applied_ns", "complete_ns", "invoke_ns"):
        if chosen.get(name) is not None:
            return str(chosen["key"]), int(chosen[name])
    return None


def _leaks(history: History, report: Report) -> Iterator[Violation]:
    leaks = report.measurements.get(LEAKED)
    for leak in leaks if isinstance(leaks, Sequence) else ():
        taken, left = leak["released_s"], leak["lease_left_s"]
        if left is not None and taken is not None and taken <= max(left, 0.0) + LEAK_S_MIN:
            continue
        died = [
            int(history.invoke_ns[row])
            for row in np.flatnonzero(history.f == F.DEATH)
            if history.process_name(int(history.process[row])) == leak["process"]
        ]
        died += [f.begin_ns[0] for f in history.faults if killed_worker(f) is not None]
        if died:
            # Leaked from when its lease was over; without a lease, from the death.
            yield Violation(LEAKED, leak["key"], died[0] + int((left or 0.0) * NS_PER_S))


def _replayed(history: History, counted: Counters, found: Violation) -> ReplayedViolation:
    faults = [fault.begin_ns[0] for fault in history.faults]
    quiet = counted.until(min([found.at_ns - 1, *faults]))
    once, again = (
        tuple(_sight(alert, counted, quiet, found, repeated=repeated) for alert in ALERTS)
        for repeated in (False, True)
    )
    return ReplayedViolation(found.verdict, found.key, counted.at_s(found.at_ns), once, again)


def _sight(
    alert: Alert, counted: Counters, quiet: Counters, found: Violation, *, repeated: bool
) -> Sight:
    every = _every_phase(alert, counted, found.key, repeated=repeated)
    if every is None:
        why = "the lock has no fence, so the resource can refuse nothing"
        return Sight(alert.name, alert.origin, "no metric", None, 0, why)
    seen = _first_seen(alert, every, counted, found)
    if seen.word != "fires":
        return seen
    asked = sum(len(series.at_ns) for series in quiet.of(ACQUISITIONS, found.key))
    if alert.per is not None and asked < QUIET_ACQUISITIONS_MIN:
        why = f"it fires, but only {asked} acquisitions came before: no quiet load to compare with"
        return replace(seen, word="unclear", why=why)
    calm = _every_phase(alert, quiet, found.key, repeated=repeated)
    if calm is not None and any(np.any(one.firing) for one in calm):
        return replace(seen, word="anyway", why="the load before the fault fires it as well")
    return seen


def _every_phase(
    alert: Alert, counted: Counters, resource: str, *, repeated: bool
) -> list[Evaluated] | None:
    cycles = _cycles(counted) if repeated else 1
    found = [evaluate(alert, counted, resource, phase_s=phase, cycles=cycles) for phase in PHASES_S]
    return [one for one in found if one is not None] or None


def _cycles(counted: Counters) -> int:
    return max(1, ceil(REPEATED_S / counted.span_s)) if counted.span_s > 0 else 1


def _first_seen(
    alert: Alert, every: Sequence[Evaluated], counted: Counters, found: Violation
) -> Sight:
    at_s = counted.at_s(found.at_ns)
    late = []
    for one in every:
        firing = one.at_s[one.firing]
        # Firing at the evaluation before the moment: it was on already.
        if np.any((firing <= at_s) & (firing > at_s - EVALUATION_S)):
            return Sight(alert.name, alert.origin, "before", None, 0, "it was firing already")
        if np.any(firing > at_s):
            late.append(float(firing[firing > at_s][0] - at_s))
    if late:
        return Sight(alert.name, alert.origin, "fires", (min(late), max(late)), len(late), "")
    why = _why_not(alert, every, counted, found, at_s)
    return Sight(alert.name, alert.origin, "unseen", None, 0, why)


def _why_not(
    alert: Alert, every: Sequence[Evaluated], counted: Counters, found: Violation, at_s: float
) -> str:
    moved = sum(
        int(np.count_nonzero(series.at_ns >= found.at_ns))
        for series in counted.of(alert.metric, found.key)
    )
    after = np.concatenate([one.value[one.at_s > at_s] for one in every])
    known = after[~np.isnan(after)]
    if moved == 0:
        return "its counter did not move after the violation"
    peak = float(np.max(known, initial=0.0))
    if peak <= alert.threshold:
        return f"at most {peak:.2g}, threshold {alert.threshold:g}"
    true_s = longest_true_s(every)
    long = f"for {true_s:.0f} s" if true_s else "at one evaluation only"
    return f"true {long}, has to be for {alert.for_s:.0f} s"


def _alarms(counted: Counters) -> dict[str, tuple[str, ...]]:
    resources = sorted({series.resource for series in counted.series})
    cycles = _cycles(counted)
    made = {}
    for alert in ALERTS:
        found = [
            resource
            for resource in resources
            if (one := evaluate(alert, counted, resource, cycles=cycles)) is not None
            and np.any(one.firing)
        ]
        made[alert.name] = tuple(found)
    return made
