"""``make perf``: measures the bench itself against the anchors of its design, side by side.

A benchmark, not a test: it prints minimum, median and maximum with n, and never fails on a time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench import interruption
from bench.plan import FIRST_LOCKS, WORKERS, make_case
from clusters.base import ClusterPlan
from clusters.registry import topologies
from history.op import F, Type
from history.recorder import Recorder
from perf import checker as perf_checker
from perf import load as perf_load
from perf import locks as perf_locks
from perf import nemesis as perf_nemesis
from perf import sidecar as perf_sidecar
from workloads.fleet import Fleet
from workloads.load import ENVIRONMENT, WORKER_ENVIRONMENT, Load

RECORD_ROUNDS, RECORDS = 9, 100_000
STARTS = 5
PAIRS, TURNS = 20, 8


def main() -> None:
    """Everything, one table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("what", "must reach", "n", "min", "median", "max", title="The bench itself")
    _row(table, "recording one operation, µs CPU", "≤ 1.5", recording_us())
    for lock in FIRST_LOCKS:
        ratios, up_s = harness(lock)
        _row(table, f"harness ÷ bare gevent loop, CPU, {lock}", "≤ 1.15", ratios)
        _row(table, f"cluster of {lock} up and verified, s", UP_S[lock], up_s)
    console.print(table)
    perf_load.main()
    perf_locks.main()
    perf_sidecar.main()
    perf_nemesis.main()
    perf_checker.main()


UP_S = {"redis-token": "≤ 1.5", "redlock": "≤ 3", "etcd": "≤ 2", "zookeeper": "≤ 4"}


def recording_us() -> list[float]:
    """CPU per invoke and complete, in microseconds, one number per round."""
    spent = []
    for _ in range(RECORD_ROUNDS):
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(Recorder(Path(folder), 1)) as recorder,
        ):
            begin = time.process_time_ns()
            for number in range(RECORDS):
                handle = recorder.invoke(1, F.ACQUIRE, "k0", hold=number)
                recorder.complete(handle, Type.OK, fence=number, sent_ns=1, valid_until_ns=2)
            spent.append((time.process_time_ns() - begin) / 1e3 / RECORDS)
    return spent


def harness(lock: str) -> tuple[list[float], list[float]]:
    """CPU ratios of a cycle through the harness to the bare calls, and start times in seconds."""
    case = make_case(lock, "none", seed=0)
    up_s: list[float] = []
    ratios: list[float] = []
    for start in range(STARTS):
        with tempfile.TemporaryDirectory() as name:
            plan = ClusterPlan(
                topology=case.topology,
                size=case.size,
                groups=WORKERS + 1,
                run_id=uuid.uuid4().hex[:12],
                lease_ttl_s=case.pace.lease_ttl_s,
                log_dir=name,
            )
            begin = time.monotonic()
            with topologies()[case.topology].make(plan) as cluster:
                up_s.append(time.monotonic() - begin)
                if start == STARTS - 1:
                    ratios = _ratios(lock, Path(name), cluster.addresses(1))
    return ratios, up_s


def _ratios(lock: str, folder: Path, nodes: Sequence[tuple[str, int]]) -> list[float]:
    case = make_case(lock, "none", seed=0)
    with Fleet(folder, "perf", WORKERS) as fleet:
        fleet.launch()
        Load(
            lock=lock,
            keys=1,
            clients=1,
            solo=0,
            rivals=0,
            workers=0,
            phases=case.phases,
            pace=case.pace,
            seed=0,
            nodes=(tuple(nodes),),
            resource=fleet.resource,
            history=str(fleet.history),
            logs=str(fleet.logs),
            control=str(fleet.control_file),
            master_port=fleet.master_port,
        ).save(fleet.load_file)
        measured = subprocess.run(
            [sys.executable, "-m", "workloads.cost", str(PAIRS), str(TURNS)],
            env=os.environ | {ENVIRONMENT: str(fleet.load_file), WORKER_ENVIRONMENT: "0"},
            stdout=subprocess.PIPE,
            check=True,
        )
    spent = json.loads(measured.stdout)
    return [h / b for h, b in zip(spent["harness"], spent["bare"], strict=True)]


def _row(table: Table, what: str, target: str, values: Sequence[float]) -> None:
    low, middle, high = min(values), statistics.median(values), max(values)
    table.add_row(what, target, str(len(values)), *(f"{v:.2f}" for v in (low, middle, high)))


if __name__ == "__main__":
    interruption.arm()
    main()
