"""What a sidecar costs an operation: part of ``make perf``.

A library that does nothing answers from a sidecar, in each runtime that there is; a process that is
gevent's, as a worker is, asks it. One client alone gives the time that a sidecar adds to an
operation, twenty clients at once the rate that it carries. Images must have been built.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import Any, Final

from lockbench.clusters import images
from lockbench.locks.base import Address, NoObserver, new_hold_id
from lockbench.locks.shared.client_container import ContainerSidecar
from lockbench.locks.shared.library import SHARED
from lockbench.locks.shared.sidecar import Sidecar, SidecarLock
from perf.figures import Figure, console, show, told_by

PYTHON: Final = "python"
RUNTIMES: Final = (PYTHON, *images.CLIENTS)
STARTS: Final = 3
ROUNDS: Final = 7
ALONE: Final = 3_000  # operations a round
CLIENTS: Final = 20
EACH: Final = 500  # operations of each client a round
MEASURE: Final = "--measure"
FIGURES: Final = {
    "start_ms": ("its start, until the hello, ms", "≤ 5,000"),
    "p50_us": ("added to an operation, p50, µs", "≤ 150"),
    "p99_us": ("added to an operation, p99, µs", ""),
    "rate": (f"operations/s of {CLIENTS} clients", "≥ 5,000"),
    "worker_us": ("CPU of the worker's side, µs per operation", ""),
}
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
    """One table for each runtime."""
    images.ensure(images.CLIENTS, say=console().print)
    for runtime in RUNTIMES:
        program = ("-m", "gevent.monkey", "--module", "perf.sidecar", MEASURE, runtime)
        found = told_by(*program)
        figures = (Figure(*FIGURES[name], found[name], 0) for name in FIGURES)
        show(f"What a sidecar costs: {runtime}", figures)


def _start(runtime: str) -> Sidecar:
    if runtime == PYTHON:
        command = [sys.executable, "-P", "-c", NOTHING]
        return Sidecar("nothing", command, {"PYTHONPATH": str(SHARED)})
    return ContainerSidecar(runtime, "nothing")


def rounds(runtime: str) -> dict[str, list[float]]:
    """Every figure, one number a round."""
    found: dict[str, list[float]] = {name: [] for name in FIGURES}
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
        print(json.dumps(rounds(sys.argv[-1])))
    else:
        main()
