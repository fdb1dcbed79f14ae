"""What every part of ``make perf`` shares: a cluster to measure on, a stopwatch, the printed table.

Benchmarks, not tests: minimum, median and maximum are printed with n, and nothing fails on a time.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from lockbench.bench.plan import WORKERS
from lockbench.clusters.base import Cluster, ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.workloads.load import Pace


@dataclass(frozen=True, slots=True)
class Figure:
    """One line: every value that was measured, and what must be reached. ``digits`` are shown of
    values below 100; of the values ``beside``, by the name of their column, the median is shown."""

    what: str
    target: str
    values: Sequence[float]
    digits: int = 2
    beside: Mapping[str, Sequence[float]] = field(default_factory=dict)


def console() -> Console:
    """As wide as the terminal, or as the widest table."""
    return Console(width=None if sys.stdout.isatty() else 140)


def show(title: str, figures: Iterable[Figure], caption: Callable[[], str] = str) -> None:
    """Measures and prints; ``caption`` is asked for when everything was measured."""
    found = list(figures)
    if not found:
        return
    beside = list(dict.fromkeys(name for figure in found for name in figure.beside))
    table = Table("what", "must reach", "n", "min", "median", "max", *beside, title=title)
    for figure in found:
        values = [min(figure.values), statistics.median(figure.values), max(figure.values)]
        table.add_row(
            figure.what,
            figure.target,
            str(len(figure.values)),
            *(_number(value, figure.digits) for value in values),
            *(
                _number(statistics.median(figure.beside[name]), 2) if name in figure.beside else ""
                for name in beside
            ),
        )
    table.caption = caption()
    console().print(table)


def _number(value: float, digits: int) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.{digits}f}"


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Milliseconds of one run, by the wall clock and of this process' CPU."""
    gc.collect()
    wall, cpu = perf_counter(), process_time()
    run()
    return 1e3 * (perf_counter() - wall), 1e3 * (process_time() - cpu)


@contextmanager
def running(topology: str, size: int | None = None) -> Iterator[Cluster]:
    """A cluster that is up, with a client group for every worker of a load."""
    known = topologies()[topology]
    with tempfile.TemporaryDirectory() as logs:
        plan = ClusterPlan(
            topology=topology,
            size=size or known.default_size,
            groups=WORKERS + 1,
            run_id=uuid.uuid4().hex[:12],
            lease_ttl_s=Pace().lease_ttl_s,
            log_dir=logs,
        )
        with known.make(plan) as cluster:
            yield cluster


def told_by(*words: str, **environment: str) -> Any:
    """What a Python process with these arguments prints as JSON."""
    command = [sys.executable, *words]
    done = subprocess.run(command, env=os.environ | environment, stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)
