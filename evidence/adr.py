"""What a decision record rests on: locks as they were measured, and where each number is from.

Guarantees: every k of n counts exposed tries of one fault, with its 95 % bounds; tries of different
faults are never added up, nor are latencies of several sweeps: they make one range. Knows nothing
that is not in the runs, but for which faults cannot be applied to a lock of this version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Final

from lockbench.bench.plan import make_case, unfit
from lockbench.bench.suites import faults_of
from lockbench.checker.catalogue import ALWAYS, CATALOGUE
from lockbench.checker.follows import told
from lockbench.clusters.registry import topologies
from lockbench.locks.base import System
from lockbench.locks.registry import systems
from lockbench.nemesis.base import Impossible
from lockbench.nemesis.registry import NONE
from lockbench.results import wording
from lockbench.results.cases import (
    attempts,
    came_to_nothing,
    command_of,
    counts_as_try,
    expected_of,
    fenced,
    in_order,
    is_consensus,
    is_control,
    is_published,
    lock_of,
    proven,
    recovery_s,
    results_of,
    undecided,
)
from lockbench.results.digests import whole_digest
from lockbench.results.documents import CaseResult, LockRates
from lockbench.results.statistics import BOUND_TRIES_MIN, Share
from lockbench.results.statistics import share as exact
from lockbench.results.stored import Stored

# How many exposed tries "does not break" takes: after 20 without a break, its share is at most 14 %
# (one-sided, 95 %).
TRIES: Final = 20
STALE: Final = "stale-holder"
AIMED: Final = "client-pause"  # which makes stale holders on purpose
share = cache(exact)
Key = tuple[str, str, int, str]


@dataclass(frozen=True, slots=True)
class Evidence:
    """One case of one run. ``id`` is E1, E2 …; ``history`` is the SHA-256 of the list of digests
    of all files of the history, as ``sha256sum`` prints it."""

    id: str
    run: str
    folder: str
    lock: str
    fault: str
    seed: str
    history: str
    images: str
    command: str


@dataclass(frozen=True, slots=True)
class Tried:
    """A verdict of a lock under a fault. ``by_itself``: in how many tries it broke and did not
    follow from another break (``lockbench.checker.follows``)."""

    fault: str
    verdict: str
    share: Share
    by_itself: int
    undecided: int
    expected: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """A lock on a cluster, as it was measured. Faults that it has nothing to lose by are
    ``impossible``, those that the bench cannot do to it ``out_of_reach``: fault → why.
    ``fence_checked``: fault → in how many cases in which a stale holder wrote a checked fence let
    it. ``seed``: the highest that was tried."""

    name: str
    lock: str
    topology: str
    size: int
    network: str
    family: str
    fence: str | None
    consensus: bool
    control: bool = False
    own: bool = False  # from a file that is not ours
    tried: tuple[Tried, ...] = ()
    impossible: Mapping[str, str] = field(default_factory=dict)
    out_of_reach: Mapping[str, str] = field(default_factory=dict)
    fence_checked: Mapping[str, Share] = field(default_factory=dict)
    rates: tuple[LockRates, ...] = ()
    recovery_s: Mapping[str, tuple[float, int]] = field(
        default_factory=dict
    )  # slowest, of how many
    unrecovered: Mapping[str, int] = field(default_factory=dict)  # in how many nobody was granted
    jain: float | None = None  # of the least fair case without a fault
    seed: int = 0
    evidence: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What it is, whatever it is called beside others."""
        return self.lock, self.topology, self.size, self.network

    def broke(self) -> list[Tried]:
        """What broke, consequences of another break left out."""
        return [t for t in self.tried if t.by_itself]

    def broke_itself(self) -> list[Tried]:
        """Breaks of the lock's own word: what its service or library answered."""
        return [t for t in self.broke() if of_the_lock(t.verdict)]

    def of_fault(self, fault: str) -> list[Tried]:
        """The lock's own word under a fault."""
        return [t for t in self.tried if t.fault == fault and of_the_lock(t.verdict)]

    def exposed(self, fault: str) -> Share:
        """Of the verdicts by which every lock is judged, the one with the fewest tries."""
        found = [t.share for t in self.of_fault(fault) if t.verdict in ALWAYS]
        return min(found, key=lambda one: one.n, default=share(0, 0))


def of_the_lock(verdict: str) -> bool:
    """Whether a break is the lock's own. What a holder does after its time is not, since fencing
    and not the lock is for that; nor is what it cost a job."""
    entry = CATALOGUE.get(verdict)
    return entry is None or entry.blames == "lock"


def evidence_of(runs: Sequence[Stored]) -> list[tuple[Evidence, CaseResult]]:
    """Every case of the runs with where it can be found and how it is repeated, by lock and fault,
    so that tries of one fault stand together."""
    found = []
    for run in runs:
        images = run.plan.images_of(len(run.cases))
        for case, replaced in zip(run.cases, images, strict=True):
            found.append((_evidence(run, case, replaced), case))
    labels = labels_of([case for _, case in found])
    locks, faults = in_order(labels), in_order(case.fault for _, case in found)
    ordered = sorted(
        zip(labels, found, strict=True),
        key=lambda one: (locks.index(one[0]), faults.index(one[1][1].fault)),
    )
    return [
        (replace(evidence, id=f"E{number}"), case)
        for number, (_, (evidence, case)) in enumerate(ordered, 1)
    ]


def options(runs: Sequence[Stored], cases: Sequence[tuple[Evidence, CaseResult]]) -> list[Option]:
    """One per lock and cluster, in the order in which they were run."""
    labels = labels_of([case for _, case in cases])
    rates = [rates for run in runs for rates in run.results.rates]
    return [
        _option(label, [pair for pair, of in zip(cases, labels, strict=True) if of == label], rates)
        for label in in_order(labels)
    ]


def untried(system: System, topology: str, size: int) -> Option:
    """A lock of ours that nothing is known of yet."""
    impossible, out_of_reach = _not_applied(system.name, topology)
    return Option(
        name=f"{system.name} ({topology}, {wording.times(size, 'node')})",
        lock=system.name,
        topology=topology,
        size=size,
        network="loopback",
        family=system.family,
        fence=system.fence,
        consensus=False,
        impossible=impossible,
        out_of_reach=out_of_reach,
    )


def same_servers(name: str) -> set[str]:
    """The topologies that differ in their settings only from the one of this name. A lock or a
    family stands for where it usually runs."""
    usual = [one.topologies[0] for one in systems().values() if name in {one.name, one.family}]
    of = topologies().get(name) or next((topologies()[one] for one in usual), None)
    if of is None:
        return {name}
    same = (of.images, of.default_size, of.quorum)
    return {
        one.name
        for one in topologies().values()
        if (one.images, one.default_size, one.quorum) == same
    }


def k_of_n(found: Share) -> str:
    """``1 of 3 (1 to 91 %)``; with its 95 % bounds from three tries on, one-sided at the ends."""
    if found.n == 0:
        return "0 of 0 (nothing is known)"
    said = f"{found.k} of {found.n}"
    if found.n < BOUND_TRIES_MIN:
        return said
    low, high = 100 * found.low, found.at_most_percent
    if found.k == 0:
        return f"{said} (at most {high} %)"
    if found.k == found.n:
        return f"{said} (at least {low:.0f} %)"
    return f"{said} ({low:.0f} to {high} %)"


def labels_of(cases: Sequence[CaseResult]) -> list[str]:
    """The lock's name for each case; with its cluster where a lock was run on several."""
    clusters: dict[str, set[str]] = {}
    for case in cases:
        if not is_published(case):
            clusters.setdefault(lock_of(case), set()).add(_cluster(case))
    return [
        f"{lock_of(case)} ({_cluster(case)})"
        if len(clusters.get(lock_of(case), ())) > 1 and not is_published(case)
        else lock_of(case)
        for case in cases
    ]


def _cluster(case: CaseResult) -> str:
    network = "" if case.network in {None, "loopback"} else f", {case.network}"
    return f"{case.topology}, {wording.times(case.size or 0, 'node')}{network}"


def _option(
    label: str, cases: Sequence[tuple[Evidence, CaseResult]], rates: Sequence[LockRates]
) -> Option:
    all_ = [case for _, case in cases]
    mutex = [(e, c) for e, c in cases if not is_published(c)] or list(cases)
    first = mutex[0][1]
    lock, topology, network = first.lock, first.topology or "?", first.network or "loopback"
    recoveries: dict[str, list[float]] = {}
    unrecovered: Counter[str] = Counter()
    for _, case in mutex:
        if (took := recovery_s(case)) is not None:
            recoveries.setdefault(case.fault, []).append(took)
        elif case.unrecovered_seconds is not None:
            unrecovered[case.fault] += 1
    fairness = (c.measurements.fairness for _, c in mutex if c.fault == NONE)
    impossible, out_of_reach = ({}, {}) if first.own else _not_applied(lock, topology)
    return Option(
        name=label,
        lock=lock,
        topology=topology,
        size=first.size or 0,
        network=network,
        family=first.family or "?",
        fence=first.fence,
        consensus=is_consensus(first),
        control=any(map(is_control, all_)),
        own=first.own is not None,
        tried=tuple(_tried(mutex)),
        impossible=impossible,
        out_of_reach=out_of_reach,
        fence_checked=_fence_checked(all_),
        rates=tuple(
            one
            for one in rates
            if (one.of.lock, one.of.topology, one.of.size) == (lock, topology, first.size)
            and one.of.network == network
            and not one.of.keys
            and not one.of.hold_s
        ),
        recovery_s={fault: (max(of), len(of)) for fault, of in recoveries.items()},
        unrecovered=dict(unrecovered),
        jain=min((f.jain for f in fairness if f is not None and f.jain is not None), default=None),
        seed=max((case.seed or 0 for case in all_), default=0),
        evidence=tuple(e.id for e, _ in cases),
    )


def _not_applied(lock: str, topology: str) -> tuple[dict[str, str], dict[str, str]]:
    """The faults that are impossible and those that are out of reach. Asks the declarations of this
    version; nothing that a run folder names is loaded."""
    impossible: dict[str, str] = {}
    out_of_reach: dict[str, str] = {}
    system = systems().get(lock)
    if system is None or topology not in system.topologies:
        return impossible, out_of_reach
    usual = make_case(lock, NONE, seed=0, topology=topology)
    for fault in faults_of("full"):
        why = unfit(replace(usual, fault=fault))
        if why is not None:
            (impossible if isinstance(why, Impossible) else out_of_reach)[fault] = str(why)
    return impossible, out_of_reach


def _tried(cases: Sequence[tuple[Evidence, CaseResult]]) -> list[Tried]:
    found = []
    for fault in in_order(case.fault for _, case in cases):
        of = [(e, case) for e, case in cases if case.fault == fault]
        tries = [attempt for _, case in of for attempt in attempts(case)]
        for verdict in in_order(v for _, case in of for v in results_of(case)):
            counted = [t for t in tries if counts_as_try(t, verdict)]
            k = sum(verdict in proven(t) for t in counted)
            found.append(
                Tried(
                    fault,
                    verdict,
                    share(k, len(counted)),
                    sum(verdict in told(proven(t)) for t in counted),
                    sum(verdict in undecided(t) for t in tries if not came_to_nothing(t)),
                    next((x for _, c in of if (x := expected_of(c, verdict))), "undeclared"),
                    tuple(e.id for e, _ in of),
                )
            )
    return found


def _fence_checked(cases: Sequence[CaseResult]) -> dict[str, Share]:
    found: dict[str, list[bool]] = {}
    for case in cases:
        if STALE in proven(case) and (score := fenced(case)) is not None:
            found.setdefault(case.fault, []).append(bool(score.stale_applied))
    return {fault: share(sum(let), len(let)) for fault, let in found.items()}


def _evidence(run: Stored, case: CaseResult, replaced: Sequence[tuple[str, str]]) -> Evidence:
    images, clients = run.versions.images or {}, run.versions.clients or {}
    # A topology of several systems is called after none of its images: then all are named.
    servers = images.keys() & {case.topology, case.family}
    digests = [
        (name, image.digest or image.id)
        for name, image in images.items()
        if not servers or name in {*servers, "toxiproxy"}
    ]
    digests += [(n, c.id or c.fingerprint) for n, c in clients.items() if case.lock in c.locks]
    parts = [f"{name} {(of or '').rpartition('sha256:')[2][:12]}" for name, of in digests]
    return Evidence(
        id="",
        run=run.path.name,
        folder=case.folder or "?",
        lock=lock_of(case),
        fault=case.fault,
        seed="?" if case.seed is None else str(case.seed),
        history=whole_digest(case.history_sha256),
        images=", ".join(parts),
        command=command_of(case, replaced),
    )
