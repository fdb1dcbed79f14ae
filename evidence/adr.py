"""What a decision record rests on: locks as they were measured, and where each number is from.

Guarantees: every k of n counts exposed tries only, with its 95 % bounds; latencies of several runs
are never pooled. Knows nothing that is not in the runs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from checker.catalogue import AT_THE_RESOURCE, OF_JOBS
from checker.follows import told
from results.cases import (
    attempts,
    broken,
    command_of,
    counts_as_try,
    expected_of,
    fenced,
    has_numbers,
    in_order,
    is_consensus,
    is_control,
    is_published,
    lock_of,
    recovery_s,
    results_of,
    undecided,
)
from results.digests import whole_digest
from results.documents import CaseResult, Fairness, Quantiles
from results.statistics import Share, share
from results.stored import Stored

STALE: Final = "stale-holder"
# What a holder does after its time, which fencing and not the lock is for; and what that costs a
# job, which a lock that kept its word does not prevent.
NOT_OF_THE_LOCK: Final = frozenset({*AT_THE_RESOURCE, *OF_JOBS})


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
    follow from another break (``checker.follows``)."""

    fault: str
    verdict: str
    share: Share
    by_itself: int
    undecided: int
    expected: str
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Option:
    """A lock as it was measured. Numbers are None where nothing carries them."""

    name: str
    topology: str
    size: int
    family: str
    fence: str | None
    consensus: bool
    control: bool
    tried: tuple[Tried, ...]
    fence_checked: tuple[int, int] | None  # stale writes that a checked fence let through, in cases
    acquire_ms: Mapping[str, float | None]  # p50, p99, count; before any fault
    cycles_per_s: float | None
    recovery_s: Mapping[str, tuple[float, int]]  # fault → slowest, of how many
    fairness: Mapping[str, float | None]  # jain, overtaken, wait_max_s; worst case without fault
    evidence: tuple[str, ...]
    quiet_evidence: tuple[str, ...]

    def broke(self) -> list[Tried]:
        """What broke, consequences of another break left out."""
        return [t for t in self.tried if t.by_itself]

    def broke_itself(self) -> list[Tried]:
        """Breaks of the lock's own word: what its service or library answered."""
        return [t for t in self.broke() if t.verdict not in NOT_OF_THE_LOCK]


def evidence_of(runs: Sequence[Stored]) -> list[tuple[Evidence, CaseResult]]:
    """Every case of the runs with where it can be found and how it is repeated."""
    found: list[tuple[Evidence, CaseResult]] = []
    for run in runs:
        planned = run.plan.cases
        for at, case in enumerate(run.cases):
            replaced = planned[at].images if len(planned) == len(run.cases) else ()
            found.append((_evidence(f"E{len(found) + 1}", run, case, replaced), case))
    return found


def options(runs: Sequence[Stored], cases: Sequence[tuple[Evidence, CaseResult]]) -> list[Option]:
    """One per lock and cluster, in the order in which they were run."""
    labels = _labels([case for _, case in cases])
    return [
        _option(label, [pair for pair, of in zip(cases, labels, strict=True) if of == label], runs)
        for label in in_order(labels)
    ]


def k_of_n(found: Share) -> str:
    """``1 of 3 (1 to 91 %)``; with its 95 % bounds, one-sided at the ends."""
    if found.n == 0:
        return "0 of 0 (nothing is known)"
    low, high = 100 * found.low, 100 * found.high
    if found.k == 0:
        return f"0 of {found.n} (at most {high:.0f} %)"
    if found.k == found.n:
        return f"{found.k} of {found.n} (at least {low:.0f} %)"
    return f"{found.k} of {found.n} ({low:.0f} to {high:.0f} %)"


def _option(
    label: str, cases: Sequence[tuple[Evidence, CaseResult]], runs: Sequence[Stored]
) -> Option:
    all_ = [case for _, case in cases]
    first = all_[0]
    mutex = [(e, c) for e, c in cases if not is_published(c)] or list(cases)
    quiet = [c for _, c in mutex if c.fault == "none"]
    rates = [r for c in quiet if has_numbers(c) and (r := c.cycles_per_second) is not None]
    recoveries: dict[str, list[float]] = {}
    for _, case in mutex:
        if (took := recovery_s(case)) is not None:
            recoveries.setdefault(case.fault, []).append(took)
    return Option(
        name=label,
        topology=first.topology or "?",
        size=first.size or 0,
        family=first.family or "?",
        fence=first.fence,
        consensus=is_consensus(first),
        control=any(map(is_control, all_)),
        tried=tuple(_tried(mutex)),
        fence_checked=_fence_checked(all_),
        acquire_ms=_acquire(label, all_, quiet, runs),
        cycles_per_s=median(rates) if rates else None,
        recovery_s={fault: (max(of), len(of)) for fault, of in recoveries.items()},
        fairness=_fairness(quiet),
        evidence=tuple(e.id for e, _ in cases),
        quiet_evidence=tuple(e.id for e, c in mutex if c.fault == "none"),
    )


def _tried(cases: Sequence[tuple[Evidence, CaseResult]]) -> list[Tried]:
    found = []
    for fault in in_order(case.fault for _, case in cases):
        of = [(e, case) for e, case in cases if case.fault == fault]
        tries = [attempt for _, case in of for attempt in attempts(case)]
        for verdict in in_order(v for _, case in of for v in results_of(case)):
            counted = [t for t in tries if counts_as_try(t, verdict)]
            k = sum(verdict in broken(t) for t in counted)
            found.append(
                Tried(
                    fault,
                    verdict,
                    share(k, len(counted)),
                    sum(verdict in told(broken(t)) for t in counted),
                    sum(verdict in undecided(t) for t in tries),
                    next((x for _, c in of if (x := expected_of(c, verdict))), "undeclared"),
                    tuple(e.id for e, _ in of),
                )
            )
    return found


def _fence_checked(cases: Sequence[CaseResult]) -> tuple[int, int] | None:
    """Of the cases in which a stale holder wrote: in how many a checked fence let it."""
    scores = [s for c in cases if STALE in broken(c) and (s := fenced(c)) is not None]
    if not scores:
        return None
    return sum(bool(score.stale_applied) for score in scores), len(scores)


def _acquire(
    label: str, cases: Sequence[CaseResult], quiet: Sequence[CaseResult], runs: Sequence[Stored]
) -> dict[str, float | None]:
    """From all cases of one run before their faults, in the run with the most of them; a single
    case where no run took them together. Runs are never pooled."""
    pools: list[Quantiles] = []
    if len({_cluster(case) for case in cases if not is_published(case)}) <= 1:
        rows = [row for run in runs for row in run.results.undisturbed]
        pools = [row.latency_ms.acquire for row in rows if row.lock == lock_of(cases[0])]
    if not pools:
        phases = [(case.latency_ms or {}).get("acquire", {}) for case in quiet if has_numbers(case)]
        pools = [by["before"] for by in phases if "before" in by]
    best = max(pools, key=lambda pool: pool.count, default=None)
    return {name: getattr(best, name, None) for name in ("p50", "p99", "count")}


def _fairness(quiet: Sequence[CaseResult]) -> dict[str, float | None]:
    found = [fairness for case in quiet if (fairness := case.measurements.fairness)]

    def worst(pick: Callable[[list[float]], float], of: Callable[[Fairness], float | None]) -> Any:
        known = [value for fairness in found if (value := of(fairness)) is not None]
        return pick(known) if known else None

    return {
        "jain": worst(min, lambda it: it.jain),
        "overtaken": worst(max, lambda it: it.overtaken),
        "wait_max_s": worst(max, lambda it: None if it.wait_s is None else it.wait_s.max),
    }


def _labels(cases: Sequence[CaseResult]) -> list[str]:
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
    return f"{case.topology}, {case.size} nodes{network}"


def _evidence(
    id_: str, run: Stored, case: CaseResult, replaced: Sequence[tuple[str, str]]
) -> Evidence:
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
        id=id_,
        run=run.path.name,
        folder=case.folder or "?",
        lock=lock_of(case),
        fault=case.fault,
        seed="?" if case.seed is None else str(case.seed),
        history=whole_digest(case.history_sha256),
        images=", ".join(parts),
        command=command_of(case, replaced),
    )
