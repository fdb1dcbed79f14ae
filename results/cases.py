"""Reads case dictionaries, and lays them out as data frames once; all tables are drawn from these.

A case is what ``lockbench run --json`` prints (see ARCHITECTURE.md). Fields may be missing: stored
runs of other versions are read as well, and a case that failed early has no numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final

import pandas as pd

Case = Mapping[str, Any]

NO_FAULT: Final = "none"
PUBLISHED: Final = "published"
PHASES: Final = ("before", "during", "after")
STATISTICS: Final = ("p50", "p99", "p999", "max")
BASES: Final = {"service": "latency_ms", "response": "response_ms"}
# Systems whose every grant is agreed by a quorum on disk, where the case does not say.
CONSENSUS: Final = frozenset({"etcd", "zookeeper"})


@dataclass(frozen=True, eq=False)
class Frames:
    """``cases`` has one row per case, ``latency`` one per case, basis, kind and phase, ``verdicts``
    one per case and verdict. ``case`` is the number of the case in all three, from 1."""

    cases: pd.DataFrame
    latency: pd.DataFrame
    verdicts: pd.DataFrame


def frames(cases: Sequence[Case]) -> Frames:
    """Units stand in the names of columns; missing numbers are NaN."""
    rows = list(enumerate(cases, 1))
    return Frames(
        cases=pd.DataFrame([_case_row(n, case) for n, case in rows], columns=list(CASE_COLUMNS)),
        latency=pd.DataFrame(
            [row for n, case in rows for row in _latency_rows(n, case)],
            columns=list(LATENCY_COLUMNS),
        ),
        verdicts=pd.DataFrame(
            [row for n, case in rows for row in _verdict_rows(n, case)],
            columns=list(VERDICT_COLUMNS),
        ),
    )


def lock_of(case: Case) -> str:
    """The lock's name, and the side it stands for where a run holds both sides of a change."""
    lock = str(case.get("lock", "?"))
    return f"{lock} ({case['side']})" if "side" in case else lock


def asked_lock(case: Case) -> str:
    """The lock as ``--lock`` takes it: one's own by its file."""
    return str(mapping(case.get("own")).get("spec") or lock_of(case))


def fault_of(case: Case) -> str:
    """The fault as it was asked for, parameters included."""
    return str(case.get("fault", NO_FAULT))


def fault_name(case: Case) -> str:
    """The fault without its parameters; of several, together or one after the other, all names."""
    steps = (step.split("+") for step in fault_of(case).split(" then "))
    return " then ".join(
        "+".join(part.strip().partition(":")[0] for part in step) for step in steps
    )


def faults_during(case: Case, verdict: str) -> tuple[str, ...]:
    """The faults that were on while a verdict broke, as its evidence tells."""
    return tuple(in_order(str(i.get("name")) for i in _evidence(case, verdict) if _is_fault(i)))


def before_any_fault(case: Case, verdict: str) -> bool:
    """Whether all that its evidence tells had happened when the first fault was due."""
    start_ns = number(mapping(case.get("series")).get("start_ns"))
    due_s = [number(mapping(i).get("begin_s")) for i in case.get("injections") or ()]
    known_s = [at for at in due_s if at is not None]
    times = (
        number(item.get(name))
        for item in _evidence(case, verdict)
        if not _is_fault(item)
        for name in ("invoke_ns", "granted_ns", "complete_ns", "applied_ns")
    )
    known = [at for at in times if at is not None]
    return bool(
        known and known_s and start_ns is not None and max(known) < start_ns + 1e9 * min(known_s)
    )


def _evidence(case: Case, verdict: str) -> list[Mapping[str, Any]]:
    found = mapping(mapping(case.get("verdicts")).get(verdict)).get("evidence")
    return [mapping(item) for item in found] if isinstance(found, Sequence) else []


def _is_fault(item: Mapping[str, Any]) -> bool:
    return item.get("what") == "fault"


def is_published(case: Case) -> bool:
    """Whether it is the experiment that articles cite: informational, in a table of its own."""
    return case.get("workload") == PUBLISHED


def is_control(case: Case) -> bool:
    """Whether the lock is here to be caught."""
    return bool(case.get("control"))


def is_consensus(case: Case) -> bool:
    """Whether every grant waits for a quorum and its disks."""
    declared = case.get("consensus")
    if isinstance(declared, bool):
        return declared
    return not CONSENSUS.isdisjoint({str(case.get("family")), str(case.get("topology"))})


COULD_NOT_RUN: Final = "could not run"


def came_to_nothing(case: Case) -> bool:
    """Whether the case failed, or could not run at all."""
    return case.get("judgement") in {"failed", COULD_NOT_RUN}


def has_numbers(case: Case) -> bool:
    """False where the generator was the bottleneck: its numbers are void, its verdicts are not."""
    return bool(case.get("numbers", "valid") == "valid")


def results_of(case: Case) -> dict[str, str]:
    """Verdict → valid, invalid or unknown."""
    verdicts = mapping(case.get("verdicts"))
    found = {name: mapping(verdict).get("result") for name, verdict in verdicts.items()}
    return {str(name): str(result) for name, result in found.items() if result is not None}


def broken(case: Case) -> list[str]:
    """The verdicts that are invalid."""
    return [name for name, result in results_of(case).items() if result == "invalid"]


def undecided(case: Case) -> list[str]:
    """The verdicts that are unknown."""
    return [name for name, result in results_of(case).items() if result == "unknown"]


def counts_as_try(case: Case, verdict: str) -> bool:
    """Whether a case is evidence about a verdict: it broke (which always counts), or it held
    although the fault could have hurt."""
    result = results_of(case).get(verdict)
    return result == "invalid" or (result == "valid" and case.get("exposed") is True)


def attempts(case: Case) -> list[Case]:
    """The case and the tries before it, which count in every k of n and bring no numbers."""
    tries: list[Case] = [case]
    earlier = case.get("earlier_tries")
    for before in earlier if isinstance(earlier, Sequence) else ():
        verdicts = {v: {"result": result} for v, result in mapping(before.get("observed")).items()}
        # Not to have been exposed takes a try out of n, so it has to be said.
        again = {"verdicts": verdicts, "exposed": before.get("exposed", True), "earlier_tries": ()}
        tries.append({**case, **again, "measurements": {}, "latency_ms": {}, "response_ms": {}})
    return tries


def expected_of(case: Case, verdict: str) -> str | None:
    """holds, breaks, may-break or n/a; also from the long form with kind and source."""
    expected = mapping(case.get("expected")).get(verdict)
    if isinstance(expected, Mapping):
        expected = expected.get("expected")
    return None if expected is None else str(expected)


def quantile_ms(
    case: Case, kind: str, phase: str, statistic: str, basis: str = "service"
) -> float | None:
    """A number of the latency contract, None where it is missing or not carried."""
    by_phase = mapping(mapping(case.get(BASES[basis])).get(kind))
    return number(mapping(by_phase.get(phase)).get(statistic))


def number(value: object) -> float | None:
    """A real number, else None (a missing value, a text, a truth value)."""
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    return float(value)


def availability(case: Case) -> float | None:
    """Share of one-second windows with a grant on a contended key, 0 to 1."""
    share = number(case.get("availability"))
    return share if share is not None else number(_measurement(case, "availability", "fraction"))


def longest_gap_s(case: Case) -> float | None:
    """The longest time without any grant on a contended key, seconds."""
    return number(_measurement(case, "availability", "longest_gap_s"))


def recovery_s(case: Case) -> float | None:
    """Heal to first grant asked for since the fault, seconds; of several faults the slowest."""
    value = number(case.get("recovery_seconds"))
    return value if value is not None else _slowest(case, "servers_s")


def failover_s(case: Case) -> float | None:
    """Fault to first grant asked for under it, seconds: how long until somebody took over."""
    return _slowest(case, "failover_s")


def dead_holder_s(case: Case) -> float | None:
    """Fault to the next grant of a key whose holder it froze or killed, seconds."""
    return _slowest(case, "dead_holder_s")


def fenced(case: Case) -> Mapping[str, Any] | None:
    """What the strictest check of the fence at the resource would have let through; None where the
    lock offers no fence."""
    scorings = mapping(mapping(case.get("measurements")).get("fencing"))
    for policy in ("fence-on-read-and-write", "fence-on-write"):
        if isinstance(scorings.get(policy), Mapping):
            return mapping(scorings[policy])
    return None


def rate_per_s(case: Case) -> float | None:
    """Cycles per second on contended keys; on own keys where the workload has only those."""
    rates = (number(case.get(name)) for name in ("cycles_per_second", "own_cycles_per_second"))
    return next((rate for rate in rates if rate), None)


def failures(case: Case, phase: str) -> tuple[int, int] | None:
    """Acquires that were denied and that ended unknown."""
    by_phase = mapping(mapping(case.get("counts")).get("acquire"))
    if phase not in by_phase:
        return None
    counts = mapping(by_phase[phase])
    return int(counts.get("fail", 0)), int(counts.get("info", 0))


def phases_of(case: Case) -> list[str]:
    """The phases that the case has numbers for, in their order."""
    known = {phase for by in mapping(case.get("latency_ms")).values() for phase in mapping(by)}
    return [phase for phase in PHASES if phase in known] or ["before"]


def in_order(values: Iterable[str]) -> list[str]:
    """Without repetition, in the order of first appearance."""
    return list(dict.fromkeys(values))


CASE_COLUMNS: Final = (
    "case", "lock", "topology", "size", "fault", "workload", "network", "seed", "clients",
    "control", "exposed", "judgement", "why", "broken", "undecided", "numbers_valid",
    "cycles_per_s", "cycles_before_per_s", "cycles_during_per_s", "cycles_after_per_s",
    "own_cycles_per_s", "availability_percent", "longest_gap_s", "recovery_s",
    "failover_s", "dead_holder_s", "consensus",
    "floor_acquire_p50_ms", "floor_cpu_us_per_cycle", "link_linked_us", "link_direct_us",
    "servers", "servers_memory_bytes", "servers_commands_per_grant", "servers_cpu_us_per_grant",
)  # fmt: skip
LATENCY_COLUMNS: Final = (
    "case", "lock", "fault", "workload", "basis", "kind", "phase",
    "p50_ms", "p99_ms", "p999_ms", "max_ms", "count",
)  # fmt: skip
VERDICT_COLUMNS: Final = ("case", "lock", "fault", "verdict", "expected", "result", "reason")


def _case_row(n: int, case: Case) -> dict[str, Any]:
    floor, link = mapping(case.get("floor")), mapping(case.get("link_us"))
    cost = mapping(case.get("footprint"))
    rates = mapping(case.get("cycles_per_second_by_phase"))
    share = availability(case)
    row = {
        "case": n,
        "lock": lock_of(case),
        "fault": fault_of(case),
        "workload": case.get("workload", ""),
        "control": is_control(case),
        "broken": ", ".join(broken(case)),
        "undecided": ", ".join(undecided(case)),
        "numbers_valid": has_numbers(case),
        "cycles_per_s": number(case.get("cycles_per_second")),
        "own_cycles_per_s": number(case.get("own_cycles_per_second")),
        "availability_percent": None if share is None else 100 * share,
        "longest_gap_s": longest_gap_s(case),
        "recovery_s": recovery_s(case),
        "failover_s": failover_s(case),
        "dead_holder_s": dead_holder_s(case),
        "consensus": is_consensus(case),
        "floor_acquire_p50_ms": number(floor.get("acquire_ms_p50")),
        "floor_cpu_us_per_cycle": number(floor.get("cpu_us_per_cycle")),
        "link_linked_us": number(link.get("linked")),
        "link_direct_us": number(link.get("direct")),
        "servers": cost.get("servers"),
        "servers_memory_bytes": number(cost.get("memory_bytes")),
        "servers_commands_per_grant": number(mapping(cost.get("own")).get("commands_per_grant")),
        "servers_cpu_us_per_grant": number(mapping(cost.get("own")).get("cpu_us_per_grant")),
    }
    row |= {f"cycles_{phase}_per_s": number(rates.get(phase)) for phase in PHASES}
    plain = ("topology", "size", "network", "seed", "clients", "exposed", "judgement", "why")
    return row | {name: case.get(name) for name in plain}


def _latency_rows(n: int, case: Case) -> list[dict[str, Any]]:
    return [
        {
            "case": n,
            "lock": lock_of(case),
            "fault": fault_of(case),
            "workload": case.get("workload", ""),
            "basis": basis,
            "kind": kind,
            "phase": phase,
            **{f"{s}_ms": number(mapping(cell).get(s)) for s in STATISTICS},
            "count": int(mapping(cell).get("count") or 0),
        }
        for basis, field in BASES.items()
        for kind, by_phase in mapping(case.get(field)).items()
        for phase, cell in mapping(by_phase).items()
    ]


def _verdict_rows(n: int, case: Case) -> list[dict[str, Any]]:
    verdicts = mapping(case.get("verdicts"))
    return [
        {
            "case": n,
            "lock": lock_of(case),
            "fault": fault_of(case),
            "verdict": verdict,
            "expected": expected_of(case, verdict),
            "result": result,
            "reason": mapping(verdicts[verdict]).get("reason", ""),
        }
        for verdict, result in results_of(case).items()
    ]


def _measurement(case: Case, measurement: str, name: str) -> object:
    return mapping(mapping(case.get("measurements")).get(measurement)).get(name)


def _slowest(case: Case, name: str) -> float | None:
    """None as soon as one fault has no value: it was not seen to recover."""
    faults = mapping(case.get("measurements")).get("recovery")
    if not isinstance(faults, Sequence) or isinstance(faults, str):
        return None
    values = [number(mapping(fault).get(name)) for fault in faults]
    known = [value for value in values if value is not None]
    return max(known) if known and len(known) == len(values) else None


def mapping(value: object) -> Mapping[str, Any]:
    """The value if it is a JSON object, else an empty one: stored runs of other versions differ."""
    return value if isinstance(value, Mapping) else {}
