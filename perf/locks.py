"""What the recipes cost beside the commands that they consist of: part of ``make perf``.

- CPU of a cycle (acquire, release) of a free key, divided by the CPU of the bare commands
  (``perf.bare``), sent over the same client library in the same process, in turns.
- Redlock's acquire, beside the third of its five answers: what it adds to what it must wait for.
- The ways to wait between two polls, under contention.

A benchmark, not a test: it prints minimum, median and maximum with n, and never fails on a time.
``perf.recipe`` measures, in a process of its own that is gevent's, as a load is.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

import psutil
from rich.console import Console
from rich.table import Table

from bench import interruption
from bench.plan import make_case
from clusters.base import ClusterPlan
from clusters.registry import topologies
from locks.registry import find
from perf.bare import recipes
from perf.recipe import CLIENTS, HOLD_S, TURN_S

PROGRAM = ("-m", "gevent.monkey", "--module", "perf.recipe")


def main(locks: Iterable[str] | None = None) -> None:
    """Every table, of these recipes (None: all)."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    cost = Table("recipe", "must reach", "n", "min", "median", "max", "bare, µs", "recipe, µs")
    cost.title = f"Client's CPU of an acquire and release ÷ its bare commands, turns of {TURN_S} s"
    third = Table("what", "must reach", "n", "min", "median", "max", title="Redlock's acquire")
    waiting = Table(
        "backoff", "grants/s", "tries per grant", "wait p50, ms", "wait p99, ms", "Jain"
    )
    waiting.title = f"{CLIENTS} clients, one key, holds of {HOLD_S * 1e3:g} ms, redis-token"
    psutil.cpu_percent()
    for lock, found in _measured(recipes() if locks is None else locks):
        _add_cost(cost, lock, found["pairs"])
        if "third" in found:
            _add_third(third, found["acquire"], found["third"])
        for way in found.get("waiting", ()):
            waiting.add_row(*map(str, way))
    cost.caption = f"the machine was {psutil.cpu_percent():.0f} % busy, this measurement included"
    for table in (cost, third, waiting):
        if table.row_count:
            console.print(table)
    for recipe, others in recipes().items():
        for lock in others:
            console.print(
                f"{lock}: not measured, the recipe is {recipe}'s; only the servers are set up "
                "differently"
            )


def _measured(locks: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What was measured of each; those of one topology share a cluster."""
    for _, group in groupby(locks, key=lambda lock: find(lock).topologies[0]):
        sharing = list(group)
        case = make_case(sharing[0], "none", seed=0)
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
                nodes = json.dumps(cluster.addresses(1))
                for lock in sharing:
                    yield lock, _in_own_process(lock, nodes)


def _in_own_process(lock: str, nodes: str) -> dict[str, Any]:
    command = [sys.executable, *PROGRAM, lock, nodes]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def _add_cost(table: Table, lock: str, pairs: Sequence[tuple[float, float]]) -> None:
    ratios = [recipe / bare for bare, recipe in pairs]
    bare_us, recipe_us = (statistics.median(side) for side in zip(*pairs, strict=True))
    spread = (min(ratios), statistics.median(ratios), max(ratios))
    numbers = [f"{ratio:.2f}" for ratio in spread]
    table.add_row(lock, "≤ 1.5", str(len(ratios)), *numbers, f"{bare_us:.0f}", f"{recipe_us:.0f}")


def _add_third(table: Table, acquires: Sequence[float], thirds: Sequence[float]) -> None:
    for what, values in (("acquire, ms", acquires), ("third answer to the same, ms", thirds)):
        spread = (min(values), statistics.median(values), max(values))
        table.add_row(what, "", str(len(values)), *(f"{value:.3f}" for value in spread))
    ratio = statistics.median(acquires) / statistics.median(thirds)
    table.add_row("acquire ÷ third answer, of the medians", "≤ 1.3", "", "", f"{ratio:.2f}", "")


if __name__ == "__main__":
    interruption.arm()
    main()
