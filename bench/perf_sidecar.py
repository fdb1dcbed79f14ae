"""What a sidecar costs an operation: part of ``make perf``.

A library that does nothing answers from a sidecar; a process that is gevent's, as a worker is, asks
it. One client alone gives the time that a sidecar adds to an operation, twenty clients at once the
rate that it carries.

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

from locks.base import Address, NoObserver, new_hold_id
from locks.library import SHARED
from locks.sidecar import Sidecar, SidecarLock

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
    def release(self, key, hold): return Released()
    def close(self): pass

serve("pip", Nothing)
"""


def main() -> None:
    """One table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    program = ("-m", "gevent.monkey", "--module", "bench.perf_sidecar", MEASURE)
    done = subprocess.run([sys.executable, *program], stdout=subprocess.PIPE, check=True)
    found: dict[str, list[float]] = json.loads(done.stdout)
    table = Table("what", "must reach", "n", "min", "median", "max", title="A sidecar's own cost")
    for what, target, name in (
        ("added to an operation, p50, µs", "≤ 150", "p50_us"),
        ("added to an operation, p99, µs", "", "p99_us"),
        (f"operations/s of {CLIENTS} clients", "≥ 5,000", "rate"),
        ("CPU of the worker's side, µs per operation", "", "worker_us"),
    ):
        values = found[name]
        numbers = (min(values), statistics.median(values), max(values))
        table.add_row(what, target, str(len(values)), *(f"{number:,.0f}" for number in numbers))
    console.print(table)


def measure() -> dict[str, list[float]]:
    """Every figure, one number a round."""
    sidecar = Sidecar("nothing", [sys.executable, "-P", "-c", NOTHING], {"PYTHONPATH": str(SHARED)})
    found: dict[str, list[float]] = {"p50_us": [], "p99_us": [], "rate": [], "worker_us": []}
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
        print(json.dumps(measure()))
    else:
        main()
