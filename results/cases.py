"""Questions that are asked of a case.

A case is what ``lockbench run --json`` prints (``lockbench.results.documents.CaseResult``). Fields
may be missing: stored runs of other versions are read as well, and a case that failed early has no
numbers.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Final

from msgspec.structs import asdict, replace

from lockbench.checker.catalogue import GENERAL
from lockbench.checker.follows import following
from lockbench.checker.verdict import Report
from lockbench.results.documents import (
    CURRENT,
    ByPhase,
    CaseResult,
    Entry,
    Expectation,
    Judged,
    Measurements,
    Quantiles,
    Recovery,
    Scoring,
    Verdict,
    made,
)
from lockbench.results.judgements import CONTRADICTED, NOT_AS_ASKED

NO_FAULT: Final = "none"
PUBLISHED: Final = "published"
MUTEX: Final = "mutex"  # the workload that goes without saying
PHASES: Final = ("before", "during", "after")
BASES: Final = {"service": "latency_ms", "response": "response_ms"}
# Systems whose every grant is agreed by a quorum on disk, where the case does not say.
CONSENSUS: Final = frozenset({"etcd", "zookeeper"})
_BETWEEN_FAULTS: Final = re.compile(r"(\+| then )")


def lock_of(case: CaseResult) -> str:
    """The lock's name, and the side it stands for where a run holds both sides of a change."""
    return case.lock if case.side is None else f"{case.lock} ({case.side})"


def asked_lock(case: CaseResult) -> str:
    """The lock as ``--lock`` takes it: one's own by its file."""
    return (case.own and case.own.spec) or case.lock


def fault_name(case: CaseResult) -> str:
    """The fault without its parameters; of several, together or one after the other, all names."""
    parts = _BETWEEN_FAULTS.split(case.fault)
    parts[::2] = fault_names(case.fault)
    return "".join(parts)


def fault_names(fault: str) -> list[str]:
    """Of several faults, together or one after the other, each without its parameters."""
    return [one.strip().partition(":")[0] for one in _BETWEEN_FAULTS.split(fault)[::2]]


def faults_during(case: CaseResult, verdict: str) -> tuple[str, ...]:
    """The faults that were on while a verdict broke, as its evidence tells."""
    return tuple(in_order(str(i.name) for i in _evidence(case, verdict) if _is_fault(i)))


def before_any_fault(case: CaseResult, verdict: str) -> bool:
    """Whether all that its evidence tells had happened when the first fault was due."""
    items = [item for item in _evidence(case, verdict) if not _is_fault(item)]
    times = (
        at
        for item in items
        for at in (item.invoke_ns, item.granted_ns, item.complete_ns, item.applied_ns)
    )
    last_ns = max((at for at in times if at is not None), default=None)
    if last_ns is None or case.series is None or not case.injections:
        return False
    return last_ns < case.series.start_ns + 1e9 * min(one.begin_s for one in case.injections)


def _evidence(case: CaseResult, verdict: str) -> tuple[Entry, ...]:
    found = case.verdicts.get(verdict)
    return () if found is None else found.evidence


def _is_fault(item: Entry) -> bool:
    return item.what == "fault"


def is_published(case: CaseResult) -> bool:
    """Whether it is the experiment that articles cite: informational, in a table of its own."""
    return case.workload == PUBLISHED


def is_control(case: CaseResult) -> bool:
    """Whether the lock is a control: known to be broken."""
    return bool(case.control)


def is_consensus(case: CaseResult) -> bool:
    """Whether every grant waits for a quorum and its disks."""
    if case.consensus is not None:
        return case.consensus
    return not CONSENSUS.isdisjoint({str(case.family), str(case.topology)})


COULD_NOT_RUN: Final = "could not run"
# Something happened that neither the load nor the nemesis did.
DISTURBED: Final = "disturbed"


# In such a case only what broke is evidence: that something held says nothing.
AMISS: Final = frozenset({"failed", DISTURBED, COULD_NOT_RUN, CONTRADICTED, NOT_AS_ASKED})


def came_to_nothing(case: CaseResult) -> bool:
    """Whether the case failed, was disturbed, or could not run at all."""
    return case.judgement in {"failed", DISTURBED, COULD_NOT_RUN}


def has_numbers(case: CaseResult) -> bool:
    """False where the generator was the bottleneck: its numbers are void, its verdicts are not."""
    return case.numbers is None or case.numbers == "valid"


def is_generator_bound(case: CaseResult) -> bool:
    """Whether the load generator said that it was the bottleneck, or the numbers are void."""
    said = case.generator is not None and case.generator.ok is False
    return said or not has_numbers(case)


def results_of(case: CaseResult) -> dict[str, str]:
    """Verdict → valid, invalid or unknown."""
    return {name: verdict.result for name, verdict in case.verdicts.items()}


def broken(case: CaseResult) -> list[str]:
    """The verdicts that are invalid."""
    return [name for name, result in results_of(case).items() if result == "invalid"]


def refuted(case: CaseResult) -> frozenset[str]:
    """The invalid verdicts that the service's own record contradicts: no evidence against the lock,
    nor is that its history is not linearizable."""
    found = {
        name
        for name in broken(case)
        if any(item.says == "contradicted" for item in _evidence(case, name))
    }
    return following(found, {*found, GENERAL}.intersection(broken(case)))


def proven(case: CaseResult) -> list[str]:
    """The verdicts that are invalid, and not refuted."""
    no_evidence = refuted(case)
    return [name for name in broken(case) if name not in no_evidence]


def undecided(case: CaseResult) -> list[str]:
    """The verdicts that are unknown."""
    return [name for name, result in results_of(case).items() if result == "unknown"]


def counts_as_try(case: CaseResult, verdict: str) -> bool:
    """Whether a case is evidence about a verdict: it broke, which counts unless it is refuted, or
    it held although the fault could have hurt and nothing was amiss."""
    if verdict in proven(case):
        return True
    held = results_of(case).get(verdict) == "valid"
    return held and case.exposed is True and case.judgement not in AMISS


def k_of_n(cases: Iterable[CaseResult], verdict: str) -> tuple[int, int]:
    """In how many cases a verdict broke, of those that are evidence about it."""
    counted = [case for case in cases if counts_as_try(case, verdict)]
    return sum(verdict in proven(case) for case in counted), len(counted)


def attempts(case: CaseResult) -> list[CaseResult]:
    """The case and the tries before it, which count in every k of n and bring no numbers."""
    tries = [case]
    for before in case.earlier_tries:
        verdicts = {v: Verdict(result) for v, result in before.observed.items()}
        # Not to have been exposed takes a try out of n, so it has to be said.
        tries.append(
            replace(
                case,
                verdicts=verdicts,
                exposed=before.exposed is not False,
                judgement=None,
                earlier_tries=(),
                measurements=Measurements(),
                latency_ms=None,
                response_ms=None,
            )
        )
    return tries


def judged(case: CaseResult, report: Report) -> CaseResult:
    """The case with all that the checker has to say about its history."""
    return replace(case, **asdict(made(Judged, report.to_json())))


def expected_of(case: CaseResult, verdict: str) -> str | None:
    """holds, breaks, may-break, n/a or undeclared; also from the long form with kind and source."""
    expected = case.expected.get(verdict)
    return expected.expected if isinstance(expected, Expectation) else expected


def quantile_ms(
    case: CaseResult, kind: str, phase: str, statistic: str, basis: str = "service"
) -> float | None:
    """A number of the latency contract, None where it is missing or not carried."""
    cell = latencies(case, basis).get(kind, {}).get(phase)
    return None if cell is None else getattr(cell, statistic)


def latencies(case: CaseResult, basis: str = "service") -> Mapping[str, ByPhase]:
    """Kind → phase → quantiles in milliseconds, from the start that the basis says."""
    by_kind: Mapping[str, ByPhase] = getattr(case, BASES[basis]) or {}
    return by_kind


def cells_of(case: CaseResult, phase: str) -> dict[str, Quantiles | None]:
    """The latencies of a phase as they are shown: response time where it was measured, which hides
    no outage, and beside it the service time of what was granted."""
    service, response = latencies(case), latencies(case, "response")

    def of(by_kind: Mapping[str, ByPhase], kind: str) -> Quantiles | None:
        return by_kind.get(kind, {}).get(phase)

    shown = {
        kind: of(response, kind) or of(service, kind) for kind in ("acquire", "handover", "wait")
    }
    return shown | {f"{kind}_service": of(service, kind) for kind in ("acquire", "wait")}


def number(value: object) -> float | None:
    """A real number, else None (a missing value, a text, a truth value)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value)


def availability(case: CaseResult) -> float | None:
    """Share of one-second windows with a grant on a contended key, 0 to 1."""
    measured = case.measurements.availability
    if case.availability is not None or measured is None:
        return case.availability
    return measured.fraction


def longest_gap_s(case: CaseResult) -> float | None:
    """The longest time without any grant on a contended key, seconds."""
    measured = case.measurements.availability
    return None if measured is None else measured.longest_gap_s


def recovery_s(case: CaseResult) -> float | None:
    """Heal to first grant asked for since the fault, seconds; of several faults the slowest."""
    known = case.recovery_seconds
    return known if known is not None else _slowest(one.servers_s for one in _recoveries(case))


def failover_s(case: CaseResult) -> float | None:
    """Fault to first grant asked for under it, seconds: how long until somebody took over."""
    return _slowest(one.failover_s for one in _recoveries(case))


def dead_holder_s(case: CaseResult) -> float | None:
    """Fault to the next grant of a key whose holder it froze or killed, seconds."""
    return _slowest(one.dead_holder_s for one in _recoveries(case))


def fenced(case: CaseResult) -> Scoring | None:
    """What the strictest check of the fence at the resource would have let through; None where the
    lock offers no fence."""
    scorings = case.measurements.fencing or {}
    for policy in ("fence-on-read-and-write", "fence-on-write"):
        if policy in scorings:
            return scorings[policy]
    return None


def unknown_after_s(case: CaseResult) -> float:
    """When its clients gave up a request, seconds after they had sent it."""
    return case.pace.client_timeout_s or 0.0


def rate_per_s(case: CaseResult) -> float | None:
    """Cycles per second on contended keys; on own keys where the workload has only those."""
    return case.cycles_per_second or case.own_cycles_per_second or None


def ceiling_per_s(case: CaseResult) -> float | None:
    """The most cycles per second on contended keys that the load of a case allows, were the lock to
    cost nothing: each client holds and pauses, and a key has only so many holders at a time. None:
    the workload is another, or the settings are not known."""
    hold_s, think_s = case.pace.hold_s, case.pace.think_s
    if case.workload not in {None, MUTEX} or hold_s is None or think_s is None:
        return None
    bounds = []
    if case.clients is not None and hold_s + think_s > 0:
        bounds.append(case.clients / (hold_s + think_s))
    if case.keys is not None and case.holders_per_key is not None and hold_s > 0:
        bounds.append(case.keys * case.holders_per_key / hold_s)
    return min(bounds, default=None)


def handover_percent(cells: Mapping[str, Quantiles | None]) -> float | None:
    """Of the grants of contended keys, those that hand-over covers: somebody had waited since
    before the release, and was granted next. ``cells`` are from ``cells_of``."""
    handover, granted = cells["handover"], cells["wait_service"]
    if handover is None or granted is None or not granted.count:
        return None
    return 100 * handover.count / granted.count


def phases_of(case: CaseResult) -> list[str]:
    """The phases that the case has numbers for, in their order."""
    known = {phase for by in latencies(case).values() for phase in by}
    return [phase for phase in PHASES if phase in known] or ["before"]


def in_order(values: Iterable[str]) -> list[str]:
    """Without repetition, in the order of first appearance."""
    return list(dict.fromkeys(values))


def _recoveries(case: CaseResult) -> Sequence[Recovery]:
    return case.measurements.recovery or ()


def _slowest(values: Iterable[float | None]) -> float | None:
    """None as soon as one fault has no value: it was not seen to recover."""
    each = list(values)
    known = [value for value in each if value is not None]
    return max(known) if known and len(known) == len(each) else None


# Ends the names of topologies that are clusters of somebody else
# (``lockbench.clusters.elsewhere``), whose file is not the run's to tell.
ELSEWHERE = "-elsewhere"


# Ends the names of topologies with a node on each of several hosts (``lockbench.clusters.hosts``),
# whose file is not the run's to tell either.
OVER_HOSTS = "-over-hosts"


def is_over_hosts(case: CaseResult) -> bool:
    """Whether each of its nodes had a host of its own."""
    return str(case.topology).endswith(OVER_HOSTS)


def is_elsewhere(case: CaseResult) -> bool:
    """Whether it ran on a cluster of somebody else."""
    return str(case.topology).endswith(ELSEWHERE)


def command_of(
    case: CaseResult, images: Sequence[Sequence[str]] = (), instead: str | None = None
) -> str:
    """The command that runs a case again on another day: the same schedule of faults, not the same
    network. ``images`` are the (name, reference) it replaced, ``instead`` is the REF that its run
    was made with."""
    limit_s = None
    if case.phases_s and not is_published(case):
        limit_s = sum(asdict(replace(case.phases_s, rates_s=0.0)).values())
    words = ["lockbench", "run", "--lock", asked_lock(case)]
    topology = None if is_elsewhere(case) else str(case.topology).removesuffix(OVER_HOSTS)
    size = None if is_elsewhere(case) or is_over_hosts(case) else case.size
    for flag, value in (
        ("--fault", None if is_published(case) else case.fault),
        ("--workload", case.workload),
        ("--resource", case.resource),
        ("--time-limit", limit_s),
        ("--cluster", "FILE" if is_elsewhere(case) else None),
        ("--hosts", "FILE" if is_over_hosts(case) else None),
        ("--machines", "FILE" if case.machines else None),
        ("--topology", topology if case.topology else None),
        ("--nodes", size),
        ("--clients", case.clients),
        ("--keys", case.keys),
        ("--ttl", case.pace.lease_ttl_s),
        ("--network", case.network),
        ("--seed", case.seed),
    ):
        if value is not None:
            words += [flag, f"{value:g}" if isinstance(value, float) else str(value)]
    replaced = [f"{name}={ref}" for name, ref in images]
    for image in replaced:
        words += ["--image", image]
    with_ref = (case.ref or instead or CURRENT).removeprefix("image:")
    # The side of a change, where it is no other lock, topology or image, which are said above.
    said = {CURRENT, case.lock, f"topology:{case.topology}", *replaced}
    if with_ref not in said and not asked_lock(case).startswith(with_ref):
        words += ["--with", with_ref]
    return shlex.join(words)
