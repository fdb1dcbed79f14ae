"""The nemesis' part of ``make perf``: how fast faults begin and end.

Cutting and healing every link of five etcd nodes, freezing and thawing servers, and how long a
process that is paused as a client is stays paused.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence

import psutil
from rich.console import Console
from rich.table import Table

from bench import interruption
from clusters.base import Cluster, ClusterPlan, Cuttable, Pausable
from clusters.registry import topologies
from nemesis.staging import until

ROUNDS = 10
PAUSE_S = 0.2
Row = tuple[str, str, Sequence[float]]


def main() -> None:
    """One table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("what", "must reach", "n", "min", "median", "max", title="The nemesis, ms")
    for what, target, values in measure():
        ordered = sorted(values)
        shown = (ordered[0], ordered[len(ordered) // 2], ordered[-1])
        table.add_row(what, target, str(len(ordered)), *(f"{v:.1f}" for v in shown))
    console.print(table)


def measure() -> Iterator[Row]:
    """Every row, milliseconds."""
    with _started("etcd", 5) as cluster:
        assert isinstance(cluster, Cuttable)
        everything = cluster.edges()
        for how in ("drop", "stall", "reject"):
            cuts, heals = [], []
            for _ in range(ROUNDS):
                cuts.append(_ms(lambda: cluster.cut(everything, how)))  # noqa: B023
                heals.append(_ms(cluster.heal))
            yield f"cut all {len(everything)} links of 5 nodes, {how}", "≤ 150", cuts
            yield f"heal them, {how}", "≤ 150", heals
    with _started("redlock", 5) as cluster:
        assert isinstance(cluster, Pausable)
        pauses, thaws = [], []
        for _ in range(ROUNDS):
            pauses.append(_ms(lambda: cluster.pause([1])))
            thaws.append(_ms(lambda: cluster.unpause([1])))
        yield "pause a server", "≤ 50", pauses
        yield "unpause it", "≤ 50", thaws
    yield f"a process paused for {PAUSE_S * 1e3:g} ms: measured less declared", "± 20", _client()


def _client() -> list[float]:
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        process = psutil.Process(child.pid)
        found = []
        for _ in range(ROUNDS):
            process.suspend()
            began = time.monotonic()
            until(lambda: process.status() == psutil.STATUS_STOPPED, 1.0)
            time.sleep(max(0.0, began + PAUSE_S - time.monotonic()))
            process.resume()
            found.append(1e3 * (time.monotonic() - began - PAUSE_S))
        return found
    finally:
        child.kill()
        child.wait()


def _started(topology: str, size: int) -> Cluster:
    plan = ClusterPlan(topology, size, 3, uuid.uuid4().hex[:12], 3.0, tempfile.mkdtemp())
    return topologies()[topology].make(plan)


def _ms(work: Callable[[], object]) -> float:
    began = time.monotonic()
    work()
    return 1e3 * (time.monotonic() - began)


if __name__ == "__main__":
    interruption.arm()
    main()
