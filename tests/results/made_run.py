"""A run folder as the bench writes it, made without a cluster: recorder, numbers, checker, store.

Clients take turns on one contended key and own a key each; a pause in the middle makes everybody
wait, some requests end unknown or refused, and one hold is granted twice where that is asked for.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lockbench.checker.check import check
from lockbench.history.op import F, Fault, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_faults, write_meta
from lockbench.results.numbers import Phases, measure
from lockbench.results.store import RunFolder
from tests.results.plain import (
    plain,
    write_case,
    write_machine,
    write_plan,
    write_results,
    write_versions,
)

START_NS = 10**12
MS = 10**6
S = 10**9
PAUSE_NS = 2 * S


def record(
    folder: Path,
    cycles: int,
    *,
    faulty: bool = True,
    double: bool = False,
    name: str = "pause",
) -> Phases:
    """About four operations per cycle, half of the cycles on the contended key. Returns when the
    phases were."""
    luck = random.Random(7)
    recorder = Recorder(folder, 0)
    seconds = max(8, cycles // 2000)
    own_end = START_NS + S * seconds // 4
    end = START_NS + S * seconds
    cut = START_NS + S * seconds // 2
    now, version = START_NS, 0
    gap = (end - START_NS) // cycles
    paused = False
    for cycle in range(cycles):
        at = START_NS + cycle * gap
        key = "own-0" if at < own_end or cycle % 2 else "contended-0"
        now = max(now, at)
        if faulty and not paused and at > cut:
            now, paused = now + PAUSE_NS, True
            lost = recorder.invoke(90, F.ACQUIRE, "contended-0", invoke_ns=cut + S // 2)
            recorder.complete(lost, Type.INFO, error="timeout: no answer")
            busy = recorder.invoke(91, F.ACQUIRE, "contended-0", invoke_ns=cut + S // 2)
            recorder.complete(busy, Type.FAIL, error="held", complete_ns=cut + S // 2 + MS)
        now = _cycle(recorder, key, cycle % 8, cycle + 1, at, now, version, luck)
        version += key == "contended-0"
    if double:
        _double_grant(recorder, cut)
    recorder.close()
    objects = {"own-0": Object(role="own"), "contended-0": Object(role="contended")}
    objects["aimed"] = Object(role="aimed")
    write_meta(folder, objects, wall_minus_monotonic_ns=0)
    fault = Fault(name, ("etcd-2",), (cut, cut + MS), (cut + PAUSE_NS, cut + PAUSE_NS + MS))
    write_faults(folder, [fault] if faulty else [])
    return Phases((START_NS, START_NS), (START_NS, own_end), (own_end, max(end, now)))


def _cycle(
    recorder: Recorder,
    key: str,
    process: int,
    hold: int,
    due: int,
    now: int,
    version: int,
    luck: random.Random,
) -> int:
    took = int(luck.lognormvariate(11, 0.6))
    granted = now + took
    handle = recorder.invoke(process, F.ACQUIRE, key, hold=hold, intended_ns=due, invoke_ns=now)
    recorder.complete(
        handle,
        Type.OK,
        fence=hold,
        sent_ns=now,
        valid_until_ns=now + 3 * S,
        complete_ns=granted,
    )
    for f in (F.READ, F.WRITE):
        use = recorder.invoke(
            process, f, f"r-{key}", hold=hold, version=version, invoke_ns=granted + 1
        )
        value = version if f is F.READ else version + 1
        if f is F.READ or key == "contended-0":
            granted += 2000
            recorder.complete(
                use, Type.OK, value=value, applied_ns=granted - 500, complete_ns=granted
            )
        else:
            recorder.complete(use, Type.FAIL, error="no-effect", complete_ns=granted + 500)
            granted += 2000
    handle = recorder.invoke(process, F.RELEASE, key, hold=hold, invoke_ns=granted + 1000)
    recorder.complete(handle, Type.OK, complete_ns=granted + 3000)
    return granted + 4000


def _double_grant(recorder: Recorder, at: int) -> None:
    for process, begin in ((95, at), (96, at + 100 * MS)):
        handle = recorder.invoke(process, F.ACQUIRE, "aimed", hold=10**9 + process, invoke_ns=begin)
        recorder.complete(
            handle, Type.OK, valid_until_ns=begin + 3 * S, complete_ns=begin + MS, sent_ns=begin
        )


def make_run(
    base: Path,
    *,
    cycles: int = 2000,
    faults: Mapping[str, bool] | None = None,
    double: bool = False,
    injected: str = "pause",
    change: Callable[[dict[str, Any]], None] = lambda case: None,
    results: Mapping[str, Any] | None = None,
) -> RunFolder:
    """A finished run with a case per entry of ``faults`` (name → whether it injects). ``change``
    may rewrite a case before it is stored anywhere; ``results`` stand beside the cases."""
    run = RunFolder.create(base, "quick")
    write_plan(run, {"name": "quick", "cases": []})
    write_machine(run, {"cpu": "Some CPU", "fsync_ms": {"p99": 1.5, "count": 1000}})
    write_versions(run, {"libraries": {"redis": "8.1.0"}})
    cases = []
    for n, (fault, faulty) in enumerate((faults or {"pause": True}).items(), 1):
        folder = run.case(n, "etcd", fault)
        phases = record(folder.history, cycles, faulty=faulty, double=double, name=injected)
        history = read_recording(folder.history)
        report = check(history)
        case: dict[str, Any] = {
            "lock": "etcd",
            "topology": "etcd",
            "size": 3,
            "fault": fault,
            "workload": "mutex",
            "network": "loopback",
            "seed": 4,
            "clients": 8,
            "folder": folder.path.name,
            "exposed": True,
            "exposure": {"exposed": True, "reasons": ["its effect was proven"]},
            "expected": {"double-grant": "may-break" if double else "holds"},
            "judgement": "as expected",
            "why": "every promise was kept",
            "numbers": "valid",
            "link_us": {"linked": 200.5, "direct": 90.25},
            "floor": {"cycles": 82, "cpu_us_per_cycle": 364.7, "acquire_ms_p50": 0.7},
            "generator": {
                "ok": True,
                "why": [],
                "missing": 0,
                "machine_percent": 41.5,
                "workers": [
                    {
                        "name": "worker-0",
                        "cpu_percent_mean": 12.5,
                        "cpu_percent_max": 20.0,
                        "lag_ms_p99": 1.5,
                        "idle_users": [],
                    }
                ],
            },
            **plain(measure(history, phases, unknown_after_s=1.0)),
            **report.to_json(),
            "history_sha256": folder.history_sha256(),
        }
        change(case)
        write_case(folder, case)
        cases.append(case)
    write_results(run, {"name": "quick", "cases": cases, "ending": "ok", **(results or {})})
    run.finish("ok")
    return run
