"""Every table of a run as a data frame: what the report shows and what the exports write.

Units stand last in the names of columns; a missing number stays missing and is never zero. ``case``
is the number of the case, from 1, in every table of cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import pandas as pd

from results.cases import BASES, Case, fault_of, frames, lock_of, mapping, number, phases_of
from results.jobs import COLUMNS as JOBS_COLUMNS
from results.jobs import WORTH_COLUMNS, job_rows, worth_rows

Row = dict[str, Any]

ID: Final = ("case", "lock", "fault")
COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "latency": (
        *ID, "workload", "basis", "kind", "phase", "p50_ms", "p99_ms", "p999_ms", "max_ms",
        "iqr_ms", "count",
    ),
    "throughput": (
        *ID, "phase", "cycles_per_s", "own_cycles_per_s", "granted", "refused", "unknown",
    ),
    "outcomes": (*ID, "operation", "phase", "ok", "fail", "info"),
    "errors": (*ID, "phase", "error", "count"),
    "fairness": (
        *ID, "wait_p50_s", "wait_p99_s", "wait_max_s", "count", "overtaken_share", "jain",
        "clients", "starved",
    ),
    "recovery": (*ID, "injected", "failover_s", "servers_s", "dead_holder_s"),
    "fencing": (
        *ID, "policy", "stale_attempted", "stale_refused", "stale_applied", "valid_refused",
        "lost_updates",
    ),
    "generator": (
        *ID, "healthy", "worker", "cpu_mean_percent", "cpu_max_percent", "lag_p99_ms",
        "idle_users", "workers_missing", "machine_percent", "why",
    ),
    "overhead": (
        *ID, "link_p50_us", "direct_p50_us", "added_us", "floor_acquire_p50_ms",
        "floor_acquire_iqr_ms", "floor_acquire_count", "floor_cpu_us_per_cycle",
    ),
    "jobs": (*ID, *JOBS_COLUMNS),
    "worth": (*ID, *WORTH_COLUMNS),
    "evidence": (*ID, "verdict", "what", "text"),
    "undisturbed": (
        "lock", "acquire_p50_ms", "acquire_p99_ms", "acquire_iqr_ms", "acquire_count",
        "handover_p50_ms", "handover_p99_ms", "handover_iqr_ms", "handover_count", "wait_p50_ms",
        "wait_p99_ms", "wait_iqr_ms", "wait_count", "cycles_median_per_s", "cycles_min_per_s",
        "cycles_max_per_s", "cases", "floor_acquire_p50_ms", "floor_cpu_us_per_cycle",
    ),
}  # fmt: skip


def facts(
    cases: Sequence[Case], undisturbed: Sequence[Mapping[str, Any]] = ()
) -> dict[str, pd.DataFrame]:
    """Name → table. Tables without a row are there, with their columns."""
    made = frames(cases)
    tables = {"cases": made.cases, "verdicts": made.verdicts}
    for name, rows_of in ROWS.items():
        rows = [
            {"case": n, "lock": lock_of(case), "fault": fault_of(case), **row}
            for n, case in enumerate(cases, 1)
            for row in rows_of(case)
        ]
        tables[name] = pd.DataFrame(rows, columns=list(COLUMNS[name]))
    tables["undisturbed"] = pd.DataFrame(
        [_undisturbed(row) for row in undisturbed], columns=list(COLUMNS["undisturbed"])
    )
    return tables


def _latency(case: Case) -> Iterator[Row]:
    for basis, name in BASES.items():
        for kind, by_phase in mapping(case.get(name)).items():
            for phase, cell in mapping(by_phase).items():
                found = mapping(cell)
                yield {
                    "workload": case.get("workload"),
                    "basis": basis,
                    "kind": kind,
                    "phase": phase,
                    **{f"{q}_ms": number(found.get(q)) for q in ("p50", "p99", "p999", "max")},
                    "iqr_ms": number(found.get("iqr")),
                    "count": int(number(found.get("count")) or 0),
                }


def _throughput(case: Case) -> Iterator[Row]:
    rates = mapping(case.get("cycles_per_second_by_phase"))
    acquires = mapping(mapping(case.get("counts")).get("acquire"))
    for phase in phases_of(case):
        counts = mapping(acquires.get(phase))
        yield {
            "phase": phase,
            "cycles_per_s": number(rates.get(phase)),
            # The own phase lies before every fault.
            "own_cycles_per_s": number(case.get("own_cycles_per_second"))
            if phase == "before"
            else None,
            "granted": counts.get("ok"),
            "refused": counts.get("fail"),
            "unknown": counts.get("info"),
        }


def _outcomes(case: Case) -> Iterator[Row]:
    for operation, by_phase in mapping(case.get("counts")).items():
        for phase, counts in mapping(by_phase).items():
            found = mapping(counts)
            yield {"operation": operation, "phase": phase} | {
                name: found.get(name) for name in ("ok", "fail", "info")
            }


def _errors(case: Case) -> Iterator[Row]:
    for phase, classes in mapping(case.get("errors")).items():
        for error, count in mapping(classes).items():
            yield {"phase": phase, "error": error, "count": count}


def _fairness(case: Case) -> Iterator[Row]:
    found = mapping(_measured(case, "fairness"))
    if found:
        wait = mapping(found.get("wait_s"))
        yield {
            **{f"wait_{q}_s": number(wait.get(q)) for q in ("p50", "p99", "max")},
            "count": wait.get("count"),
            "overtaken_share": number(found.get("overtaken")),
            "jain": number(found.get("jain")),
            "clients": found.get("clients"),
            "starved": found.get("starved"),
        }


def _recovery(case: Case) -> Iterator[Row]:
    found = _measured(case, "recovery")
    for fault in found if isinstance(found, list) else []:
        said = mapping(fault)
        yield {"injected": said.get("fault")} | {
            name: number(said.get(name)) for name in ("failover_s", "servers_s", "dead_holder_s")
        }


def _fencing(case: Case) -> Iterator[Row]:
    for policy, score in mapping(_measured(case, "fencing")).items():
        found = mapping(score)
        if found:
            counts = COLUMNS["fencing"][len(ID) + 1 :]
            yield {"policy": policy} | {name: found.get(name) for name in counts}


def _generator(case: Case) -> Iterator[Row]:
    health = mapping(case.get("generator"))
    if not health:
        return
    whole = {
        "healthy": health.get("ok"),
        "workers_missing": health.get("missing"),
        "machine_percent": number(health.get("machine_percent")),
        "why": "; ".join(map(str, health.get("why") or ())),
    }
    workers: Sequence[Any] = health.get("workers") or ({},)
    for worker in workers:
        found = mapping(worker)
        yield whole | {
            "worker": found.get("name"),
            "cpu_mean_percent": number(found.get("cpu_percent_mean")),
            "cpu_max_percent": number(found.get("cpu_percent_max")),
            "lag_p99_ms": number(found.get("lag_ms_p99")),
            "idle_users": len(found.get("idle_users") or ()),
        }


def _overhead(case: Case) -> Iterator[Row]:
    link, floor = mapping(case.get("link_us")), mapping(case.get("floor"))
    acquire = mapping(case.get("floor_acquire_ms"))
    if not link and not floor:
        return
    linked, direct = number(link.get("linked")), number(link.get("direct"))
    yield {
        "link_p50_us": linked,
        "direct_p50_us": direct,
        "added_us": None if linked is None or direct is None else linked - direct,
        "floor_acquire_p50_ms": number(floor.get("acquire_ms_p50")),
        "floor_acquire_iqr_ms": number(acquire.get("iqr")),
        "floor_acquire_count": acquire.get("count"),
        "floor_cpu_us_per_cycle": number(floor.get("cpu_us_per_cycle")),
    }


def _evidence(case: Case) -> Iterator[Row]:
    for verdict, found in mapping(case.get("verdicts")).items():
        for item in mapping(found).get("evidence") or ():
            said = mapping(item)
            yield {"verdict": verdict, "what": said.get("what"), "text": said.get("text")}


ROWS: Final[Mapping[str, Callable[[Case], Iterator[Row]]]] = {
    "latency": _latency,
    "throughput": _throughput,
    "outcomes": _outcomes,
    "errors": _errors,
    "fairness": _fairness,
    "recovery": _recovery,
    "fencing": _fencing,
    "generator": _generator,
    "overhead": _overhead,
    "jobs": job_rows,
    "worth": worth_rows,
    "evidence": _evidence,
}


def _undisturbed(row: Mapping[str, Any]) -> Row:
    made: Row = {"lock": row.get("lock"), "cases": row.get("cases")}
    for kind, cell in mapping(row.get("latency_ms")).items():
        found = mapping(cell)
        made |= {f"{kind}_{q}_ms": number(found.get(q)) for q in ("p50", "p99", "iqr")}
        made[f"{kind}_count"] = found.get("count")
    rate = mapping(row.get("cycles_per_second"))
    made |= {f"cycles_{q}_per_s": number(rate.get(q)) for q in ("median", "min", "max")}
    for name, source in (
        ("floor_acquire_p50_ms", "floor_acquire_ms_p50"),
        ("floor_cpu_us_per_cycle", "floor_cpu_us_per_cycle"),
    ):
        made[name] = number(mapping(row.get(source)).get("median"))
    return {name: made.get(name) for name in COLUMNS["undisturbed"]}


def _measured(case: Case, name: str) -> Any:
    return mapping(case.get("measurements")).get(name)
