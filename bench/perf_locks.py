"""What the recipes cost beside the commands that they consist of: part of ``make perf``.

- CPU of a cycle (acquire, release) of a free key, divided by the CPU of the bare commands, sent
  over the same client library in the same process, in turns.
- Redlock's acquire, beside the third of its five answers: what it adds to what it must wait for.
- The ways to wait between two polls, under contention.

A benchmark, not a test: it prints minimum, median and maximum with n, and never fails on a time.
``bench.perf_recipe`` measures, in a process of its own that is gevent's, as a load is.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.perf_recipe import CLIENTS, HOLD_S
from bench.plan import FIRST_LOCKS, make_case
from clusters.base import ClusterPlan
from clusters.registry import topologies

PROGRAM = ("-m", "gevent.monkey", "--module", "bench.perf_recipe")


def main() -> None:
    """Every table."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    table = Table("what", "must reach", "n", "min", "median", "max", title="The locks' own cost")
    waiting = Table(
        "backoff", "grants/s", "tries per grant", "wait p50, ms", "wait p99, ms", "Jain"
    )
    waiting.title = f"{CLIENTS} clients, one key, holds of {HOLD_S * 1e3:g} ms, redis-token"
    for lock in FIRST_LOCKS:
        found = _measured(lock)
        _row(table, f"{lock} ÷ its bare commands, CPU", "≤ 1.5", found["ratios"])
        if "third" in found:
            _row(table, "redlock: acquire, ms", "", found["acquire"])
            _row(table, "redlock: third answer of the same acquires, ms", "", found["third"])
            ratio = statistics.median(found["acquire"]) / statistics.median(found["third"])
            table.add_row("redlock: acquire ÷ third answer, p50", "≤ 1.3", "", "", f"{ratio:.2f}")
        for way in found.get("waiting", ()):
            waiting.add_row(*map(str, way))
    console.print(table)
    console.print(waiting)


def _measured(lock: str) -> dict[str, Any]:
    """Starts the cluster, measures in a process of its own, removes the cluster."""
    case = make_case(lock, "none", seed=0)
    with tempfile.TemporaryDirectory() as folder:
        plan = ClusterPlan(
            topology=case.topology,
            size=case.size,
            groups=1,
            run_id=uuid.uuid4().hex[:12],
            lease_ttl_s=case.pace.lease_ttl_s,
            log_dir=folder,
        )
        with topologies()[case.topology].make(plan) as cluster:
            done = subprocess.run(
                [sys.executable, *PROGRAM, lock, json.dumps(cluster.addresses(1))],
                stdout=subprocess.PIPE,
                check=True,
            )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _row(table: Table, what: str, target: str, values: Sequence[float]) -> None:
    low, middle, high = min(values), statistics.median(values), max(values)
    table.add_row(what, target, str(len(values)), *(f"{v:.3f}" for v in (low, middle, high)))


if __name__ == "__main__":
    main()
