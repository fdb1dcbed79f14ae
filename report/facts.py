"""Every table of a run: what the report shows, the terminal prints and the exports write.

A new column is one entry in the table that it belongs to. A name means the same in every table, so
columns of several tables are declared once, above them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from lockbench.report.columns import Column, Context, Slot, Table, at
from lockbench.results.baseline import CASES_MIN
from lockbench.results.cases import (
    BASES,
    PHASES,
    availability,
    broken,
    ceiling_per_s,
    cells_of,
    dead_holder_s,
    expected_of,
    failover_s,
    handover_percent,
    has_numbers,
    is_consensus,
    is_control,
    latencies,
    lock_of,
    longest_gap_s,
    phases_of,
    recovery_s,
    undecided,
)
from lockbench.results.documents import CaseResult, Scoring, UndisturbedLock

LABEL: Final = Slot("lock", once=True)
CASE: Final = Column("case", "number of the case in the run, from 1", "n")
LOCK: Final = Column("lock", "the lock that was tried", lambda r: lock_of(r["case"]))
FAULT: Final = Column(
    "fault",
    "the fault of the case as it was asked for, parameters included; none without one",
    "case.fault",
)
ID: Final = (CASE, LOCK, FAULT)
LABELLED: Final = Column(
    "label", "the lock, and what tells its cases apart", slot=LABEL, report=False
)
TOPOLOGY: Final = Column("topology", "the cluster that served it", "case.topology")
SIZE: Final = Column("size", "nodes of the cluster", "case.size")
NETWORK: Final = Column("network", "base state of every link", "case.network")
WORKLOAD: Final = Column("workload", "what the clients did", "case.workload")
CLIENTS: Final = Column(
    "clients", "clients that contend for the keys; in the table rates, all clients", "case.clients"
)
PHASE: Final = Column("phase", "before, during or after the faults; never pooled")
VERDICT: Final = Column("verdict", "which promise was checked")
WHY: Final = Column("why", "the reason in a sentence", "case.why")
NUMBERS_VALID: Final = Column(
    "numbers_valid",
    "false: the figures are void; a note below the tables, or the column why, says why",
    lambda r: has_numbers(r["case"]),
    usual=True,
)
# Latency: nearest-rank quantiles, missing where n does not carry one.
COUNT: Final = Column("count", "number of operations (of errors in the table of errors)")
MIN: Final = Column("min_ms", "smallest, milliseconds", load=True)
P50: Final = Column("p50_ms", "median, milliseconds; from 20 operations on", "cell.p50", load=True)
P90: Final = Column("p90_ms", "90th percentile, milliseconds; from 100 operations on", load=True)
P99: Final = Column(
    "p99_ms", "99th percentile, milliseconds; from 1,000 operations on", "cell.p99", load=True
)
MAX: Final = Column("max_ms", "largest, milliseconds", "cell.max", load=True)
ABOVE: Final = Column(
    "above",
    "quantiles that are lower bounds, because what was given up counts among them, separated by "
    "commas",
    lambda r: ", ".join(r["cell"].above) or None,
    report=False,
)
CYCLES: Final = Column(
    "cycles_per_s", "acquire-release cycles per second on contended keys", load=True
)
CEILING: Final = Column(
    "ceiling_per_s",
    "most cycles per second on contended keys that the load allows, were the lock to cost nothing: "
    "clients / (hold + pause), and keys / hold where a key has one holder at a time",
    lambda r: ceiling_per_s(r["case"]),
)
HANDED_OVER: Final = Column(
    "handover_percent",
    "of the grants of contended keys before any fault, those that hand-over covers: somebody had "
    "waited since before the release and was granted next, percent",
    lambda r: handover_percent(r["cells"]) if r.get("phase", PHASES[0]) == PHASES[0] else None,
)
OWN_CYCLES: Final = Column(
    "own_cycles_per_s",
    "cycles per second on keys of one client each, all clients together",
    "case.own_cycles_per_second",
    load=True,
)
REFUSED: Final = Column("refused", "acquires that were denied for certain", "acquires.fail")
UNKNOWN: Final = Column("unknown", "acquires whose outcome nobody knows", "acquires.info")
# Availability and recovery.
AVAILABILITY: Final = Column(
    "availability_percent",
    "one-second windows with a grant on a contended key, percent",
    lambda r: None if (share := availability(r["case"])) is None else 100 * share,
)
LONGEST_GAP: Final = Column(
    "longest_gap_s",
    "longest time without a grant on a contended key, seconds",
    lambda r: longest_gap_s(r["case"]),
)
RECOVERY: Final = Column(
    "recovery_s",
    "heal to the next grant of who asked since the fault, seconds; of several the slowest",
    lambda r: recovery_s(r["case"]),
)
FAILOVER: Final = Column("failover_s", "fault to the first grant asked for under it, seconds")
DEAD_HOLDER: Final = Column(
    "dead_holder_s",
    "fault to the next grant of a key whose holder it froze or killed, seconds",
)
INJECTED: Final = Column("injected", "the fault as it was injected")
# One client alone.
ALONE_P50: Final = Column(
    "alone_acquire_p50_ms",
    "one client alone: acquire, median, milliseconds",
    "case.floor.acquire_ms_p50",
)
ALONE_CPU: Final = Column(
    "alone_cpu_us_per_cycle",
    "one client alone: CPU of its process per cycle, microseconds",
    "case.floor.cpu_us_per_cycle",
)
STALE_ATTEMPTED: Final = Column("stale_attempted", "operations of a hold that was over")


WORDS: Final = {
    "acquire": (
        "uncontended acquire, response time (from the intended start where there is one)",
        "uncontended acquires, those that were given up included",
    ),
    "acquire_service": (
        "uncontended acquire, service time (from the invocation)",
        "uncontended acquires that were granted",
    ),
    "handover": ("hand-over", "hand-overs"),
    "wait": (
        "contended acquire, response time",
        "contended acquires, those that were given up included",
    ),
}


def _kinds(slots: Mapping[str, Slot], *, of_cases: bool = False) -> Iterator[Column]:
    """Median, p99, spread and count of each kind of latency; ``of_cases``: beside the median the
    smallest and the largest of the cases. ``slots`` are by the names of columns."""

    def column(name: str, meaning: str, of: str | Callable[[Context], Any]) -> Column:
        return Column(name, meaning, of, slots.get(name), load=not name.endswith("count"))

    def end(kind: str, which: str) -> Callable[[Context], Any]:
        return lambda r: at(r, f"cells.{kind}.p50") and at(r, f"of_cases.{kind}.{which}")

    for kind, (one, many) in WORDS.items():
        cell = f"cells.{kind}"
        yield column(f"{kind}_p50_ms", f"{one}, median, milliseconds", f"{cell}.p50")
        if of_cases:
            for which, words in (("min", "smallest"), ("max", "largest")):
                said = f"{one}, {words} median of a case, milliseconds"
                yield column(f"{kind}_p50_{which}_ms", said, end(kind, which))
        yield column(f"{kind}_p99_ms", f"{one}, 99th percentile, milliseconds", f"{cell}.p99")
        said = f"{one}, distance between the quartiles, milliseconds"
        yield column(f"{kind}_iqr_ms", said, f"{cell}.iqr")
        yield column(f"{kind}_count", many, f"{cell}.count")
        if kind == "handover":
            yield replace(HANDED_OVER, slot=slots.get(HANDED_OVER.name))


def _latencies(case: CaseResult) -> Iterator[Context]:
    for basis in BASES:
        for kind, by_phase in latencies(case, basis).items():
            for phase, cell in by_phase.items():
                yield {"basis": basis, "kind": kind, "phase": phase, "cell": cell}


def _phases(case: CaseResult) -> Iterator[Context]:
    for phase in phases_of(case):
        yield {
            "phase": phase,
            "acquires": at(case, f"counts.acquire.{phase}"),
            "rate": at(case, f"cycles_per_second_by_phase.{phase}"),
            "cells": cells_of(case, phase),
        }


def _outcomes(case: CaseResult) -> Iterator[Context]:
    for operation, by_phase in (case.counts or {}).items():
        for phase, counts in by_phase.items():
            yield {"operation": operation, "phase": phase, "counts": counts}


def _errors(case: CaseResult) -> Iterator[Context]:
    for phase, classes in (case.errors or {}).items():
        # Of old runs there is only the first text.
        for error, count in () if isinstance(classes, str) else classes.items():
            yield {"phase": phase, "error": error, "count": count}


def _policies(case: CaseResult) -> Iterator[Context]:
    for policy, score in (case.measurements.fencing or {}).items():
        if score != Scoring():
            yield {"policy": policy, "score": score}
    if (guard := case.measurements.guard) is not None:
        # What a store really did, beside what the policies would have done.
        yield {
            "policy": f"{guard.guard} of {guard.store}, enforced",
            "score": Scoring(
                stale_attempted=guard.stale_attempted,
                stale_refused=guard.stale_refused,
                stale_applied=guard.stale_applied,
                valid_refused=guard.rightful_refused,
            ),
        }


def _workers(case: CaseResult) -> Iterator[Context]:
    if health := case.generator:
        for worker in health.workers or (None,):
            yield {"health": health, "worker": worker}


def _added_us(r: Context) -> float | None:
    link = r["case"].link_us
    if link is None or link.linked is None or link.direct is None:
        return None
    return float(link.linked - link.direct)


def _verdicts(case: CaseResult) -> Iterator[Context]:
    for verdict, found in case.verdicts.items():
        yield {"verdict": verdict, "result": found.result, "reason": found.reason}


def _evidence(case: CaseResult) -> Iterator[Context]:
    for verdict, found in case.verdicts.items():
        for item in found.evidence:
            yield {"verdict": verdict, "item": item}


CASES: Final = Table("cases", "a case", (
    CASE, LOCK,
    TOPOLOGY, SIZE, FAULT, WORKLOAD, NETWORK,
    Column("seed", "decides the schedule of the faults", "case.seed"),
    CLIENTS,
    Column("control", "whether the lock is a control, known to be broken",
           lambda r: is_control(r["case"])),
    Column("exposed", "whether the fault could have hurt; without it nothing is proven",
           "case.exposed"),
    Column("judgement", "observed held against expected, in words", "case.judgement"),
    WHY,
    Column("broken", "verdicts that are invalid, separated by commas",
           lambda r: ", ".join(broken(r["case"]))),
    Column("undecided", "verdicts that are unknown, separated by commas",
           lambda r: ", ".join(undecided(r["case"]))),
    NUMBERS_VALID,
    CYCLES.at("case.cycles_per_second"), CEILING,
    Column("cycles_before_per_s", "cycles per second on contended keys before the first fault",
           "case.cycles_per_second_by_phase.before", load=True),
    Column("cycles_during_per_s", "cycles per second on contended keys while a fault was on",
           "case.cycles_per_second_by_phase.during", load=True),
    Column("cycles_after_per_s", "cycles per second on contended keys after the faults",
           "case.cycles_per_second_by_phase.after", load=True),
    OWN_CYCLES, AVAILABILITY, LONGEST_GAP, RECOVERY,
    FAILOVER.at(lambda r: failover_s(r["case"])),
    DEAD_HOLDER.at(lambda r: dead_holder_s(r["case"])),
    Column("consensus", "whether every grant waits for a quorum and its disks",
           lambda r: is_consensus(r["case"])),
    ALONE_P50, ALONE_CPU,
    Column("link_linked_us", "round trip through the link, microseconds",
           "case.link_us.linked"),
    Column("link_direct_us", "round trip without the link, microseconds",
           "case.link_us.direct"),
    Column("servers", "servers, links left out", "case.footprint.servers"),
    Column("servers_memory_bytes",
           "memory of all servers before any fault, droppable file pages left out",
           "case.footprint.memory_bytes"),
    Column("servers_commands_per_grant",
           "requests as the servers count them, own keys, all that they did",
           "case.footprint.own.commands_per_grant"),
    Column("servers_cpu_us_per_grant",
           "CPU of all servers, own keys, all that they did, microseconds",
           "case.footprint.own.cpu_us_per_grant"),
))  # fmt: skip
VERDICTS: Final = Table("verdicts", "a verdict of a case", (
    *ID, VERDICT,
    Column("expected", "holds, breaks, may-break, n/a or undeclared",
           lambda r: expected_of(r["case"], r["verdict"])),
    Column("result", "valid, invalid or unknown"),
    Column("reason", "what the checker says of it"),
), _verdicts, "Every verdict")  # fmt: skip
EVIDENCE: Final = Table("evidence", "a piece of evidence of a verdict", (
    *ID, VERDICT,
    Column("what", "grant, operation or fault", "item.what"),
    Column("text", "the piece of evidence as a sentence", "item.text"),
), _evidence)  # fmt: skip
LATENCY: Final = Table("latency", "a kind of latency in a phase of a case", (
    *ID, WORKLOAD,
    Column("basis", "service: from the invocation; response: from the intended start"),
    Column("kind", "acquire (uncontended), acquire_beside (the same beside the load), handover "
           "(release invoked to next grant), wait (contended acquire), release",
           said={"handover": "hand-over", "acquire_beside": "acquire beside the load"}),
    PHASE, P50, P99,
    Column("p999_ms", "99.9th percentile, milliseconds; from 10,000 operations on",
           "cell.p999", load=True),
    MAX,
    Column("iqr_ms", "distance between the quartiles, milliseconds", "cell.iqr", load=True),
    COUNT.at("cell.count"),
    ABOVE,
    NUMBERS_VALID,
), _latencies, "Latency by phase",
    "Basis response: from the intended start; service: from the invocation.",
)  # fmt: skip
THROUGHPUT: Final = Table("throughput", "a phase of a case", (
    *ID, PHASE,
    CYCLES.at("rate"), CEILING,
    # The own phase lies before every fault.
    OWN_CYCLES.at(
        lambda r: r["case"].own_cycles_per_second if r["phase"] == PHASES[0] else None
    ),
    Column("granted", "acquires that were granted", "acquires.ok"),
    REFUSED, UNKNOWN, NUMBERS_VALID,
), _phases, "Throughput by phase")  # fmt: skip
# In the order in which they stand below a case.
OF_A_CASE: Final = (
    LATENCY,
    THROUGHPUT,
    Table("outcomes", "an operation in a phase of a case", (
        *ID,
        Column("operation", "acquire, release, extend, read or write"),
        PHASE,
        Column("ok", "operations that succeeded", "counts.ok"),
        Column("fail", "operations that certainly had no effect", "counts.fail"),
        Column("info", "operations whose outcome is unknown", "counts.info"),
    ), _outcomes, "Outcomes by operation",
        "Unknown (info) is neither success nor failure. Aimed keys left out.",
    ),
    Table("errors", "a class of error in a phase of a case", (
        *ID, PHASE,
        Column("error", "class of the error, or its whole text in a history"),
        COUNT,
    ), _errors, "Error classes", "By class, refusals of a busy lock (held, gave-up) included."),
    Table("fairness", "a case with contended keys", (
        *ID,
        Column("wait_p50_s", "contended acquire that was granted, median, seconds",
               "fair.wait_s.p50", load=True),
        Column("wait_p99_s", "contended acquire that was granted, 99th percentile, seconds",
               "fair.wait_s.p99", load=True),
        Column("wait_max_s", "contended acquire that was granted, largest, seconds",
               "fair.wait_s.max", load=True),
        COUNT.at("fair.wait_s.count"),
        Column("overtaken_share",
               "share of waits that somebody overtook who had asked later, 0 to 1",
               "fair.overtaken"),
        Column("jain", "Jain's index over the grants per client, 1 is even", "fair.jain"),
        CLIENTS.at("fair.clients"),
        Column("starved", "clients that asked and never were granted", "fair.starved"),
        NUMBERS_VALID,
    ), lambda case: [{"fair": fair}] if (fair := case.measurements.fairness) else [], "Fairness",
        "Overtaken: share of waits that somebody overtook who asked later; Jain's index over "
        "grants per client, 1 is even.",
    ),
    Table("recovery", "a fault of a case, how it was survived", (
        *ID,
        INJECTED.at("seen.fault"),
        FAILOVER.at("seen.failover_s"),
        Column("servers_s", "heal to the next grant of who asked since the fault, seconds",
               "seen.servers_s"),
        DEAD_HOLDER.at("seen.dead_holder_s"),
    ), lambda case: [{"seen": one} for one in case.measurements.recovery or ()], "Recovery",
        "Fault to the first grant asked for under it; heal to the next grant of who asked since "
        "the fault; fault to the next grant of a key whose holder it hit.",
    ),
    Table("fencing", "a policy at the resource in a case", (
        *ID,
        Column("policy", "what the resource would check"),
        STALE_ATTEMPTED.at("score.stale_attempted"),
        Column("stale_refused", "of these, refused by the policy", "score.stale_refused"),
        Column("stale_applied", "of these, applied in spite of the policy",
               "score.stale_applied"),
        Column("valid_refused",
               "operations of the rightful holder that the policy would refuse",
               "score.valid_refused"),
        Column("lost_updates", "updates that were overwritten unseen", "score.lost_updates"),
    ), _policies, "Fencing at the resource",
        "What a resource that checks like this would have let through.",
    ),
    Table("generator", "a process of the load generator in a case", (
        *ID,
        Column("healthy", "whether the load generator was not the bottleneck", "health.ok"),
        Column("worker", "process of the load generator", "worker.name"),
        Column("cpu_mean_percent",
               "mean CPU, percent of a core, seconds under a fault left out",
               "worker.cpu_percent_mean"),
        Column("cpu_max_percent", "largest CPU of a second, percent of a core",
               "worker.cpu_percent_max"),
        Column("lag_p99_ms", "lag of its event loop, 99th percentile, milliseconds",
               "worker.lag_ms_p99"),
        Column("idle_users", "users that got nothing done",
               lambda r: len(r["worker"].idle_users) if r["worker"] else 0),
        Column("workers_missing", "processes that reported nothing", "health.missing"),
        Column("machine_percent", "mean CPU of the whole machine, percent",
               "health.machine_percent"),
        WHY.at(lambda r: "; ".join(r["health"].why)),
    ), _workers, "Load generator",
        "Over the seconds that no fault touches; above 80 % of a core or 50 ms lag the numbers are "
        "void.",
    ),
    Table("overhead", "a case: the link, and one client alone", (
        *ID,
        Column("link_p50_us", "round trip through the link, microseconds",
               "case.link_us.linked"),
        Column("direct_p50_us", "round trip without the link, microseconds",
               "case.link_us.direct"),
        Column("added_us", "what the link adds, microseconds", _added_us),
        ALONE_P50,
        Column("alone_acquire_iqr_ms",
               "one client alone: distance between the quartiles, milliseconds",
               "case.floor_acquire_ms.iqr"),
        Column("alone_acquire_count", "one client alone: acquires",
               "case.floor_acquire_ms.count"),
        ALONE_CPU,
    ), lambda case: [{}] if case.link_us or case.floor else [],
        "Link overhead, and one client alone",
        "A round trip through the link that faults are injected into, the same without it, and "
        "the acquire of one client while nobody else does anything.",
    ),
)  # fmt: skip


def _by_line(verdict: str) -> str:
    """``✗ a, b (as expected)`` one below the other."""
    what, _, judgement = verdict.rstrip(")").partition(" (")
    lines = what.replace(", ", "\n✗ ")
    return f"{lines}\n{judgement}" if judgement else lines


def _rate(r: Context) -> Any:
    """Of a case without a fault, where it was not counted by phase, that of the whole case."""
    alone = len(phases_of(r["case"])) == 1
    return r["case"].cycles_per_second if r["rate"] is None and alone else r["rate"]


def _processors(case: CaseResult) -> Iterator[Context]:
    generator = case.generator
    if generator is not None and generator.processors is not None:
        yield {"load_phase": "whole", "processors": generator.processors}
        for name, found in (generator.processors_by_phase or {}).items():
            yield {"load_phase": name, "processors": found}


PARTS: Final = {
    "servers": "the servers",
    "links": "the links",
    "clients": "the clients (workers of the load, with their sidecars)",
    "bench": "the bench itself",
}
PROCESSORS: Final = Table("processors", "a phase of a case: who used the processors", (
    *ID,
    Column("load_phase", "whole (outside of faults), own or contended (its keys, outside of "
           "faults), during (a fault was on)"),
    *(
        Column(f"{part}_used_percent", f"processor time of {words}, percent of all cores",
               f"processors.parts.{part}.used_percent")
        for part, words in PARTS.items()
    ),
    Column("others_percent", "processor time of other programs, percent of all cores",
           "processors.others_percent"),
    Column("steal_percent", "what the hypervisor took, percent of all cores",
           "processors.steal_percent"),
    *(
        Column(f"{part}_queued_percent",
               f"how long threads of {words} were ready and did not run, percent of all cores",
               f"processors.parts.{part}.queued_percent")
        for part, words in PARTS.items()
    ),
    Column("loops_waited_percent", "how much of the time in which the workers' loops were ready "
           "they waited for a processor, percent", "processors.waiting_percent"),
    *(
        Column(f"{name}_pressure_percent",
               f"some process of {words} waited for {what} (PSI), percent of the time",
               f"processors.{where}{field}")
        for name, field, what in (("cpu", "pressure_percent", "a processor"),
                                  ("io", "io_percent", "a disk"))
        for name, words, where in ((f"machine_{name}", "the machine", ""),
                                   (f"servers_{name}", "the server that waited most",
                                    "parts.servers."))
    ),
), _processors, "Who used the processors",
    "Outside of faults: of the whole load, of its phase on own keys, of that on contended keys; "
    "and during faults, when nothing is judged. Percent of all cores. Queued: ready and not "
    "running, all threads of a part together, so it may be more than 100. Waited, and pressure "
    "(PSI): percent of the time.",
)  # fmt: skip


EVERY: Final = Table("every-case", "a phase of a case", (
    CASE, LOCK,
    FAULT.at(FAULT.of, slot=Slot("", once=True)),
    # Where all do the same it goes without saying.
    WORKLOAD.at(lambda r: r["case"].workload if r["several"] else None),
    LABELLED,
    ALONE_P50.at(ALONE_P50.of, slot=Slot("lock", "\nalone {whole}", True, True), report=False),
    ALONE_CPU.at(ALONE_CPU.of, slot=Slot("lock", "\nCPU {whole}", True, True), report=False),
    PHASE.at("phase", slot=Slot("phase")),
    *_kinds({
        f"{kind}_{quantile}_ms": Slot(words, form)
        for kind, words in (
            ("acquire", "acquire,\nown key"), ("handover", "hand-over"), ("wait", "wait")
        )
        for quantile, form in (("p50", "{text}"), ("p99", "/{text}"))
    }),
    CYCLES.at(_rate, slot=Slot("cycles/s\n/at most")),
    CEILING.at(CEILING.of, slot=Slot("cycles/s\n/at most", "/{text}", optional=True)),
    REFUSED.at(REFUSED.of, slot=Slot("den/\nunk")),
    UNKNOWN.at(UNKNOWN.of, slot=Slot("den/\nunk", "/{text}")),
    AVAILABILITY.at(AVAILABILITY.of, slot=Slot("whole case", "avail {whole}\n", True),
                    once=True),
    LONGEST_GAP.at(LONGEST_GAP.of, slot=Slot("whole case", "gap {whole}\n", True), once=True),
    RECOVERY.at(RECOVERY.of, slot=Slot("whole case", "recov {whole}\n", True), once=True),
    DEAD_HOLDER.at(lambda r: dead_holder_s(r["case"]),
                   slot=Slot("whole case", "orphan {whole}\n", True), once=True),
    NUMBERS_VALID,
    Column("verdict", "sign and judgement", "words", slot=Slot("verdict", _by_line, once=True)),
), _phases, "Every case",
    "From the intended start where there is one, so an outage hides nowhere; before, during and "
    "after a fault are never pooled. A dash is a quantile that its n does not carry, or nothing to "
    "measure. Figures in brackets are void: the load generator or the machine was the bottleneck; "
    "verdicts are not affected.",
)  # fmt: skip


def _undisturbed(row: UndisturbedLock) -> Iterator[Context]:
    pooled = row.latency_ms
    yield {
        "row": row,
        "void": row.cases < CASES_MIN,
        "cells": {
            "acquire": row.response_ms,
            "acquire_service": pooled.acquire,
            "handover": pooled.handover,
            "wait": row.wait_response_ms or pooled.wait,
            "wait_service": pooled.wait,
        },
    }


BASELINE: Final = Table("undisturbed", "a lock, all its cases together, before any fault", (
    LOCK.at("row.lock", slot=Slot("lock")),
    *_kinds(
        {
            **{
                f"{kind}_{name}_ms": Slot(words, form, optional=name in {"p50_min", "p50_max"})
                for kind, words in (
                    ("acquire", "acquire,\nown key"), ("handover", "hand-over"), ("wait", "wait")
                )
                for name, form in (
                    ("p50", "{text}"),
                    ("p50_min", "\n[{text}"),
                    ("p50_max", ", {text}]"),
                    ("p99", "\np99 {text}"),
                )
            },
            "acquire_service_p50_ms": Slot("acquire,\nown key", "\nservice {text}"),
            "acquire_service_p99_ms": Slot("acquire,\nown key", "/{text}"),
            HANDED_OVER.name: Slot("hand-over", "\ncovers {whole}", optional=True),
            "acquire_count": Slot("n of each"),
            "handover_count": Slot("n of each", "\n{text}"),
            "wait_count": Slot("n of each", "\n{text}"),
        },
        of_cases=True,
    ),
    *(
        Column(f"cycles_{q}_per_s", f"cycles per second on contended keys, {which}",
               f"row.cycles_per_second.{q}", slot, load=True)
        for q, which, slot in (
            ("median", "median over the cases", Slot("cycles/s")),
            ("min", "smallest of the cases", Slot("cycles/s", "\n[{text}")),
            ("max", "largest of the cases", Slot("cycles/s", ", {text}]")),
        )
    ),
    CEILING.at("ceiling", slot=Slot("cycles/s", "\nat most {text}", optional=True)),
    Column("cases", "cases that the row is made of", "row.cases"),
    NUMBERS_VALID.at(lambda r: r["row"].cases >= CASES_MIN),
    ALONE_P50.at("row.floor_acquire_ms_p50.median", slot=Slot("one client\nalone", "{whole}")),
    ALONE_CPU.at("row.floor_cpu_us_per_cycle.median",
                 slot=Slot("one client\nalone", "\nCPU {whole}")),
), _undisturbed, "Side by side, before any fault",
    "Up to the first fault, all cases of a lock together, and the range over the cases: the "
    "smallest and the largest of their medians. In brackets: fewer than three cases. Acquire: a "
    "key that nobody else wants, response time, from the intended start; what failed or timed out "
    "counts as longer than until it was given up. Service: from the invocation, of those that "
    "were granted. Hand-over: release invoked to the next grant, where somebody had waited since "
    "before the release and was granted next; beside it the share of the grants that this covers. "
    "Wait: a contended acquire, mostly the length of the queue. IQR is the distance between the "
    "quartiles, n the number of operations. Cycles per second: clients that contend, median, "
    "smallest and largest of the cases; the ceiling is what keys, holds and pauses allow, were "
    "the lock to cost nothing. One client alone: the acquire of one client while nobody else does "
    "anything, and the processor time of its own process per cycle.",
)  # fmt: skip
