"""What the load generator itself can carry: part of ``make perf``.

- 1,000 clients in two workers: that they run and end cleanly, and the memory of all processes of
  the load (USS, the largest sum seen).
- The lag of a worker's event loop while it uses about half a core: an open load at a rate that does
  so.

A benchmark, not a test: it prints what was measured, and never fails on a number.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import replace
from typing import Any, Final

import psutil
from rich.console import Console
from rich.table import Table

from bench.plan import make_case, resolve
from bench.suite import run_cases
from workloads.nursery import RUN_ENVIRONMENT

LOOK_S: Final = 0.25
CLIENTS: Final = 1000
KEYS: Final = 500
# Two workers of redis-token, some 450 µs of CPU a cycle, are half busy at this rate.
HALF_BUSY_RATE: Final = 1_500


def main() -> None:
    """One table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    quiet = Console(stderr=True, quiet=True)
    table = Table("what", "must reach", "measured", title="The load generator")
    many, peak = _measured(quiet, clients=CLIENTS, keys=KEYS)
    table.add_row(f"{CLIENTS:,} clients, two workers: memory, GiB", "≤ 4", f"{peak / 2**30:.2f}")
    table.add_row("the same: how the case ended", "as expected", str(many["judgement"]))
    half, _ = _measured(quiet, clients=64, keys=200, workload=f"mutex:rate={HALF_BUSY_RATE}")
    workers = half["generator"]["workers"][1:]
    table.add_row(
        "lag of the event loop, p99, ms, and CPU of the same worker, %",
        "≤ 5 at 50",
        ", ".join(f"{w['lag_ms_p99']:.1f} at {w['cpu_percent_mean']:.0f}" for w in workers),
    )
    console.print(table)


def _measured(
    console: Console, *, clients: int, keys: int, workload: str = "mutex"
) -> tuple[dict[str, Any], int]:
    """The case's document, and the most bytes that the processes of its load had."""
    case = make_case("redis-token", "none", seed=0, workload=workload)
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
    main()
