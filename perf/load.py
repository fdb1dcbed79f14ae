"""What the load generator itself can carry: part of ``make perf``.

- 1,000 clients in two workers: that they run and end cleanly, and the memory of all processes of
  the load (USS, the largest sum seen).
- The lag of a worker's event loop while it uses about half a core: open loads on keys that nobody
  shares, at rates around the one that does so. One worker, so that a machine of two cores has room
  for the servers, the links and the guarded resource beside it: what a process waits for a core is
  no lag of its own, and how busy the machine was is printed with it.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import psutil
from rich.console import Console

from lockbench.bench import interruption
from lockbench.bench.generator import generator_health
from lockbench.bench.plan import make_case, resolve
from lockbench.bench.run import load_of
from lockbench.bench.suite import run_cases
from lockbench.clusters.base import Cluster
from lockbench.results.documents import Generator
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.fork_server import RUN_ENVIRONMENT, ForkServer
from lockbench.workloads.load import Phases
from perf.figures import Figure, console, running, show

LOCK: Final = "redis-token"
LOOK_S: Final = 0.25
CLIENTS: Final = 1000
KEYS: Final = 500
# A cycle of redis-token takes a worker some 300 to 450 µs of CPU.
RATES: Final = (900, 1_200, 1_500)
PHASES: Final = Phases(floor_s=1, own_s=1, contended_s=10)
FEW: Final = 32


def main() -> None:
    """One table, and how the case of many clients ended."""
    judgement, most_bytes = many_clients()
    memory = f"{CLIENTS:,} clients, two workers: memory, GiB"
    show("The load generator", [Figure(memory, "≤ 4", [most_bytes / 2**30]), *half_busy()])
    console().print(f"the case of {CLIENTS:,} clients ended: {judgement}")


def half_busy() -> Iterator[Figure]:
    """One worker at every rate, on one cluster."""
    topology = make_case(LOCK, "none", seed=0).topology
    with (
        tempfile.TemporaryDirectory() as folder,
        running(topology) as cluster,
        ForkServer(cluster.plan.run_id) as fork_server,
    ):
        for rate in RATES:
            place = Path(folder) / str(rate)
            with Fleet(place, cluster.plan.run_id, 1, fork_server) as fleet:
                health = _health(fleet, cluster, rate)
            worker, machine = health.workers[1], health.machine_percent
            assert worker.lag_ms_p99 is not None
            assert worker.cpu_percent_mean is not None
            assert machine is not None
            yield Figure(
                f"lag of the event loop, p99, ms, at {rate}/s",
                "≤ 5 at 50 % CPU",
                [worker.lag_ms_p99],
                1,
                {"CPU, %": [worker.cpu_percent_mean], "machine, %": [machine]},
            )


def _health(fleet: Fleet, cluster: Cluster, rate: int) -> Generator:
    fleet.launch()
    case = make_case(LOCK, "none", seed=0, workload=f"mutex:rate={rate}")
    usual = load_of(case, fleet, cluster, PHASES)
    load = replace(usual, keys=FEW, clients=FEW, solo=0, rivals=0, workers=1, nodes=usual.nodes[:2])
    fleet.begin(load)
    start_ns = fleet.go()
    _, own_end_ns, end_ns, _ = PHASES.ends_ns(start_ns)
    while time.monotonic_ns() < end_ns:
        fleet.raise_if_failed()
        time.sleep(LOOK_S)
    return generator_health(fleet.logs, (), (own_end_ns, end_ns), 2)


def many_clients() -> tuple[str | None, int]:
    """How the case was judged, and the most bytes that the processes of its load had."""
    case = resolve(replace(make_case(LOCK, "none", seed=0), clients=CLIENTS, keys=KEYS))
    most, over = 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not over.wait(LOOK_S):
            most = max(most, _bytes_of_load())

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        finished = run_cases([case], "perf-load", Console(stderr=True, quiet=True))
    finally:
        over.set()
        watcher.join()
    return finished.results.cases[0].judgement, most


def _bytes_of_load() -> int:
    """What the processes that this one has started, and theirs, have for themselves."""
    total = 0
    for process in psutil.Process().children(recursive=True):
        try:
            if RUN_ENVIRONMENT in process.environ():
                total += int(process.memory_full_info().uss)
        except psutil.Error:
            continue
    return total


if __name__ == "__main__":
    interruption.arm()
    main()
