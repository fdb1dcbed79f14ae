"""Judges the load generator: were its numbers limited by itself?

A worker that used most of a core, or whose sidecar did, or whose event loop lagged, measured
itself and not the lock: the case's *numbers* are void then, never its verdicts. Seconds that a
fault touches are recorded and do not count. Jobs of an open load that were due and never begun are
in no quantile, so too many of them void it too; so do a sidecar that died, and other programs that
kept the machine busy (``lockbench.bench.pressure``).

Where the load that was asked for never took place (``short``), a case without a fault has shown
nothing: its verdicts are about another load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from lockbench.bench.pressure import Counters
from lockbench.bench.pressure import pressure as used
from lockbench.history.op import Fault
from lockbench.results.documents import Due, Generator, Processors, Worker

# Of an open load: sent ÷ intended, outside faults and at the end.
BEGUN_MIN = 0.95
# Of all clients, those that got nothing done, where the load is taken to be another one.
IDLE_MAX = 0.1
CPU_PERCENT_MAX = 80.0
LAG_MS_P99_MAX = 50.0
DURING = "during"

Span = tuple[int, int]  # of the monotonic clock


def generator_health(
    logs: Path,
    faults: Sequence[Fault],
    span_ns: Span,
    expected: int,
    *,
    patient: bool = False,
    pressure: Sequence[Counters] = (),
    parts_ns: Mapping[str, Span] | None = None,
) -> Generator:
    """``ok``, ``why`` not, ``short`` (what of the load did not take place), per worker CPU (percent
    of a core), lag (ms) and idle users, and of an open load how many jobs were due and begun.

    Over the seconds of ``span_ns`` that no fault touches. ``patient``: so many clients wait that
    some may wait all the time. ``pressure``: what the processors did
    (``lockbench.bench.pressure``). It is judged over the span, and in each of ``parts_ns`` by
    itself.
    """
    workers: list[Worker] = []
    busy: list[float] = []
    why: list[str] = []
    short: list[str] = []
    due: list[Due] = []
    users = 0
    for path in sorted(logs.glob("worker-*.jsonl")):
        lines = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
        due += [Due(line["due"], line["begun"]) for line in lines if "due" in line][-1:]
        counted = [
            line for line in lines if _counts(line["begin_ns"], line["end_ns"], faults, span_ns)
        ]
        if not counted:
            why.append(f"{path.stem} reported nothing")
            continue
        lag = np.array([ms for line in counted for ms in line["lag_ms"]])
        cpu = np.array([line["cpu_percent"] for line in counted])
        beside = float(np.mean([line.get("sidecar_percent", 0.0) for line in counted]))
        # Rivals and the victim serve the nemesis; no number counts them.
        cycles = {
            user: done
            for user, done in lines[-1]["cycles"].items()
            if not user.startswith(("rival", "victim"))
        }
        users += len(cycles)
        idle = sorted(user for user, done in cycles.items() if done == 0)
        cpu_mean, lag_p99 = float(cpu.mean()), float(np.quantile(lag, 0.99))
        machine_percent = [line["machine_percent"] for line in counted if "machine_percent" in line]
        busy += [float(np.mean(machine_percent))] if machine_percent else []
        workers.append(
            Worker(
                name=path.stem,
                cpu_percent_mean=round(cpu_mean, 1),
                cpu_percent_max=round(float(cpu.max()), 1),
                sidecar_percent_mean=round(beside, 1),
                lag_ms_p99=round(lag_p99, 2),
                lag_ms_max=round(float(lag.max()), 2),
                idle_users=tuple(idle),
            )
        )
        if cpu_mean > CPU_PERCENT_MAX:
            why.append(f"{path.stem} used {cpu_mean:.0f} % of a core")
        if beside > CPU_PERCENT_MAX:
            why.append(f"the sidecar of {path.stem} used {beside:.0f} % of a core")
        if lag_p99 > LAG_MS_P99_MAX:
            why.append(f"{path.stem}'s event loop lagged {lag_p99:.0f} ms (p99)")
        why += [f"{path.stem}: {failure}" for failure in lines[-1].get("failures", ())]
        if idle and not patient:
            why.append(f"{len(idle)} users of {path.stem} got nothing done: {', '.join(idle[:3])}")
    load = Due(sum(d.due for d in due), sum(d.begun for d in due)) if due else None
    if load is not None and load.begun < BEGUN_MIN * load.due:
        short.append(
            f"{load.begun:,} of {load.due:,} jobs that were due were begun: the rate is more "
            "than these clients, or the lock, can do"
        )
        why += short
    idle_users = sum(len(worker.idle_users) for worker in workers)
    if idle_users > IDLE_MAX * users and not patient:
        short.append(f"{idle_users:,} of {users:,} clients got nothing done")
    processors, saturated = used(pressure, partial(_tells, faults=faults, span_ns=span_ns))
    by_phase, saturated_then = _by_phase(pressure, faults, parts_ns or {})
    why += saturated or saturated_then
    missing = expected - len(workers)
    if missing > 0:
        why.append(f"{missing} of {expected} workers are missing")
    return Generator(
        ok=not why,
        why=tuple(why),
        short=tuple(short),
        workers=tuple(workers),
        missing=missing,
        load=load,
        processors=processors,
        processors_by_phase=by_phase or None,
        # Printed, not judged: servers, links and clients share the machine.
        machine_percent=max(busy, default=None),
    )


def _by_phase(
    read: Sequence[Counters], faults: Sequence[Fault], parts_ns: Mapping[str, Span]
) -> tuple[dict[str, Processors], list[str]]:
    """What the processors did in each part of the load outside faults, and during faults in all of
    them; and why the figures of a part are those of a saturated machine."""
    found: dict[str, Processors | None] = {}
    why: list[str] = []
    for name, part_ns in parts_ns.items():
        found[name], saturated = used(read, partial(_tells, faults=faults, span_ns=part_ns))
        why += [f"{reason} ({name} keys)" for reason in saturated]
    parts = parts_ns.values()
    found[DURING], _ = used(
        read,
        lambda a, b: any(_mostly(a, b, ns) and not _free(a, b, faults, ns) for ns in parts),
    )
    return {name: of for name, of in found.items() if of is not None}, why


def _within(begin_ns: int, end_ns: int, span_ns: Span) -> bool:
    return begin_ns >= span_ns[0] and end_ns <= span_ns[1]


def _counts(begin_ns: int, end_ns: int, faults: Sequence[Fault], span_ns: Span) -> bool:
    """Whether a time lies within the span, and no fault touches it."""
    return _within(begin_ns, end_ns, span_ns) and _free(begin_ns, end_ns, faults, span_ns)


def _mostly(begin_ns: int, end_ns: int, span_ns: Span) -> bool:
    """Whether more than half of a time lies within the span that it is in."""
    return span_ns[0] <= (begin_ns + end_ns) // 2 < span_ns[1]


def _tells(begin_ns: int, end_ns: int, faults: Sequence[Fault], span_ns: Span) -> bool:
    """Whether what the processors did between two readings was done in the span, outside faults. A
    reading at the end of a span is always a little later than that."""
    return _mostly(begin_ns, end_ns, span_ns) and _free(begin_ns, end_ns, faults, span_ns)


def _free(begin_ns: int, end_ns: int, faults: Sequence[Fault], span_ns: Span) -> bool:
    """Whether no fault touches a time of the span."""
    for fault in faults:
        over_ns = span_ns[1] if fault.heal_ns is None else fault.heal_ns[1]
        if begin_ns < over_ns and end_ns > fault.begin_ns[0]:
            return False
    return True
