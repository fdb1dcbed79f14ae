"""The numbers of one case, exact, from its history.

Every key has a role. ``own`` keys have one client each and measure the uncontended lock;
``contended`` keys have many; ``floor`` is one client alone at the very start; ``aimed`` keys serve
the nemesis and are in no number here, nor are those of the phase ``rates``
(``lockbench.results.rates``).

Latencies, in milliseconds, of operations that *succeeded* (``counts`` says how many others
there were; a fault hurts there as well), but for the response time on own keys (see below):

* ``acquire``: uncontended. ``before`` comes from the own phase alone, ``during`` and ``after`` from
  the own clients that go on beside the contended load. ``acquire_beside`` has all three phases from
  beside the load, so that before and after can be compared under the same conditions.
* ``handover``: release invoked → next grant completed, where the grantee was already waiting. What
  was granted to one who asked later, or when nobody waited, is none: ``handover`` covers as many of
  the contended grants as its count is of that of ``wait``.
* ``wait``: contended acquire, invoked → granted. Mostly the length of the queue.
* ``release``: invoked → confirmed.
* ``job``: a whole piece of work on a contended key, from its start to its confirmed end, where the
  workload records it. It is what work under a lock and work without one have in common.

``latency_ms`` is service time, from the invocation. ``response_ms`` runs from the intended start,
where the load declared one; it does not hide what a closed loop hides. Acquires that failed or
timed out are in it, right-censored: they took longer than until they were given up
(``Quantiles.above``).
That of ``wait`` is always there, from the invocation where nothing was intended.

**Before, during and after are never pooled.** An operation occupies the time from its intended
start (else its invocation) to its completion. It is *during* when that touches a fault window
(first begin to last heal), so one that began before a cut and got stuck in it counts for the fault
and not for the baseline. Otherwise it is *before* when it started before the first fault, and
*after* when it started later, between two faults included. Rates go by when a grant completed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lockbench.history.columns import History, Ints, Small
from lockbench.history.op import NULL, F, Fault, Type
from lockbench.results.cases import PHASES
from lockbench.results.documents import ByPhase, Part, Quantiles, Series
from lockbench.results.on_machines import Placed
from lockbench.results.quantiles import P50, carries, quantiles

Interval = tuple[int, int]
Mask = NDArray[np.bool_]

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1_000_000_000
FOREVER_NS: Final = 2**63 - 1
BEFORE, DURING, AFTER = range(3)
KINDS: Final = ("acquire", "handover", "wait", "release", "acquire_beside")
# Kinds whose response time takes in what was given up.
GIVEN_UP: Final = ("acquire", "acquire_beside", "wait")
# Kinds of locks of which one client at a time holds a key.
ALONE: Final = frozenset({"mutex", "reentrant"})
COUNTED: Final = tuple(f for f in F if f not in (F.DEATH, F.QUIET, F.QUEUED))
# A refusal for these reasons is what a busy lock is supposed to answer.
ORDINARY_REFUSALS: Final = frozenset({"held", "gave-up"})


@dataclass(frozen=True, slots=True)
class Phases:
    """When the load did what: (start, end) in nanoseconds of the monotonic clock, end exclusive."""

    floor: Interval
    own: Interval
    contended: Interval


class Numbers(Part, frozen=True):
    """See the module; fields are those of a case. Mappings go kind → phase; without a fault the
    only phase is ``before``."""

    latency_ms: dict[str, ByPhase]
    response_ms: dict[str, ByPhase]  # only kinds for which an intended start was recorded
    counts: dict[str, dict[str, dict[str, int]]]  # f → phase → ok, fail, info
    errors: dict[str, dict[str, int]]  # phase → class of error → count
    cycles_per_second: float | None  # None: there was no contended phase
    cycles_per_second_by_phase: dict[str, float | None]
    own_cycles_per_second: float | None  # in the own phase, all own clients together
    holders_per_key: int | None  # of contended keys, at a time; None: any number
    floor_acquire_ms: Quantiles
    series: Series


def measure(
    history: History,
    phases: Phases,
    *,
    unknown_after_s: float = 0.0,
    given_up: Collection[str] = GIVEN_UP,
) -> Numbers:
    """All numbers of one case.

    An unknown has no completion. ``unknown_after_s`` (the client timeout) says how long it was in
    flight, so that one cut off by a fault counts as during and not as before. ``given_up``: kinds
    whose response time takes in what was given up; older versions had fewer.
    """
    placed = Placed.of(history)
    history = placed.history
    view = _View(history, unknown_after_s)
    names = PHASES if history.faults else PHASES[:1]
    asked = view.is_f(F.ACQUIRE)
    granted = asked & view.ok
    in_own, in_contended = view.within(phases.own), view.within(phases.contended)
    own, contended = history.has_role("own"), history.has_role("contended")
    measured = (own & in_own) | ((own | contended) & in_contended)

    places: dict[str, Mask] = {
        "acquire": asked & own & (in_own | (in_contended & (view.phase != BEFORE))),
        "wait": asked & contended & in_contended,
        "release": view.is_f(F.RELEASE) & measured,
        "acquire_beside": asked & own & in_contended,
    }
    picks = {kind: place & view.ok for kind, place in places.items()}
    jobs = view.is_f(F.JOB) & view.ok & contended
    kinds: tuple[str, ...] = KINDS
    if np.any(jobs):
        picks["job"] = jobs & in_contended
        kinds = (*KINDS, "job")
    service = {kind: view.latencies(pick, names) for kind, pick in picks.items()}
    service["handover"] = _by_phase(
        *_handovers(view, placed, granted, contended & in_contended), names
    )
    ended = {
        kind: pick if kind == "wait" and kind in given_up else pick & view.paced
        for kind, pick in (picks | {kind: places[kind] for kind in given_up}).items()
    }
    response = {
        kind: view.latencies(pick, names, from_intended=True)
        for kind, pick in ended.items()
        if np.any(pick)
    }
    # Where no lock is asked for, a cycle is a job.
    cycle = granted if np.any(view.is_f(F.ACQUIRE)) else view.is_f(F.JOB) & view.ok
    contended_grants = history.complete_ns[cycle & contended]
    own_grants = history.complete_ns[cycle & own]
    rate, rate_by_phase = _rates(contended_grants, phases.contended, view.faults, names)
    floor = granted & history.has_role("floor")
    return Numbers(
        latency_ms={kind: service[kind] for kind in kinds},
        response_ms=response,
        counts=_counts(view, names),
        errors=_errors(view, names),
        cycles_per_second=rate,
        cycles_per_second_by_phase=rate_by_phase,
        own_cycles_per_second=_rate(own_grants, phases.own),
        holders_per_key=_holders(history),
        floor_acquire_ms=view.latencies(floor, PHASES[:1], pooled=True)["before"],
        series=_series(view, cycle & contended, phases.contended),
    )


def before(history: History, phases: Phases, *, unknown_after_s: float = 0.0) -> dict[str, Ints]:
    """Kind → every latency before the first fault, in nanoseconds: what may be pooled over cases
    of the same lock (``lockbench.results.baseline``). Kinds ``acquire`` (own phase), ``handover``
    and ``wait``; of acquires and of waits, from the intended start, the ``_response`` of those that
    were granted, and how long until the others were ``_given_up``."""
    placed = Placed.of(history)
    history = placed.history
    view = _View(history, unknown_after_s)
    asked = view.is_f(F.ACQUIRE) & (view.phase == BEFORE)
    granted = asked & view.ok
    own = history.has_role("own") & view.within(phases.own)
    contended = history.has_role("contended") & view.within(phases.contended)
    took, response = history.complete_ns - history.invoke_ns, view.end - view.start
    handovers, phase = _handovers(view, placed, view.is_f(F.ACQUIRE) & view.ok, contended)
    found = {"handover": handovers[phase == BEFORE]}
    for kind, place in {"acquire": own, "wait": contended}.items():
        found[kind] = took[granted & place]
        found[f"{kind}_response"] = response[granted & place]
        found[f"{kind}_given_up"] = response[asked & ~view.ok & place]
    return found


def _begin_ns(fault: Fault) -> int:
    staged_ns = fault.seen.staged_ns
    return fault.begin_ns[0] if staged_ns is None else min(staged_ns, fault.begin_ns[0])


class _Faults:
    """The union of all fault windows as sorted, disjoint, closed intervals. What the nemesis did to
    the cluster to make a fault ready is part of it: a lock may wait for that, too."""

    def __init__(self, history: History) -> None:
        windows = sorted(
            (_begin_ns(fault), FOREVER_NS if fault.heal_ns is None else fault.heal_ns[1])
            for fault in history.faults
        )
        merged: list[Interval] = []
        for begin, heal in windows:
            if merged and begin <= merged[-1][1]:
                merged[-1] = (merged[-1][0], max(heal, merged[-1][1]))
            else:
                merged.append((begin, heal))
        self.windows = merged
        self._begins = np.array([begin for begin, _ in merged], np.int64)
        self._heals = np.array([heal for _, heal in merged], np.int64)

    def phase_of(self, start: Ints, end: Ints) -> Small:
        """BEFORE, DURING or AFTER for operations that occupied [start, end]."""
        phase = np.zeros(len(start), np.uint8)
        if not self.windows:
            return phase
        phase[start >= self._begins[0]] = AFTER
        # The first window that had not healed when the operation started is the only one to ask.
        first = np.searchsorted(self._heals, start)
        candidates = np.append(self._begins, FOREVER_NS)[first]
        phase[candidates <= end] = DURING
        return phase

    def seconds(self, interval: Interval) -> tuple[float, float, float]:
        """How much of ``interval`` lies before, during and after."""
        start, end = interval
        during = sum(max(0, min(end, heal) - max(start, at)) for at, heal in self.windows)
        before = end - start
        if self.windows:
            before = max(0, min(end, self.windows[0][0]) - start)
        after = (end - start) - before - during
        return before / NS_PER_S, during / NS_PER_S, after / NS_PER_S


class _View:
    """The columns that every number needs, derived once."""

    def __init__(self, history: History, unknown_after_s: float) -> None:
        self.history = history
        self.ok: Mask = history.type == Type.OK
        self.paced: Mask = history.intended_ns != NULL
        self.start: Ints = np.where(self.paced, history.intended_ns, history.invoke_ns)
        flight_ns = int(unknown_after_s * NS_PER_S)
        self.end: Ints = np.where(
            history.complete_ns == NULL, history.invoke_ns + flight_ns, history.complete_ns
        )
        self.faults = _Faults(history)
        self.phase = self.faults.phase_of(self.start, self.end)

    def is_f(self, f: F) -> Mask:
        found: Mask = self.history.f == f
        return found

    def within(self, interval: Interval) -> Mask:
        found: Mask = (self.start >= interval[0]) & (self.start < interval[1])
        return found

    @cached_property
    def counted(self) -> Mask:
        # No load, what ends badly by design, and what has figures of its own
        # (``lockbench.results.rates``).
        floor, aimed, rate = map(self.history.has_role, ("floor", "aimed", "rate"))
        return ~(floor | aimed | rate)

    def latencies(
        self,
        pick: Mask,
        names: tuple[str, ...],
        *,
        from_intended: bool = False,
        pooled: bool = False,
    ) -> dict[str, Quantiles]:
        """Quantiles in milliseconds per phase; ``pooled`` only where no phases are meant. What did
        not succeed is right-censored."""
        rows = np.flatnonzero(pick)
        origin = self.start if from_intended else self.history.invoke_ns
        took = self.end[rows] - origin[rows]
        phase = np.zeros(len(rows), np.uint8) if pooled else self.phase[rows]
        return _by_phase(took, phase, names, ~self.ok[rows])


def _by_phase(
    took_ns: Ints, phase: Small, names: tuple[str, ...], given_up: Mask | None = None
) -> dict[str, Quantiles]:
    lasted = np.zeros(len(took_ns), np.bool_) if given_up is None else given_up
    return {
        name: quantiles(took_ns[phase == number], NS_PER_MS, lasted[phase == number])
        for number, name in enumerate(names)
    }


def _handovers(view: _View, placed: Placed, granted: Mask, contended: Mask) -> tuple[Ints, Small]:
    """How long each hand-over took, in nanoseconds, and in which phase.

    Pairs each confirmed release with the grant that it made possible. On one key, in the order of
    (grant completed, release invoked): grant of X, release of X, grant of Y, next to each other,
    where Y was asked for before X was released. Next to each other and with the same hold, so that
    a key granted twice over yields no pair that never was one. Between two machines only where
    their clocks may be compared (``lockbench.results.on_machines``).
    """
    history = view.history
    released = view.is_f(F.RELEASE) & view.ok
    rows = np.flatnonzero((granted | released) & contended)
    if len(rows) < 3:
        return np.empty(0, np.int64), np.empty(0, np.uint8)
    is_grant = granted[rows]
    at = np.where(is_grant, history.complete_ns[rows], history.invoke_ns[rows])
    order = np.lexsort((at, history.key[rows]))
    rows, is_grant, at = rows[order], is_grant[order], at[order]
    key, hold = history.key[rows], history.hold[rows]
    follows = (
        is_grant[:-2]
        & ~is_grant[1:-1]
        & is_grant[2:]
        & (key[:-2] == key[2:])
        & (hold[:-2] == hold[1:-1])
        & (history.invoke_ns[rows[2:]] <= at[1:-1])
    )
    begun, ended = at[1:-1][follows], at[2:][follows]
    if placed.machine is not None:
        from_, to = placed.machine[rows[1:-1][follows]], placed.machine[rows[2:][follows]]
        between = from_ != to
        if not placed.comparable(ended - begun, between):
            begun, ended = begun[~between], ended[~between]
    return ended - begun, view.faults.phase_of(begun, ended)


def _holders(history: History) -> int | None:
    """How many may hold a contended key at a time, where that is limited and the same for all."""
    found = set()
    for key in history.keys:
        thing = history.object_of(key)
        if thing.role == "contended":
            found.add(1 if thing.kind in ALONE else thing.permits)
    return found.pop() if len(found) == 1 else None


def _counts(view: _View, names: tuple[str, ...]) -> dict[str, dict[str, dict[str, int]]]:
    history = view.history
    counted = view.counted
    cell = history.f.astype(np.int64) * 12 + view.phase * 4 + history.type
    tally = np.bincount(cell[counted], minlength=12 * (max(F) + 1)).reshape(-1, 3, 4)
    return {
        f.word: {
            name: {
                type_.word: int(tally[f, number, type_])
                for type_ in (Type.OK, Type.FAIL, Type.INFO)
            }
            for number, name in enumerate(names)
        }
        for f in COUNTED
        if tally[f].any()
    }


def _error_class(text: str) -> str:
    return text.split(":", 1)[0].strip()


def _errors(view: _View, names: tuple[str, ...]) -> dict[str, dict[str, int]]:
    """Classes of errors, the most frequent first. Refusals (``held`` …) are among them."""
    history = view.history
    named = view.counted & (history.error >= 0)
    result: dict[str, dict[str, int]] = {}
    for number, name in enumerate(names):
        tally = np.bincount(history.error[named & (view.phase == number)])
        classes: dict[str, int] = {}
        for text in np.flatnonzero(tally):
            word = _error_class(history.errors[text])
            classes[word] = classes.get(word, 0) + int(tally[text])
        result[name] = dict(sorted(classes.items(), key=lambda item: (-item[1], item[0])))
    return result


def _rate(completed_ns: Ints, interval: Interval) -> float | None:
    start, end = interval
    if end <= start:
        return None
    grants = np.count_nonzero((completed_ns >= start) & (completed_ns < end))
    return float(grants) * NS_PER_S / (end - start)


def _rates(
    completed_ns: Ints, interval: Interval, faults: _Faults, names: tuple[str, ...]
) -> tuple[float | None, dict[str, float | None]]:
    inside = completed_ns[(completed_ns >= interval[0]) & (completed_ns < interval[1])]
    phase = faults.phase_of(inside, inside)
    seconds = faults.seconds(interval)
    by_phase = {
        name: int(np.count_nonzero(phase == number)) / seconds[number]
        if seconds[number] > 0
        else None
        for number, name in enumerate(names)
    }
    return _rate(completed_ns, interval), by_phase


def _series(view: _View, grants: Mask, interval: Interval) -> Series:
    history = view.history
    start, end = interval
    seconds = max(0, -(-(end - start) // NS_PER_S))
    if seconds == 0:
        return Series(start, (), (), ())
    refused = history.type == Type.FAIL
    ordinary = [_error_class(text) in ORDINARY_REFUSALS for text in history.errors]
    # One more for error -1, none.
    refused &= ~np.array([*ordinary, False], np.bool_)[history.error]
    bad = view.counted & ((history.type == Type.INFO) | refused)

    def seconds_of(times: Ints) -> Ints:
        inside = times[(times >= start) & (times < end)]
        return (inside - start) // NS_PER_S

    rows = np.flatnonzero(grants & (history.complete_ns >= start) & (history.complete_ns < end))
    second = (history.complete_ns[rows] - start) // NS_PER_S
    took = history.complete_ns[rows] - history.invoke_ns[rows]
    took = took[np.lexsort((took, second))]
    per_second = np.bincount(second, minlength=seconds)
    first = np.cumsum(per_second) - per_second
    p50 = tuple(
        float(took[at + -(-n // 2) - 1]) / NS_PER_MS if carries(n, P50) else None
        for at, n in zip(first.tolist(), per_second.tolist(), strict=True)
    )
    errors = np.bincount(seconds_of(history.invoke_ns[bad]), minlength=seconds)
    return Series(start, tuple(per_second.tolist()), tuple(errors.tolist()), p50)
