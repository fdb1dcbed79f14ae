"""What a sidecar costs an operation: part of ``make perf``.

A library that does nothing answers from a sidecar, in each runtime that there is; a process that is
gevent's, as a worker is, asks it. One client alone gives the time that a sidecar adds to an
operation, twenty clients at once the rate that it carries. Images must have been built.

A benchmark, not a test: it prints minimum, median and maximum with n, and never fails on a time.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from clusters import images
from locks.base import Address, NoObserver, new_hold_id
from locks.shared.client_container import ContainerSidecar
from locks.shared.library import SHARED
from locks.shared.sidecar import Sidecar, SidecarLock

PYTHON: Final = "python"
RUNTIMES: Final = (PYTHON, *images.CLIENTS)
STARTS: Final = 3
ROUNDS: Final = 7
ALONE: Final = 3_000  # operations a round
CLIENTS: Final = 20
EACH: Final = 500  # operations of each client a round
MEASURE: Final = "--measure"
NOTHING: Final = """
from lockbench_sidecar import Client, Granted, Released, serve

class Nothing(Client):
    def __init__(self, setup): pass
    def acquire(self, key, hold, ttl_s, wait_s): return Granted(1, 2)
    def release(self, hold, lock): return Released()
    def close(self): pass

serve("pip", Nothing)
"""


def main() -> None:
    """One table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    images.ensure(images.CLIENTS, say=console.print)
    for runtime in RUNTIMES:
        program = ("-m", "gevent.monkey", "--module", "perf.sidecar", MEASURE, runtime)
        done = subprocess.run([sys.executable, *program], stdout=subprocess.PIPE, check=True)
        console.print(_table(runtime, json.loads(done.stdout)))


def _table(runtime: str, found: dict[str, list[float]]) -> Table:
    title = f"What a sidecar costs: {runtime}"
    table = Table("what", "must reach", "n", "min", "median", "max", title=title)
    for what, target, name in (
        ("its start, until the hello, ms", "≤ 5,000", "start_ms"),
        ("added to an operation, p50, µs", "≤ 150", "p50_us"),
        ("added to an operation, p99, µs", "", "p99_us"),
        (f"operations/s of {CLIENTS} clients", "≥ 5,000", "rate"),
        ("CPU of the worker's side, µs per operation", "", "worker_us"),
    ):
        values = found[name]
        numbers = (min(values), statistics.median(values), max(values))
        table.add_row(what, target, str(len(values)), *(f"{number:,.0f}" for number in numbers))
    return table


def _start(runtime: str) -> Sidecar:
    if runtime == PYTHON:
        command = [sys.executable, "-P", "-c", NOTHING]
        return Sidecar("nothing", command, {"PYTHONPATH": str(SHARED)})
    return ContainerSidecar(runtime, "nothing")


def measure(runtime: str) -> dict[str, list[float]]:
    """Every figure, one number a round."""
    names = ("start_ms", "p50_us", "p99_us", "rate", "worker_us")
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(STARTS):
        began = time.monotonic()
        sidecar = _start(runtime)
        found["start_ms"].append(1e3 * (time.monotonic() - began))
        sidecar.close()
    sidecar = _start(runtime)
    clients = [_client(sidecar) for _ in range(CLIENTS)]
    for _ in range(ROUNDS):
        took_us = sorted(1e6 * second for second in _operations(clients[0], ALONE))
        found["p50_us"].append(took_us[len(took_us) // 2])
        found["p99_us"].append(took_us[len(took_us) * 99 // 100])
        began, cpu_ns = time.monotonic(), time.process_time_ns()
        threads = [threading.Thread(target=_operations, args=(one, EACH)) for one in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        count = CLIENTS * EACH
        found["rate"].append(count / (time.monotonic() - began))
        found["worker_us"].append((time.process_time_ns() - cpu_ns) / 1e3 / count)
    sidecar.close()
    return found


def _client(sidecar: Sidecar) -> SidecarLock:
    nodes = [Address("127.0.0.1", 9)]
    return SidecarLock(sidecar, nodes, timeout_s=1, ttl_s=3, observer=NoObserver(), safe=True)


def _operations(client: SidecarLock, count: int) -> list[float]:
    """How long each took, in seconds; acquire and release in turns."""
    took = []
    for _ in range(count // 2):
        begin = time.perf_counter()
        answer: Any = client.acquire("k", hold_id=new_hold_id(), ttl_s=3, wait_s=0)
        between = time.perf_counter()
        client.release(answer.hold)
        took += [between - begin, time.perf_counter() - between]
    return took


if __name__ == "__main__":
    if MEASURE in sys.argv:
        print(json.dumps(measure(sys.argv[-1])))
    else:
        main()
