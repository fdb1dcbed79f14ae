"""One case from top to bottom: processes, cluster, load, fault, heal, judgement.

``run_case`` reads as the story of a case. Whatever happens, every process and container of the case
is gone when it returns or raises.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from lockbench.bench import interruption
from lockbench.bench.crashes import crashes, shown
from lockbench.bench.document import document_of
from lockbench.bench.footprint import Meter
from lockbench.bench.guarded import read_written, store_cluster_of, with_store
from lockbench.bench.outside import Watch, as_faults, stall_s_max
from lockbench.bench.plan import (
    PUBLISHED,
    Case,
    cluster_plan_of,
    machines_of,
    topology_of,
    workers_of,
)
from lockbench.bench.progress import Progress
from lockbench.bench.room import full
from lockbench.bench.scene import CONTENDED, END, FLOOR, OWN, QUIET, RATES, PlayedStep, Scene
from lockbench.bench.usable import why_unusable
from lockbench.clusters.base import HARNESS, Cluster, ClusterError, Measurable, Recorded
from lockbench.clusters.engine.removal import left_behind, remove_run
from lockbench.history.clocks import STEP_S_MAX, wall_minus_monotonic_ns
from lockbench.history.columns import Ints
from lockbench.history.recording import write_ended, write_faults, write_meta
from lockbench.history.service import write_service
from lockbench.locks.shared.tenures import service_of
from lockbench.nemesis.base import OF_LOCK, SERVERS, Arena, Injection
from lockbench.nemesis.conductor import Played, TargetClaims, play
from lockbench.nemesis.registry import faults
from lockbench.results import documents
from lockbench.results.rates import Block
from lockbench.workloads.audit import audit
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.fork_server import ForkServer
from lockbench.workloads.load import NOTHING, Load, LocustsOwn, Phases
from lockbench.workloads.worker_process import LoadError

POLL_S = 0.1
# How long clients may take to finish their last cycle, beside waiting and holding.
DRAIN_S = 2.0
# Longer than the longest lease of a library, and the time until a service notices its end.
QUIET_S_MAX = 90.0
LINK_ROUNDS = 300
# What the nemesis may take to heal when the run is interrupted: the cluster goes as a whole.
GIVING_UP_S = 0.5
# Solo clients and rivals beside the contending ones.
EXTRAS = 2


@dataclass
class Outcome:
    """What came of a case."""

    document: documents.CaseResult
    # see lockbench.results.numbers.before; empty where there are no numbers
    before_ns: Mapping[str, Ints]
    blocks: Sequence[Block] = ()  # of its rates


def run_case(
    case: Case,
    folder: Path,
    *,
    run_id: str,
    fork_server: ForkServer,
    on_progress: Callable[[Progress], None],
    locust: LocustsOwn = NOTHING,
    shown_before: frozenset[str] = frozenset(),
    unable: str | None = None,
    beside: str | None = None,
) -> Outcome:
    """Runs one case into ``folder``. ``unable``: why it cannot run. ``beside``: what else the bench
    does meanwhile, which voids the numbers. Raises KeyboardInterrupt after having cleared
    everything away; any failure of cluster, load or nemesis becomes part of the document."""
    began = time.monotonic()
    scene = Scene(case, folder, run_id, fork_server, locust, beside)
    failure: str | None = None
    try:
        try:
            scene.unable = unable or why_unusable(case.system)
            if scene.unable is None:
                _play_scene(scene, on_progress)
        except (ClusterError, LoadError) as error:
            failure = str(error)
        except Exception as error:  # noqa: BLE001 - one case must not take the others with it
            failure = f"{type(error).__name__}: {error}"
        if failure is not None and (why := full(folder)):
            failure = f"{why}: {failure}"
        document = document_of(scene, failure or scene.failure, shown_before)
    finally:
        with interruption.held():
            scene.cleared()
    said = crashes(folder / "logs", servers_struck=_servers_struck(case))
    scene.timings.total_s = time.monotonic() - began
    document = replace(document, crashes=shown(said), seconds=asdict(scene.timings))
    return Outcome(document, scene.before_ns, scene.blocks)


def _servers_struck(case: Case) -> bool:
    return any(SERVERS in faults()[i.fault].holds_of(dict(i.parameters)) for i in case.injections)


def _play_scene(scene: Scene, on_progress: Callable[[Progress], None]) -> None:
    case, folder, timings = scene.case, scene.folder, scene.timings
    if left := remove_run(scene.run_id):
        raise ClusterError(f"of an earlier case: {left_behind(left)}")
    progress = Progress(folder / "history", on_progress)
    progress.phase("starting")
    cluster = topology_of(case).make(cluster_plan_of(case, scene.run_id, folder / "logs"))
    beside = store_cluster_of(case, scene.run_id, folder / "logs")
    machines, workers = machines_of(case), workers_of(case)
    with Fleet(
        folder,
        scene.run_id,
        workers,
        scene.fork_server,
        machines=machines,
        lock=case.lock,
    ) as fleet:
        fleet.launch()
        try:
            cluster.start()
            if beside is not None:
                beside.start()
            timings.cluster_s = progress.seconds()
            load = load_of(case, fleet, cluster, case.phases, scene.locust)
            scene.load = load = with_store(load, case, cluster, beside)
            wall_ns = wall_minus_monotonic_ns()
            write_meta(
                fleet.history,
                load.objects(),
                wall_minus_monotonic_ns=wall_ns,
                ended=False,
                machines={machine.name: machine.workers for machine in machines},
            )
            fleet.begin(load)
            if isinstance(cluster, Measurable):
                scene.link_us = dict(cluster.link_overhead_us(LINK_ROUNDS))
            timings.clients_s = progress.seconds() - timings.cluster_s
            watch = Watch(fleet, cluster, workers, _stall_s_max(case), beside=beside)
            try:
                with watch:
                    _under_load(scene, fleet, (cluster, beside or cluster), progress, watch)
                    scene.failure = scene.failure or read_written(case, load, cluster, beside)
                    if case.system.kind == "none":
                        _audit(scene, fleet, cluster)
                # Of many grants this keeps the processor busy, so that the watch would accuse it.
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
                scene.clearing = threading.Thread(target=_clear, args=(scene, cluster, beside))
                scene.clearing.start()


def _clear(scene: Scene, cluster: Cluster, beside: Cluster | None) -> None:
    scene.left = [left for one in (cluster, beside) if one is not None for left in one.stop()]


def _under_load(
    scene: Scene,
    fleet: Fleet,
    clusters: tuple[Cluster, Cluster],
    progress: Progress,
    watch: Watch,
) -> None:
    """The load runs in processes of its own, the nemesis in a thread; this thread watches. The
    clusters are that of the lock and that of the store."""
    case = scene.case
    cluster, of_store = clusters
    start_ns = scene.start_ns = fleet.go()
    floor_ns, contended_ns, end_ns, _ = case.phases.ends_ns(start_ns)
    stop = threading.Event()
    played: list[Played] = []
    meter = Meter(cluster)
    scene.readings = meter.readings
    claims = TargetClaims(fleet)

    def conduct(injection: Injection) -> None:
        played.append(
            play(
                faults()[injection.fault],
                Arena(
                    cluster if injection.strikes == OF_LOCK else of_store,
                    fleet,
                    injection,
                    case.pace.lease_ttl_s,
                ),
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
        entered = None
        while (now_ns := time.monotonic_ns()) < end_ns:
            _raise_if_over(fleet, watch)
            phase = FLOOR if now_ns < floor_ns else OWN if now_ns < contended_ns else CONTENDED
            if phase != entered:
                watch.note_processors()
                entered = phase
            progress.phase(phase, left_s=(end_ns - now_ns) / 1e9)
            if phase != FLOOR:
                meter.read(phase)
            time.sleep(POLL_S)
        watch.note_processors()
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
    _at_rates(scene, fleet, progress, watch)
    drained = time.monotonic() + _drain_s(case)
    while fleet.busy() and time.monotonic() < drained:
        interruption.raise_if_asked()
        time.sleep(POLL_S / 10)
    if scene.failure is None and scene.load is not None and case.system.kind != "none":
        _quiet(scene.load, fleet, progress, watch)


def _raise_if_over(fleet: Fleet, watch: Watch) -> None:
    """Where there is no use in going on: the run is interrupted, or something of it is gone."""
    interruption.raise_if_asked()
    fleet.raise_if_failed()
    watch.raise_if_lasting()


def _at_rates(scene: Scene, fleet: Fleet, progress: Progress, watch: Watch) -> None:
    """Watches the clients work at one rate after the other, and tells them what they carried."""
    load, start_ns = scene.load, scene.start_ns
    if load is None or start_ns is None or not load.rates.steps:
        return
    control = fleet.control
    end_ns = load.phases.ends_ns(start_ns)[3]

    def until(at_ns: int) -> None:
        while (left_s := (at_ns - time.monotonic_ns()) / 1e9) > 0:
            _raise_if_over(fleet, watch)
            progress.phase(RATES, left_s=left_s + (end_ns - at_ns) / 1e9)
            time.sleep(min(left_s, POLL_S))

    steps = zip(load.rates.steps, load.windows_ns(start_ns), strict=True)
    for step, (_, measured_ns, step_end_ns) in steps:
        until(measured_ns)
        watch.note_processors()
        carried, at_ns = fleet.carried(), time.monotonic_ns()
        until(step_end_ns)
        watch.note_processors()
        if step.saturated:
            per_s = (fleet.carried() - carried) * 1e9 / (time.monotonic_ns() - at_ns)
            # Nothing at all is a rate at which nothing arrives.
            control.carried_per_1000_s = max(1, round(1000 * per_s))
            control.saturated += 1
        offered = step.rate or step.share * control.carried_per_1000_s / 1000 or None
        scene.steps.append(PlayedStep(step.share or None, offered, measured_ns, step_end_ns))


def _quiet(load: Load, fleet: Fleet, progress: Progress, watch: Watch) -> None:
    """Asks for every key, to see that it is free (``lockbench.checker.leaks``)."""
    progress.phase(QUIET)
    fleet.ask_for_all()
    limit = time.monotonic() + QUIET_S_MAX
    while not fleet.asked_for_all(load) and time.monotonic() < limit:
        _raise_if_over(fleet, watch)
        time.sleep(POLL_S / 10)


def _drain_s(case: Case) -> float:
    """How long a client may wait for its last lock, and then hold it."""
    return DRAIN_S + case.pace.wait_s + _longest_job_s(case)


def _longest_job_s(case: Case) -> float:
    """Of a workload that asks for as many leases; 0 for one that holds as the pace says."""
    return case.asked.leases * case.pace.lease_ttl_s


def _stall_s_max(case: Case) -> float:
    pace = case.pace
    hold_s = max(pace.hold_s, pace.aimed_hold_s, _longest_job_s(case))
    return stall_s_max(pace.lease_ttl_s, pace.client_timeout_s, hold_s)


def _clock_step(wall_ns: int) -> str | None:
    """Some servers count leases by the wall clock: a step of it that no fault made voids a case."""
    step_s = (wall_minus_monotonic_ns() - wall_ns) / 1e9
    if abs(step_s) <= STEP_S_MAX:
        return None
    return f"this machine's wall clock was set by {step_s:+.3f} s during the case"


def _audit(scene: Scene, fleet: Fleet, cluster: Cluster) -> None:
    """What was done without a lock is judged by what the store shows in the end."""
    pace = scene.case.pace
    try:
        nodes = cluster.addresses(HARNESS)
        audit(fleet.history, scene.case.system, nodes, pace.client_timeout_s)
    except OSError as error:
        scene.failure = scene.failure or str(error)


def _read_record(scene: Scene, fleet: Fleet, cluster: Cluster, wall_ns: int) -> None:
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
    ahead = sorted((wall_ns, wall_minus_monotonic_ns()))
    keys = scene.load.objects() if scene.load is not None else ()
    service = service_of(logs, entry, cluster.record_name, keys, (ahead[0], ahead[1]))
    write_service(fleet.history, service)
    scene.timings.record_s = time.monotonic() - began


def clients_of(case: Case) -> int:
    """All clients of a case: those that contend, the solo ones, the rivals and the victim, and
    those of the rates."""
    extras = 0 if case.workload == PUBLISHED else EXTRAS
    rivals = max(extras, (case.system.permits or 0) + 1) if extras else 0
    return case.clients + extras + rivals + 1 + case.rates.clients


def load_of(
    case: Case,
    fleet: Fleet,
    cluster: Cluster,
    phases: Phases,
    locust: LocustsOwn = NOTHING,
) -> Load:
    """The load of a case on a running cluster, ready to be handed to Locust's processes."""
    extras = 0 if case.workload == PUBLISHED else EXTRAS
    workers = workers_of(case)
    return Load(
        lock=case.lock,
        keys=case.keys,
        clients=case.clients,
        solo=extras,
        # More than have room in a semaphore beside the victim.
        rivals=max(extras, (case.system.permits or 0) + 1) if extras else 0,
        workers=workers,
        phases=phases,
        pace=case.pace,
        seed=case.seed,
        nodes=tuple(tuple(cluster.addresses(group)) for group in range(1, workers + 2)),
        resource=fleet.resource,
        folder=str(fleet.folder.resolve()),
        master_port=fleet.master_port,
        workload=case.workload,
        locust=locust,
        rates=case.rates,
        key_prefix=cluster.key_prefix,
        elsewhere=sum(len(machine.workers) for machine in machines_of(case)),
    )


def _join(*threads: threading.Thread, limit_s: float | None = None) -> None:
    """Waits for all, together for ``limit_s`` at most. Without a limit, each ends by itself."""
    end = None if limit_s is None else time.monotonic() + limit_s
    for thread in threads:
        if thread.ident is not None:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))
