"""One case from top to bottom: processes, cluster, load, fault, heal, judgement.

``run_case`` reads as the story of a case. Whatever happens, every process and container of the case
is gone when it returns or raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from msgspec.structs import asdict as shallow
from msgspec.structs import replace

from bench import interruption
from bench.crashes import crashes, shown
from bench.footprint import Meter, Reading, footprint
from bench.judge import judge
from bench.outside import Outside, Watch, as_faults, documented, stall_s_max, told
from bench.plan import PUBLISHED, WORKERS, Case, expected_of, find_workload, topology_of
from bench.pressure import Counters
from bench.progress import Progress
from bench.room import full
from bench.usable import (
    error_texts,
    never_succeeded,
    nothing_worked,
    said_to_idle_clients,
    turned_away,
    why_unusable,
)
from bench.watch import generator_health
from checker.catalogue import ALWAYS, AT_THE_RESOURCE
from checker.check import check
from checker.exposure import Exposure, exposure
from checker.service import contradictions
from checker.verdict import Report
from clusters.base import HARNESS, Cluster, ClusterError, ClusterPlan, Measurable, Recorded
from clusters.engine.removal import left_behind, remove_run
from history.columns import History, Ints
from history.op import Fault
from history.recording import read_recording, write_ended, write_faults, write_meta
from history.service import write_service
from locks.registry import is_own, origin
from locks.shared.tenures import service_of
from nemesis.base import SERVERS, Arena, Injection
from nemesis.conductor import Played, TargetClaims, play
from nemesis.registry import NONE, faults
from results import documents
from results.cases import judged
from results.documents import made
from results.numbers import Numbers, before, measure
from results.numbers import Phases as Spans
from workloads.audit import audit
from workloads.fleet import Fleet, LoadError
from workloads.fork_server import ForkServer
from workloads.load import Load, Phases

POLL_S = 0.1
# How long clients may take to finish their last cycle, beside waiting and holding.
DRAIN_S = 2.0
# More than the longest lease of a library and what anybody may take to notice its end.
QUIET_S_MAX = 90.0
LINK_ROUNDS = 300
# What the nemesis may take to heal when the run is interrupted: the cluster goes as a whole.
GIVING_UP_S = 0.5
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
    """What came of a case."""

    document: documents.Case
    before_ns: Mapping[str, Ints]  # see results.numbers.before; empty where there are no numbers


def run_case(
    case: Case,
    folder: Path,
    *,
    run_id: str,
    fork_server: ForkServer,
    on_progress: Callable[[Progress], None],
    web_port: int | None = None,
    shown_before: frozenset[str] = frozenset(),
) -> Outcome:
    """Runs one case into ``folder``. Raises KeyboardInterrupt after having cleared everything away;
    any failure of cluster, load or nemesis becomes part of the document."""
    timings = Timings()
    began = time.monotonic()
    scene = _Scene(case, folder, run_id, fork_server, timings, web_port)
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
        if failure is not None and (why := full(folder)):
            failure = f"{why}: {failure}"
        document = _document(scene, failure or scene.failure, shown_before)
    finally:
        with interruption.held():
            _cleared(scene)
    said = crashes(folder / "logs", servers_struck=_servers_struck(case))
    timings.total_s = time.monotonic() - began
    return Outcome(replace(document, crashes=shown(said), seconds=asdict(timings)), scene.before_ns)


def _servers_struck(case: Case) -> bool:
    return any(SERVERS in faults()[i.fault].holds_of(dict(i.parameters)) for i in case.injections)


@dataclass
class _Scene:
    """What a case is played with, and what is known afterwards, however far it got."""

    case: Case
    folder: Path
    run_id: str
    fork_server: ForkServer
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
    left: Sequence[str] = ()  # names of what could not be removed
    outside: list[Outside] = field(default_factory=list)
    pressure: list[Counters] = field(default_factory=list)


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
    if left := remove_run(scene.run_id):
        raise ClusterError(f"of an earlier case: {left_behind(left)}")
    progress = Progress(folder / "history", on_progress)
    progress.phase("starting")
    cluster = topology_of(case).make(plan)
    with Fleet(folder, scene.run_id, WORKERS, scene.fork_server) as fleet:
        fleet.launch()
        try:
            cluster.start()
            timings.cluster_s = progress.seconds()
            scene.load = load = load_of(case, fleet, cluster, case.phases, scene.web_port)
            wall_ns = time.time_ns() - time.monotonic_ns()
            write_meta(fleet.history, load.objects(), wall_minus_monotonic_ns=wall_ns, ended=False)
            fleet.begin(load)
            if isinstance(cluster, Measurable):
                scene.link_us = dict(cluster.link_overhead_us(LINK_ROUNDS))
            timings.clients_s = progress.seconds() - timings.cluster_s
            watch = Watch(fleet, cluster, WORKERS, _stall_s_max(case))
            try:
                with watch:
                    _under_load(scene, fleet, cluster, progress, watch)
                    if case.system.kind == "none":
                        _audit(scene, fleet, cluster)
                    _read_record(scene, fleet, cluster, wall_ns)
            finally:
                scene.outside, scene.pressure = watch.found(), watch.pressure
                outside = as_faults(scene.outside, scene.start_ns or 0)
                write_faults(fleet.history, [*scene.faults, *outside])
                scene.failure = scene.failure or _clock_step(wall_ns)
                scene.floor_cpu_ns = fleet.control.floor_cpu_ns
                timings.load_s = progress.seconds() - timings.clients_s - timings.cluster_s
                progress.phase("clearing away")
            write_ended(fleet.history)
        finally:
            # The engine takes a second or two for it, in which the history can be judged.
            with interruption.held():
                scene.clearing = threading.Thread(target=_clear, args=(scene, cluster))
                scene.clearing.start()


def _clear(scene: _Scene, cluster: Cluster) -> None:
    scene.left = cluster.stop()


def _cleared(scene: _Scene) -> str | None:
    """Waits until the cluster is gone; what is left of it voids the case."""
    if scene.clearing is not None:
        _join(scene.clearing)
    return left_behind(scene.left) if scene.left else None


def _under_load(
    scene: _Scene, fleet: Fleet, cluster: Cluster, progress: Progress, watch: Watch
) -> None:
    """The load runs in processes of its own, the nemesis in a thread; this thread looks on."""
    case = scene.case
    start_ns = scene.start_ns = fleet.go()
    phases = case.phases
    contended_ns = start_ns + _undisturbed_ns(case)
    end_ns = start_ns + int(1e9 * phases.total_s)
    stop = threading.Event()
    played: list[Played] = []
    meter = Meter(cluster)
    scene.readings = meter.readings
    claims = TargetClaims(fleet)

    def conduct(injection: Injection) -> None:
        played.append(
            play(
                faults()[injection.fault],
                Arena(cluster, fleet, injection, case.pace.lease_ttl_s),
                start_ns=contended_ns,
                on_change=partial(progress.fault, injection.fault),
                stop=stop,
                claims=claims,
            )
        )

    # One thread each: faults may overlap. Nobody waits for them once the run is interrupted.
    nemesis = [
        threading.Thread(target=conduct, args=(i,), name=i.fault, daemon=True)
        for i in case.injections
    ]
    heals_s: float | None = None
    try:
        for thread in nemesis:
            thread.start()
        while (now_ns := time.monotonic_ns()) < end_ns:
            interruption.check()
            phase = _phase_at(now_ns - start_ns, case)
            progress.phase(phase, left_s=(end_ns - now_ns) / 1e9)
            if phase != FLOOR:
                meter.read(phase)
            fleet.check()
            watch.check()
            time.sleep(POLL_S)
        if not case.injections:
            meter.read(END)
        stop.set()
        _join(*nemesis)
    except KeyboardInterrupt:
        heals_s = GIVING_UP_S
        raise
    finally:
        stop.set()
        _join(*nemesis, limit_s=heals_s)
        happened = [p.fault for p in played if p.fault is not None]
        scene.faults = sorted(happened, key=lambda fault: fault.begin_ns)
        scene.failure = next((p.failure for p in played if p.failure is not None), None)
        if len(played) < len(case.injections):
            scene.failure = scene.failure or "the nemesis ended before its faults did"
    drained = time.monotonic() + _drain_s(case)
    while fleet.busy() and time.monotonic() < drained:
        interruption.check()
        time.sleep(POLL_S / 10)
    if scene.failure is None and scene.load is not None and case.system.kind != "none":
        _quiet(scene.load, fleet, progress, watch)


def _quiet(load: Load, fleet: Fleet, progress: Progress, watch: Watch) -> None:
    """Every key is asked for, to see that it is free (``checker.leaks``)."""
    progress.phase(QUIET)
    fleet.ask_for_all()
    limit = time.monotonic() + QUIET_S_MAX
    while not fleet.asked_for_all(load) and time.monotonic() < limit:
        interruption.check()
        fleet.check()
        watch.check()
        time.sleep(POLL_S / 10)


def _drain_s(case: Case) -> float:
    """So long a client may wait for its last lock, and then hold it."""
    return DRAIN_S + case.pace.wait_s + _longest_job_s(case)


def _longest_job_s(case: Case) -> float:
    """Of a workload that asks for as many leases; 0 for one that holds as the pace says."""
    asked = find_workload(case.workload)
    return asked.workload.leases(asked.options) * case.pace.lease_ttl_s


def _stall_s_max(case: Case) -> float:
    pace = case.pace
    hold_s = max(pace.hold_s, pace.aimed_hold_s, _longest_job_s(case))
    return stall_s_max(pace.lease_ttl_s, pace.client_timeout_s, hold_s)


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


def _join(*threads: threading.Thread, limit_s: float | None = None) -> None:
    """Waits for all together. What is waited for without a limit is bounded in time itself."""
    end = None if limit_s is None else time.monotonic() + limit_s
    for thread in threads:
        if thread.ident is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))


def _document(scene: _Scene, failure: str | None, shown_before: frozenset[str]) -> documents.Case:
    """The case as it stands in ``results.json``, but for what is known once it is over."""
    case, expected = scene.case, expected_of(scene.case)
    begun = time.monotonic()
    document = _asked(scene)
    report: Report | None = None
    short: str | None = None
    seen = Exposure(False, ("the load did not run",))
    if scene.start_ns is not None and scene.load is not None:
        history = read_recording(scene.folder / "history")
        report = check(history)
    # Judged meanwhile. A case that could not be cleared away is no good one.
    left = _cleared(scene)
    failure = "; ".join(filter(None, (failure, left))) or None
    disturbed = _disturbed(scene, left)
    if report is not None and scene.start_ns is not None:
        scene.unable = nothing_worked(history, scene.start_ns + _undisturbed_ns(case))
        seen = _seen(scene, history, report)
        document = _with_numbers(scene, judged(document, report), history)
        if failure is not None or disturbed is not None:
            # What was seen of a load that did not last as long as its phases is no number.
            document = replace(document, numbers="void")
            scene.before_ns = {}
        short = _short(case, document, history)
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
        disturbed=disturbed,
    )
    scene.timings.check_s = time.monotonic() - begun
    return replace(
        document,
        declare=tuple(expected.proposal([v for v, r in observed.items() if r == "invalid"])),
        no_record=scene.no_record,
        outside=documented(scene.outside, scene.start_ns or 0),
        observed=observed,
        exposed=seen.exposed,
        exposure=documents.Exposure(seen.exposed, seen.reasons),
        judgement=judgement.word,
        why=judgement.why,
        ending=judgement.ending.word,
    )


def _asked(scene: _Scene) -> documents.Case:
    """What was asked for, and what is known of it without a load."""
    case, system, expected = scene.case, scene.case.system, expected_of(scene.case)
    topology = topology_of(case)
    return documents.Case(
        lock=system.name,
        family=system.family,
        fence=system.fence,
        topology=case.topology,
        size=case.size,
        fault=case.fault if case.injections else NONE,
        workload=case.workload,
        network=case.network,
        seed=case.seed,
        clients=case.clients,
        keys=case.keys,
        expected=dict(expected.words(_required(case))),
        injections=tuple(made(documents.Injection, asdict(one)) for one in case.injections),
        settings={**topology.settings, **asdict(case.pace)},
        phases_s=made(documents.PhasesS, asdict(case.phases)),
        link_us=documents.Link(**scene.link_us),
        folder=scene.folder.name,
        own=made(documents.Own, origin(case.lock)) if is_own(case.lock) else None,
        numbers="void",
        consensus=topology.quorum,
        control=any(
            e.kind == "control"
            for name in expected.faults
            for e in system.expectations.get(name, {}).values()
        ),
    )


def _seen(scene: _Scene, history: History, report: Report) -> Exposure:
    """Whether what was to be tested took place."""
    case = scene.case
    if scene.unable is not None:
        return Exposure(False, (scene.unable,))
    seen = _informational(report) if case.workload == PUBLISHED else exposure(history)
    if len(scene.faults) < len(case.injections):
        played = f"{len(scene.faults)} of {len(case.injections)} faults were played"
        seen = Exposure(False, (*seen.reasons, played))
    missing = _missing(case, history)
    return seen if missing is None else Exposure(False, (missing, *seen.reasons))


def _disturbed(scene: _Scene, left: str | None) -> str | None:
    """What happened from outside, if anything did."""
    if not scene.outside:
        return None
    return "; ".join(filter(None, (told(scene.outside, scene.start_ns or 0), left)))


def _short(case: Case, document: documents.Case, history: History) -> str | None:
    """What of the load did not take place. Under a fault and in the published experiment that is
    part of what is looked at."""
    generator = document.generator
    if generator is None or case.injections or case.workload == PUBLISHED or not generator.short:
        return None
    why = list(generator.short)
    if any(worker.idle_users for worker in generator.workers):
        why.append(f"who was never granted was told: {said_to_idle_clients(history) or 'nothing'}")
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
    lock_alone = tuple(v for v in ALWAYS if v not in beside)
    # Nobody is there to ask for the keys of the published experiment when it is over.
    after = () if case.workload == PUBLISHED or case.system.kind == "none" else ("leaked-lock",)
    return (*lock_alone, *after, *asked.workload.verdicts)


def _informational(report: Report) -> Exposure:
    """The published experiment has no contention to be exposed to; something must have happened."""
    return Exposure(report.grants > 0, (f"{report.grants} grants of keys that nobody shares",))


def _with_numbers(scene: _Scene, document: documents.Case, history: History) -> documents.Case:
    start_ns = scene.start_ns or 0
    phases = scene.case.phases
    floor_end = start_ns + int(1e9 * phases.floor_s)
    own_end = floor_end + int(1e9 * phases.own_s)
    end = own_end + int(1e9 * phases.contended_s)
    patient = find_workload(scene.case.workload).workload.patient
    if not scene.case.injections and turned_away(history):
        patient = False
    health = generator_health(
        scene.folder / "logs",
        scene.faults,
        (floor_end, end),
        WORKERS + 1,
        patient=patient,
        pressure=scene.pressure,
    )
    spans = Spans((start_ns, floor_end), (floor_end, own_end), (own_end, end))
    published = scene.case.workload == PUBLISHED
    numbers = measure(history, spans, unknown_after_s=scene.case.pace.client_timeout_s)
    if health.ok and not published:
        scene.before_ns = before(history, spans)
    if published:
        numbers = replace(numbers, cycles_per_second=numbers.own_cycles_per_second)
    recovered_s = [
        one.servers_s for one in document.measurements.recovery or () if one.servers_s is not None
    ]
    metered = {"own": (OWN, CONTENDED), "contended": (CONTENDED, END)}
    return replace(
        document,
        **shallow(numbers),
        floor=_floor(numbers, scene.floor_cpu_ns),
        generator=health,
        numbers="valid" if health.ok else "void",
        footprint=footprint(scene.readings, metered, history),
        availability=_availability(document),
        recovery_seconds=max(recovered_s, default=None),
        error_texts=error_texts(history),
    )


def _floor(numbers: Numbers, cpu_ns: int) -> documents.Floor:
    """What one client costs by itself: CPU of its process per cycle, and its acquire's latency."""
    acquire = numbers.floor_acquire_ms
    cycles = acquire.count
    return documents.Floor(cycles, cpu_ns / 1e3 / cycles if cycles else None, acquire.p50)


def _availability(document: documents.Case) -> float | None:
    measured = document.measurements.availability
    return None if measured is None else measured.fraction
