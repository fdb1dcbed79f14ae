"""What the load generator itself can carry: part of ``make perf``.

- 1,000 clients in two workers: that they run and end cleanly, and the memory of all processes of
  the load (USS, the largest sum seen).
- The lag of a worker's event loop while it uses about half a core: open loads on keys that nobody
  shares, at rates around the one that does so. One worker, so that a machine of two cores has room
  for the servers, the links and the guarded resource beside it: what a process waits for a core is
  no lag of its own, and how busy the machine was is printed with it.

A benchmark, not a test: it prints what was measured, and never fails on a number.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from bench import interruption
from bench.plan import make_case, resolve
from bench.suite import run_cases
from bench.watch import generator_health
from clusters.base import Cluster, ClusterPlan
from clusters.registry import topologies
from workloads.fleet import Fleet
from workloads.fork_server import RUN_ENVIRONMENT, ForkServer
from workloads.load import Load, Pace, Phases

LOOK_S: Final = 0.25
CLIENTS: Final = 1000
KEYS: Final = 500
# A cycle of redis-token takes a worker some 300 to 450 µs of CPU.
RATES: Final = (900, 1_200, 1_500)
PHASES: Final = Phases(floor_s=1, own_s=1, contended_s=10)
FEW: Final = 32


def main() -> None:
    """One table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    quiet = Console(stderr=True, quiet=True)
    table = Table("what", "must reach", "measured", title="The load generator")
    many, peak = _measured(quiet, clients=CLIENTS, keys=KEYS)
    table.add_row(f"{CLIENTS:,} clients, two workers: memory, GiB", "≤ 4", f"{peak / 2**30:.2f}")
    table.add_row("the same: how the case ended", "as expected", str(many["judgement"]))
    for worker in half_busy():
        table.add_row(
            f"lag of the event loop, p99, ms, at {worker.rate}/s",
            "≤ 5 at 50 % CPU",
            f"{worker.lag_ms_p99:.1f} at {worker.cpu_percent:.0f} %, "
            f"machine {worker.machine_percent:.0f} %",
        )
    console.print(table)


@dataclass(frozen=True, slots=True)
class Worker:
    """One worker under an open load; shares of a core, and of all of them."""

    rate: int
    lag_ms_p99: float
    cpu_percent: float
    machine_percent: float


def half_busy() -> Iterator[Worker]:
    """One worker at every rate, on one cluster."""
    case = make_case("redis-token", "none", seed=0)
    run_id = uuid.uuid4().hex[:12]
    with tempfile.TemporaryDirectory() as name, ForkServer(run_id) as fork_server:
        plan = ClusterPlan(
            topology=case.topology,
            size=case.size,
            groups=2,
            run_id=run_id,
            lease_ttl_s=case.pace.lease_ttl_s,
            log_dir=name,
        )
        with topologies()[case.topology].make(plan) as cluster:
            for rate in RATES:
                with Fleet(Path(name) / str(rate), run_id, 1, fork_server) as fleet:
                    yield _worker(fleet, cluster, rate)


def _worker(fleet: Fleet, cluster: Cluster, rate: int) -> Worker:
    fleet.launch()
    load = Load(
        lock="redis-token",
        keys=FEW,
        clients=FEW,
        solo=0,
        rivals=0,
        workers=1,
        phases=PHASES,
        pace=Pace(),
        seed=0,
        nodes=tuple(tuple(cluster.addresses(group)) for group in (1, 2)),
        resource=fleet.resource,
        history=str(fleet.history),
        logs=str(fleet.logs),
        control=str(fleet.control_file),
        master_port=fleet.master_port,
        workload=f"mutex:rate={rate}",
    )
    fleet.begin(load)
    start_ns = fleet.go()
    own_end_ns = start_ns + int(1e9 * (PHASES.floor_s + PHASES.own_s))
    end_ns = start_ns + int(1e9 * PHASES.total_s)
    while time.monotonic_ns() < end_ns:
        fleet.check()
        time.sleep(LOOK_S)
    health: Any = generator_health(fleet.logs, (), (own_end_ns, end_ns), 2)
    worker = health["workers"][1]
    return Worker(rate, worker["lag_ms_p99"], worker["cpu_percent_mean"], health["machine_percent"])


def _measured(console: Console, *, clients: int, keys: int) -> tuple[dict[str, Any], int]:
    """The case's document, and the most bytes that the processes of its load had."""
    case = make_case("redis-token", "none", seed=0)
    case = resolve(replace(case, clients=clients, keys=keys))
    most, over = 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(LOOK_S):
            most = max(most, _bytes_of_load())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        finished = run_cases([case], "perf-load", console)
    finally:
        over.set()
        watcher.join()
    document: dict[str, Any] = finished.results["cases"][0]
    return document, most


def _bytes_of_load() -> int:
    """What the processes that this one has started, and theirs, have for themselves."""
    total = 0
    for process in psutil.Process(os.getpid()).children(recursive=True):
        try:
            if RUN_ENVIRONMENT in process.environ():
                total += int(process.memory_full_info().uss)
        except psutil.Error:
            continue
    return total


if __name__ == "__main__":
    interruption.arm()
    main()
