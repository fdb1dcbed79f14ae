"""One case from top to bottom: processes, cluster, load, fault, heal, judgement.

``run_case`` reads as the story of a case. Whatever happens, every process and container of the case
is gone when it returns or raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from bench import interruption
from bench.crashes import crashes, crashes_json
from bench.errors import Ending
from bench.footprint import Meter, Reading, footprint
from bench.judge import AT_THE_RESOURCE, judge
from bench.plan import PUBLISHED, WORKERS, Case, expected_of, find_workload, topology_of
from bench.progress import Progress
from bench.usable import (
    error_texts,
    never_succeeded,
    nothing_worked,
    told_the_idle,
    turned_away,
    why_unusable,
    without_load,
)
from bench.watch import generator_health
from checker.check import check
from checker.exposure import Exposure, exposure
from checker.service import contradictions
from checker.verdict import Report
from clusters.base import HARNESS, Cluster, ClusterError, ClusterPlan, Measurable, Recorded
from history.columns import History, Ints
from history.op import Fault
from history.recording import read_recording, write_faults, write_meta
from history.service import write_service
from locks.base import VERDICTS
from locks.registry import is_own, origin
from locks.tenures import service_of
from nemesis.base import SERVERS, Arena, Injection
from nemesis.conductor import Grip, Played, play
from nemesis.registry import NONE, faults
from results.numbers import Phases as Spans
from results.numbers import before, measure
from workloads.audit import audit
from workloads.fleet import Fleet, LoadError
from workloads.load import Load, Phases
from workloads.nursery import Nursery

POLL_S = 0.1
# How long clients may take to finish their last cycle, beside waiting and holding.
DRAIN_S = 2.0
# More than the longest lease of a library and what anybody may take to notice its end.
QUIET_S_MAX = 90.0
LINK_ROUNDS = 300
# Solo clients and rivals beside the contending ones.
EXTRAS = 2
# Phases as they are shown.
FLOOR, OWN, CONTENDED, END = "floor", "own keys", "contended", "end"
QUIET = "quiet"
# More than a clock that is being slewed strays in a case.
CLOCK_STEP_S_MAX = 0.1


@dataclass
class Timings:
    """Seconds that the parts of a case took, for the case's record."""

    cluster_s: float = 0.0
    clients_s: float = 0.0
    load_s: float = 0.0  # with what it took to read the service's own record, ``record_s``
    record_s: float = 0.0
    check_s: float = 0.0
    total_s: float = 0.0


@dataclass
class Outcome:
    """What came of a case: its document, how it ended, and verdict → result."""

    document: dict[str, object]
    ending: Ending
    observed: Mapping[str, str]
    before_ns: Mapping[str, Ints]  # see results.numbers.before; empty where there are no numbers


def run_case(
    case: Case,
    folder: Path,
    *,
    run_id: str,
    nursery: Nursery,
    on_progress: Callable[[Progress], None],
    web_port: int | None = None,
    shown_before: frozenset[str] = frozenset(),
) -> Outcome:
    """Runs one case into ``folder``. Raises KeyboardInterrupt after having cleared everything away;
    any failure of cluster, load or nemesis becomes part of the document."""
    timings = Timings()
    began = time.monotonic()
    scene = _Scene(case, folder, run_id, nursery, timings, web_port)
    failure: str | None = None
    try:
        try:
            scene.unable = why_unusable(case.system)
            if scene.unable is None:
                _play_scene(scene, on_progress)
        except (ClusterError, LoadError) as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - one case must not take the others with it
            failure = f"{type(error).__name__}: {error}"
        document = _document(scene, failure or scene.failure, shown_before)
    finally:
        if scene.clearing is not None:
            _join(scene.clearing)
    document["crashes"] = crashes_json(
        crashes(folder / "logs", servers_struck=_servers_struck(case))
    )
    timings.total_s = time.monotonic() - began
    document["seconds"] = asdict(timings)
    return Outcome(
        document,
        Ending[str(document["ending"]).upper()],
        _observed(document),
        scene.before_ns,
    )


def _servers_struck(case: Case) -> bool:
    return any(SERVERS in faults()[i.fault].holds_of(dict(i.parameters)) for i in case.injections)


@dataclass
class _Scene:
    """What a case is played with, and what is known afterwards, however far it got."""

    case: Case
    folder: Path
    run_id: str
    nursery: Nursery
    timings: Timings
    web_port: int | None
    before_ns: Mapping[str, Ints] = field(default_factory=dict)
    start_ns: int | None = None
    load: Load | None = None
    faults: list[Fault] = field(default_factory=list)
    failure: str | None = None
    unable: str | None = None
    no_record: str | None = None  # why the service's own record was not read
    link_us: dict[str, float] = field(default_factory=dict)
    floor_cpu_ns: int = 0
    readings: Mapping[str, Reading] = field(default_factory=dict)
    clearing: threading.Thread | None = None


def _play_scene(scene: _Scene, on_progress: Callable[[Progress], None]) -> None:
    case, folder, timings = scene.case, scene.folder, scene.timings
    plan = ClusterPlan(
        topology=case.topology,
        size=case.size,
        groups=WORKERS + 1,
        run_id=scene.run_id,
        lease_ttl_s=case.pace.lease_ttl_s,
        log_dir=str(folder / "logs"),
        images=dict(case.images),
        network=case.network,
    )
    progress = Progress(folder / "history", on_progress)
    progress.phase("starting")
    cluster = topology_of(case).make(plan)
    with Fleet(folder, scene.run_id, WORKERS, scene.nursery) as fleet:
        fleet.launch()
        cluster.start()
        try:
            timings.cluster_s = progress.seconds()
            scene.load = load = load_of(case, fleet, cluster, case.phases, scene.web_port)
            wall_ns = time.time_ns() - time.monotonic_ns()
            write_meta(fleet.history, load.objects(), wall_minus_monotonic_ns=wall_ns)
            fleet.begin(load)
            if isinstance(cluster, Measurable):
                scene.link_us = dict(cluster.link_overhead_us(LINK_ROUNDS))
            timings.clients_s = progress.seconds() - timings.cluster_s
            try:
                _under_load(scene, fleet, cluster, progress)
                if case.system.kind == "none":
                    _audit(scene, fleet, cluster)
                _read_record(scene, fleet, cluster, wall_ns)
            finally:
                write_faults(fleet.history, scene.faults)
                scene.failure = scene.failure or _clock_step(wall_ns)
                scene.floor_cpu_ns = fleet.control.floor_cpu_ns()
                timings.load_s = progress.seconds() - timings.clients_s - timings.cluster_s
                progress.phase("clearing away")
        finally:
            # The engine takes a second or two for it, in which the history can be judged.
            scene.clearing = threading.Thread(target=cluster.stop, name="clearing")
            scene.clearing.start()


def _under_load(scene: _Scene, fleet: Fleet, cluster: Cluster, progress: Progress) -> None:
    """The load runs in processes of its own, the nemesis in a thread; this thread watches."""
    case = scene.case
    start_ns = scene.start_ns = fleet.go()
    phases = case.phases
    contended_ns = start_ns + _undisturbed_ns(case)
    end_ns = start_ns + int(1e9 * phases.total_s)
    stop = threading.Event()
    played: list[Played] = []
    meter = Meter(cluster)
    scene.readings = meter.readings
    grip = Grip(fleet)

    def conduct(injection: Injection) -> None:
        played.append(
            play(
                faults()[injection.fault],
                Arena(cluster, fleet, injection, case.pace.lease_ttl_s),
                start_ns=contended_ns,
                on_change=partial(progress.fault, injection.fault),
                stop=stop,
                grip=grip,
            )
        )

    # One thread each: faults may overlap.
    nemesis = [threading.Thread(target=conduct, args=(i,), name=i.fault) for i in case.injections]
    for thread in nemesis:
        thread.start()
    try:
        while (now_ns := time.monotonic_ns()) < end_ns:
            interruption.check()
            phase = _phase_at(now_ns - start_ns, case)
            progress.phase(phase, left_s=(end_ns - now_ns) / 1e9)
            if phase != FLOOR:
                meter.read(phase)
            fleet.check()
            time.sleep(POLL_S)
        if not case.injections:
            meter.read(END)
    finally:
        stop.set()
        _join(*nemesis)
        happened = [p.fault for p in played if p.fault is not None]
        scene.faults = sorted(happened, key=lambda fault: fault.begin_ns)
        scene.failure = next((p.failure for p in played if p.failure is not None), None)
        if len(played) < len(case.injections):
            scene.failure = scene.failure or "the nemesis ended before its faults did"
    drained = time.monotonic() + _drain_s(case)
    while fleet.busy() and time.monotonic() < drained:
        time.sleep(POLL_S / 10)
    if scene.failure is None and scene.load is not None and case.system.kind != "none":
        _quiet(scene.load, fleet, progress)


def _quiet(load: Load, fleet: Fleet, progress: Progress) -> None:
    """Every key is asked for, to see that it is free (``checker.leaks``)."""
    progress.phase(QUIET)
    fleet.ask_for_all()
    limit = time.monotonic() + QUIET_S_MAX
    while not fleet.asked_for_all(load) and time.monotonic() < limit:
        interruption.check()
        fleet.check()
        time.sleep(POLL_S / 10)


def _drain_s(case: Case) -> float:
    """So long a client may wait for its last lock, and then hold it."""
    asked = find_workload(case.workload)
    hold_s = asked.workload.leases(asked.options) * case.pace.lease_ttl_s
    return DRAIN_S + case.pace.wait_s + hold_s


def _clock_step(wall_minus_monotonic_ns: int) -> str | None:
    """Some servers count leases by the wall clock: a step of it that no fault made voids a case."""
    step_s = (time.time_ns() - time.monotonic_ns() - wall_minus_monotonic_ns) / 1e9
    if abs(step_s) <= CLOCK_STEP_S_MAX:
        return None
    return f"this machine's wall clock was set by {step_s:+.3f} s during the case"


def _audit(scene: _Scene, fleet: Fleet, cluster: Cluster) -> None:
    """What was done without a lock is judged by what the store shows in the end."""
    pace = scene.case.pace
    try:
        nodes = cluster.addresses(HARNESS)
        audit(fleet.history, scene.case.system, nodes, pace.client_timeout_s)
    except OSError as error:
        scene.failure = scene.failure or str(error)


def _read_record(scene: _Scene, fleet: Fleet, cluster: Cluster, wall_ns: int) -> None:
    """What the servers kept themselves of the lock's holds, where they keep a record. A record that
    cannot be read says nothing; it is no failure of the case."""
    entry = scene.case.system.entry
    if entry is None or not isinstance(cluster, Recorded):
        return
    began = time.monotonic()
    try:
        logs = cluster.server_logs()
    except ClusterError as error:
        scene.no_record = str(error)
        return
    ahead = sorted((wall_ns, time.time_ns() - time.monotonic_ns()))
    keys = scene.load.objects() if scene.load is not None else ()
    service = service_of(logs, entry, cluster.record_name, keys, (ahead[0], ahead[1]))
    write_service(fleet.history, service)
    scene.timings.record_s = time.monotonic() - began


def _undisturbed_ns(case: Case) -> int:
    """Nanoseconds of load before the first fault can begin."""
    return int(1e9 * (case.phases.floor_s + case.phases.own_s))


def _phase_at(elapsed_ns: int, case: Case) -> str:
    if elapsed_ns < case.phases.floor_s * 1e9:
        return FLOOR
    return OWN if elapsed_ns < _undisturbed_ns(case) else CONTENDED


def load_of(
    case: Case, fleet: Fleet, cluster: Cluster, phases: Phases, web_port: int | None = None
) -> Load:
    """The load of a case on a running cluster, ready to be handed to Locust's processes."""
    extras = 0 if case.workload == PUBLISHED else EXTRAS
    return Load(
        lock=case.lock,
        keys=case.keys,
        clients=case.clients,
        solo=extras,
        # More than have room in a semaphore beside the victim.
        rivals=max(extras, (case.system.permits or 0) + 1) if extras else 0,
        workers=WORKERS,
        phases=phases,
        pace=case.pace,
        seed=case.seed,
        nodes=tuple(tuple(cluster.addresses(group)) for group in range(1, WORKERS + 2)),
        resource=fleet.resource,
        history=str(fleet.history.resolve()),
        logs=str(fleet.logs.resolve()),
        control=str(fleet.control_file.resolve()),
        master_port=fleet.master_port,
        workload=case.workload,
        web_port=web_port,
    )


def _join(*threads: threading.Thread) -> None:
    """An interruption does not cut off what heals or clears away; both are bounded in time."""
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        for thread in threads:
            thread.join()
        raise


def _document(
    scene: _Scene, failure: str | None, shown_before: frozenset[str]
) -> dict[str, object]:
    """The case as it stands in ``results.json`` (contract: DESIGN, `lockbench run --json`)."""
    case, folder, timings = scene.case, scene.folder, scene.timings
    system, expected = case.system, expected_of(case)
    begun = time.monotonic()
    document: dict[str, object] = {
        **without_load(),
        "lock": system.name,
        "family": system.family,
        "fence": system.fence,
        "topology": case.topology,
        "size": case.size,
        "fault": case.fault if case.injections else NONE,
        "workload": case.workload,
        "network": case.network,
        "seed": case.seed,
        "clients": case.clients,
        "keys": case.keys,
        "expected": expected.words(_required(case)),
        "injections": [asdict(injection) for injection in case.injections],
        "settings": {**topology_of(case).settings, **asdict(case.pace)},
        "phases_s": asdict(case.phases),
        "link_us": scene.link_us,
        "folder": folder.name,
    }
    if is_own(case.lock):
        document["own"] = origin(case.lock)
    report: Report | None = None
    short: str | None = None
    seen = Exposure(False, ("the load did not run",))
    if scene.start_ns is not None and scene.load is not None:
        history = read_recording(folder / "history")
        report = check(history)
        scene.unable = nothing_worked(history, scene.start_ns + _undisturbed_ns(case))
        seen = _informational(report) if case.workload == PUBLISHED else exposure(history)
        if len(scene.faults) < len(case.injections):
            played = f"{len(scene.faults)} of {len(case.injections)} faults were played"
            seen = Exposure(False, (*seen.reasons, played))
        missing = _missing(case, history)
        if missing is not None:
            seen = Exposure(False, (missing, *seen.reasons))
        if scene.unable is not None:
            seen = Exposure(False, (scene.unable,))
        document |= _numbers(scene, history)
        if failure is not None:
            # What was seen of a load that did not last as long as its phases is no number.
            document["numbers"] = "void"
            scene.before_ns = {}
        short = _short(case, document, history)
        spans = {"own": (OWN, CONTENDED), "contended": (CONTENDED, END)}
        document["footprint"] = footprint(scene.readings, spans, history)
        document |= report.to_json()
        document |= _availability(report)
        if texts := error_texts(history):
            document["error_texts"] = texts
    observed = {} if report is None else {v: r.result for v, r in report.verdicts.items()}
    judgement = judge(
        expected,
        observed,
        exposed=seen.exposed,
        exposure="; ".join(seen.reasons),
        failure=failure,
        unable=scene.unable,
        short=short,
        shown_before=shown_before,
        required=_required(case),
        contradicted={} if report is None else contradictions(report),
    )
    timings.check_s = time.monotonic() - begun
    if lines := expected.proposal([v for v, result in observed.items() if result == "invalid"]):
        document["declare"] = lines
    if scene.no_record is not None:
        document["no_record"] = scene.no_record
    return document | {
        "observed": observed,
        "exposed": seen.exposed,
        "exposure": {"exposed": seen.exposed, "reasons": list(seen.reasons)},
        "judgement": judgement.word,
        "why": judgement.why,
        "ending": judgement.ending.name.lower(),
        "consensus": topology_of(case).quorum,
        "control": any(
            e.kind == "control"
            for name in expected.faults
            for e in system.expectations.get(name, {}).values()
        ),
    }


def _short(case: Case, document: Mapping[str, Any], history: History) -> str | None:
    """What of the load did not take place. Under a fault and in the published experiment that is
    part of what is looked at."""
    generator = document["generator"]
    if case.injections or case.workload == PUBLISHED or not generator["short"]:
        return None
    why = list(generator["short"])
    if any(worker["idle_users"] for worker in generator["workers"]):
        why.append(f"who was never granted was told: {told_the_idle(history) or 'nothing'}")
    return "; ".join(why)


def _missing(case: Case, history: History) -> str | None:
    """Which operation never succeeded on the keys that the load shares. The published experiment
    shares none, and what takes no lock has none."""
    if case.workload == PUBLISHED or case.system.kind == "none":
        return None
    asked = find_workload(case.workload)
    return never_succeeded(history, too_late=asked.workload.outlasts(asked.options))


def _required(case: Case) -> tuple[str, ...]:
    """What the lock is always judged by, and what the workload gives reason to reach. Who holds on
    for longer than the lease may have nothing left to release."""
    asked = find_workload(case.workload)
    late = asked.workload.outlasts(asked.options)
    beside = (*AT_THE_RESOURCE, "wrong-release") if late else AT_THE_RESOURCE
    lock_alone = tuple(v for v in VERDICTS if v not in beside)
    # Nobody is there to ask for the keys of the published experiment when it is over.
    after = () if case.workload == PUBLISHED or case.system.kind == "none" else ("leaked-lock",)
    return (*lock_alone, *after, *asked.workload.verdicts)


def _informational(report: Report) -> Exposure:
    """The published experiment has no contention to be exposed to; something must have happened."""
    return Exposure(report.grants > 0, (f"{report.grants} grants of keys that nobody shares",))


def _numbers(scene: _Scene, history: History) -> dict[str, object]:
    folder = scene.folder
    start_ns = scene.start_ns or 0
    phases = scene.case.phases
    floor_end = start_ns + int(1e9 * phases.floor_s)
    own_end = floor_end + int(1e9 * phases.own_s)
    end = own_end + int(1e9 * phases.contended_s)
    patient = find_workload(scene.case.workload).workload.patient
    if not scene.case.injections and turned_away(history):
        patient = False
    health = generator_health(
        folder / "logs", scene.faults, (floor_end, end), WORKERS + 1, patient=patient
    )
    spans = Spans((start_ns, floor_end), (floor_end, own_end), (own_end, end))
    timeout_s = scene.case.pace.client_timeout_s
    numbers = measure(history, spans, unknown_after_s=timeout_s).to_json()
    if health["ok"] and scene.case.workload != PUBLISHED:
        scene.before_ns = before(history, spans)
    if scene.case.workload == PUBLISHED:
        numbers["cycles_per_second"] = numbers["own_cycles_per_second"]
    return {
        **numbers,
        "floor": _floor(numbers, scene.floor_cpu_ns),
        "generator": health,
        "numbers": "valid" if health["ok"] else "void",
    }


def _floor(numbers: Mapping[str, Any], cpu_ns: int) -> dict[str, object]:
    """What one client costs by itself: CPU of its process per cycle, and its acquire's latency."""
    acquire = numbers["floor_acquire_ms"]
    cycles = acquire["count"]
    return {
        "cycles": cycles,
        "cpu_us_per_cycle": cpu_ns / 1e3 / cycles if cycles else None,
        "acquire_ms_p50": acquire["p50"],
    }


def _availability(report: Report) -> dict[str, object]:
    """The two measurements that the contract names at the top of a case."""
    availability = report.measurements.get("availability")
    recovery = report.measurements.get("recovery")
    slowest = [
        r["servers_s"]
        for r in (recovery if isinstance(recovery, list) else [])
        if isinstance(r, dict) and r.get("servers_s") is not None
    ]
    return {
        "availability": availability.get("fraction") if isinstance(availability, dict) else None,
        "recovery_seconds": max(slowest, default=None),
    }


def _observed(document: dict[str, object]) -> dict[str, str]:
    observed = document["observed"]
    assert isinstance(observed, dict)
    return observed
