"""The checker's part of ``make perf``: times and memory against its anchors, side by side.

Beside our own times stand a pure-Python core rule (the smallest program that decides the same for
the easiest histories) and, where Go is on the machine, Porcupine, fetched as a module from the Go
proxy and run in the same minutes on the same histories, turn by turn where the two are compared.
Times are of the check alone, from loaded columns; nothing here fails on a time. Wall-clock time is
what must be reached; CPU time stands beside it, because a busy machine stretches only the former.
"""

from __future__ import annotations

import gc
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter, process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from checker.calls import calls_of
from checker.check import check
from checker.models import model_of
from checker.promises import Rows, link, promises
from checker.registers import Kernel, compiled, search_register
from checker.search import search
from checker.words import Case
from history.columns import History
from history.op import NULL, F, Type
from perf.histories import Load, lock_history, register_history

MUTEX = ("double-grant", "linearizable")
ROUNDS = 9
TURNS = 9
GROWTH = (10_000, 100_000, 1_000_000, 10_000_000)
GROWTH_KEYS = 100  # the same at every size, so that only the operations grow
BATCH = 100
PORCUPINE_SECONDS = 10
GO_FILES = Path(__file__).parent / "porcupine"


def main() -> None:
    """Everything, one table."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("what", "must reach", "n", "min", "median", "max", "CPU", title="The checker")
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        porcupine = build_porcupine(Path(folder))
        for row in measure(porcupine):
            values = min(row.values), statistics.median(row.values), max(row.values)
            cpu = _number(statistics.median(row.cpu)) if row.cpu else ""
            table.add_row(row.what, row.target, str(len(row.values)), *map(_number, values), cpu)
    console.print(table)
    console.print(
        f"{os.cpu_count()} cores; load average of the machine before {load_before:.1f}, after "
        f"{os.getloadavg()[0]:.1f}; CPU: median of our process"
    )
    if porcupine is None:
        console.print("Go or its proxy is not there: no Porcupine beside these numbers")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``cpu`` where it is our own process that worked."""

    what: str
    target: str
    values: Sequence[float]
    cpu: Sequence[float] = ()


def measure(porcupine: Path | None) -> Iterator[Row]:
    """Every row."""
    hundred = lock_history(Load(100_000))
    yield ours("mutex check, 100k operations, one lock, ms", "≤ 40", mutex(hundred))
    yield ours("  the core rule in plain Python, ms", "", lambda: core_rule(hundred))
    if porcupine is not None:
        yield Row("  Porcupine, ms", "", run_porcupine(porcupine, [hundred], "lock")[1])
    recorded = lock_history(Load(100_000, holds=True))
    yield ours("the same with hold ids, leases, fences, ms", "≤ 40", mutex(recorded))
    everything = lambda: check(replace(recorded))  # noqa: E731 - a name for a line of the table
    yield ours("all verdicts and measurements, ms", "≤ 80", everything)
    broken = lock_history(Load(100_000, unknown=0.05, double_grants=1))
    assert check(broken, only=MUTEX).result == "invalid"
    yield ours("mutex check with 5 % unknown, one double grant, ms", "≤ 40", mutex(broken))
    every = lambda: check(replace(broken))  # noqa: E731 - as above
    yield ours("  all verdicts and measurements of it, ms", "≤ 80", every)
    if porcupine is not None:
        small = lock_history(Load(1_000, unknown=0.05, double_grants=1))
        words, times = run_porcupine(porcupine, [small], "lock")
        yield Row(f"  Porcupine on 1,000 of such: {words[0]}, ms", "", times)
    wide = lock_history(Load(1_000_000, keys=100))
    yield ours("mutex check, 1M operations, 100 locks, ms", "≤ 500", mutex(wide))
    yield Row("  peak of memory beside the columns, MB", "≤ 1,000", [_peak(wide) / 1e6])
    if porcupine is not None:
        yield Row("  Porcupine, ms", "", run_porcupine(porcupine, [wide], "lock")[1])
    del wide
    yield from registers(porcupine)
    yield from growth()


def registers(porcupine: Path | None) -> Iterator[Row]:
    """The general search over a batch of register histories, both sides from loaded histories."""
    kernel = compiled()
    for unknown in (0.0, 0.05):
        batch = [
            register_history(operations=120 + seed, seed=seed, wrong=seed % 2 == 0, unknown=unknown)
            for seed in range(BATCH)
        ]
        name = f"search, {BATCH} register histories, {unknown:.0%} unknown, ms in all"
        mine: list[tuple[float, float]] = []
        theirs: list[float] = []
        if kernel is not None:
            compiled_search(batch, kernel)  # compiles, and loads what was compiled before
        for _ in range(TURNS):
            if kernel is not None:
                mine += timed(lambda b=batch: compiled_search(b, kernel), rounds=1)  # type: ignore[misc]
            if porcupine is not None:
                theirs.append(sum(run_porcupine(porcupine, batch, "register")[1]))
        if mine:
            yield Row(name, "", *_columns(mine))
        yield ours("  uncompiled, for any model", "", lambda b=batch: plain_search(b))  # type: ignore[misc]
        if theirs:
            yield Row("  Porcupine, ms in all", "", theirs)
        if mine and theirs:
            ratios = [a / b for (a, _), b in zip(mine, theirs, strict=True)]
            yield Row("  compiled ÷ Porcupine, turn by turn", "≤ 3", ratios)


def growth() -> Iterator[Row]:
    """The exponent of time over operations, and the peak of memory, columns included."""
    points = []
    for operations in GROWTH:
        history = lock_history(Load(operations, keys=GROWTH_KEYS))
        times = timed(mutex(history), rounds=3)
        points.append((math.log(len(history)), math.log(min(wall for wall, _ in times))))
        yield Row(
            f"mutex check, {operations:,} operations, {GROWTH_KEYS} locks, ms", "", *_columns(times)
        )
    columns = sum(
        c.nbytes for c in vars(history).values() if isinstance(c, np.ndarray) and c.strides[0]
    )
    (x0, y0), (x1, y1) = points[0], points[-1]
    yield Row("growth exponent, 10k to 10M operations", "≤ 1.1", [(y1 - y0) / (x1 - x0)])
    each = (_peak(history) + columns) / len(history)
    yield Row("memory at 10M, bytes per operation, columns included", "≤ 120", [each])


def _peak(history: History) -> int:
    """Bytes that a mutex check takes at most, beside the columns."""
    tracemalloc.start()
    check(replace(history), only=MUTEX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def ours(what: str, target: str, run: Callable[[], object]) -> Row:
    """A row of something that our own process does."""
    return Row(what, target, *_columns(timed(run)))


def timed(run: Callable[[], object], rounds: int = ROUNDS) -> list[tuple[float, float]]:
    """Milliseconds of each round, by the wall clock and of CPU."""
    times = []
    for _ in range(rounds):
        gc.collect()
        wall, cpu = perf_counter(), process_time()
        run()
        times.append((1e3 * (perf_counter() - wall), 1e3 * (process_time() - cpu)))
    return times


def _columns(times: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [wall for wall, _ in times], [cpu for _, cpu in times]


def mutex(history: History) -> Callable[[], object]:
    """Deciding double grants and linearizability, each time as if for the first time."""
    return lambda: check(replace(history), only=MUTEX)


def compiled_search(batch: Sequence[History], kernel: Kernel) -> None:
    """The register search, from the columns."""
    for history in batch:
        assert search_register(history, all_rows(history), None, kernel) is not None


def all_rows(history: History) -> Rows:
    """Every row: these histories have one key."""
    return np.arange(len(history))


def plain_search(batch: Sequence[History]) -> None:
    """The general search, from the columns."""
    for history in batch:
        links = link(history)
        case = Case(history, promises(history, links))
        calls, _ = calls_of(case, links, 0, "cas-register")
        assert search(model_of("cas-register", None, None), calls).result != "unknown"


def core_rule(history: History) -> bool:
    """Whether the cores of every key are disjoint: no unknown acquires, no leases, plain Python."""
    open_at: dict[tuple[int, int], int] = {}
    cores: dict[int, list[tuple[int, int]]] = {}
    columns = zip(
        history.process.tolist(),
        history.f.tolist(),
        history.key.tolist(),
        history.invoke_ns.tolist(),
        history.complete_ns.tolist(),
        strict=True,
    )
    for process, f, key, invoke, complete in columns:
        if f == F.ACQUIRE:
            open_at[process, key] = complete
        else:
            cores.setdefault(key, []).append((open_at.pop((process, key)), invoke))
    for mine in cores.values():
        mine.sort()
        last = 0
        for begin, end in mine:
            if begin < last:
                return False
            last = end
    return True


def build_porcupine(folder: Path) -> Path | None:
    """The Go program, or None where it cannot be had."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        return None
    binary = folder / "porcupine"
    built = subprocess.run(
        [go, "build", "-o", str(binary), "."], cwd=GO_FILES, capture_output=True, check=False
    )
    return binary if built.returncode == 0 else None


def run_porcupine(
    binary: Path, histories: Sequence[History], model: str
) -> tuple[list[str], list[float]]:
    """Its answers and milliseconds. A lock history is given key by key, as its Partition would."""
    lines: list[str] = []
    for history in histories:
        for key in range(len(history.keys)):
            lines.append(f"H {model}")
            lines.extend(_lines(history, key))
    run = subprocess.run(
        [str(binary), str(PORCUPINE_SECONDS)],
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        check=True,
    )
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    times = [float(answer["ms"]) for answer in answers]
    if model == "lock" and len(histories) == 1:
        times = [sum(times)]
    return [str(answer["result"]) for answer in answers], times


def _lines(history: History, key: int) -> Iterator[str]:
    rows = (history.key == key).nonzero()[0]
    columns = (
        history.process, history.f, history.value, history.old, history.invoke_ns,
        history.complete_ns, history.type,
    )  # fmt: skip
    for process, f, value, old, begin, end, outcome in zip(
        *(column[rows].tolist() for column in columns), strict=True
    ):
        done = -1 if outcome == Type.INFO else end
        # Times are shifted above nought, which they may be below.
        shift = 1_000_000
        done = done + shift if done != -1 else -1
        yield f"{process} {f} {_plain(value)} {_plain(old)} {begin + shift} {done}"


def _plain(value: int) -> int:
    return -1 if value == NULL else value


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


if __name__ == "__main__":
    main()
