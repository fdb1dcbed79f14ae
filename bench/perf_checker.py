"""The checker's part of ``make perf``: times and memory against its anchors, side by side.

Beside our own times stand a pure-Python core rule (the smallest program that decides the same for
the easiest histories) and, where Go is on the machine, Porcupine, fetched as a module from the Go
proxy and run in the same minutes on the same histories. Times are of the check alone, from loaded
columns; nothing here fails on a time.
"""

from __future__ import annotations

import gc
import json
import math
import shutil
import statistics
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
from rich.console import Console
from rich.table import Table

from bench.perf_histories import Load, lock_history, register_history
from checker.calls import calls_of
from checker.check import check
from checker.models import model_of
from checker.promises import Rows, link, promises
from checker.registers import Kernel, compiled, search_register
from checker.search import search
from checker.words import Case
from history.columns import History
from history.op import NULL, F, Type

MUTEX = ("double-grant", "linearizable")
ROUNDS = 5
GROWTH = (10_000, 100_000, 1_000_000, 10_000_000)
BATCH = 100
PORCUPINE_SECONDS = 10
GO_FILES = Path(__file__).parent / "porcupine"


def main() -> None:
    """Everything, one table."""
    console = Console(width=None if sys.stdout.isatty() else 140)
    table = Table("what", "must reach", "n", "min", "median", "max", title="The checker")
    with tempfile.TemporaryDirectory() as folder:
        porcupine = build_porcupine(Path(folder))
        for what, target, times in measure(porcupine):
            low, middle, high = min(times), statistics.median(times), max(times)
            table.add_row(what, target, str(len(times)), *(_number(v) for v in (low, middle, high)))
    console.print(table)
    if porcupine is None:
        console.print("Go or its proxy is not there: no Porcupine beside these numbers")


def measure(porcupine: Path | None) -> Iterator[tuple[str, str, Sequence[float]]]:
    """Rows of what, target and values."""
    hundred = lock_history(Load(100_000))
    yield "mutex check, 100k operations, one lock, ms", "≤ 40", mutex_ms(hundred)
    yield "  the core rule in plain Python, ms", "", timed(lambda: core_rule(hundred))
    if porcupine is not None:
        yield "  Porcupine, ms", "", run_porcupine(porcupine, [hundred], "lock")[1]
    recorded = lock_history(Load(100_000, holds=True))
    yield "the same with hold ids, leases, fences, ms", "≤ 40", mutex_ms(recorded)
    yield "all verdicts and measurements, ms", "≤ 80", timed(lambda: check(recorded))
    broken = lock_history(Load(100_000, unknown=0.05, double_grants=1))
    assert check(broken, only=MUTEX).result == "invalid"
    yield "mutex check with 5 % unknown, one double grant, ms", "≤ 40", mutex_ms(broken)
    if porcupine is not None:
        small = lock_history(Load(1_000, unknown=0.05, double_grants=1))
        words, times = run_porcupine(porcupine, [small], "lock")
        yield f"  Porcupine on 1,000 of such: {words[0]}, ms", "", times
    wide = lock_history(Load(1_000_000, keys=100))
    yield "mutex check, 1M operations, 100 locks, ms", "≤ 500", mutex_ms(wide)
    if porcupine is not None:
        yield "  Porcupine, ms", "", run_porcupine(porcupine, [wide], "lock")[1]
    del wide
    yield from registers(porcupine)
    yield from growth()


def registers(porcupine: Path | None) -> Iterator[tuple[str, str, Sequence[float]]]:
    """The general search over a batch of register histories, both sides from loaded histories."""
    kernel = compiled()
    for unknown in (0.0, 0.05):
        batch = [
            register_history(operations=120 + seed, seed=seed, wrong=seed % 2 == 0, unknown=unknown)
            for seed in range(BATCH)
        ]
        name = f"search, {BATCH} register histories, {unknown:.0%} unknown, ms in all"
        if kernel is not None:
            search_register(batch[0], all_rows(batch[0]), None, kernel)  # compiles
            yield name, "≤ 3 times Porcupine", timed(lambda b=batch: compiled_search(b, kernel))  # type: ignore[misc]
        yield "  uncompiled, for any model", "", timed(lambda b=batch: plain_search(b))  # type: ignore[misc]
        if porcupine is not None:
            theirs = [run_porcupine(porcupine, batch, "register") for _ in range(ROUNDS)]
            yield "  Porcupine, ms in all", "", [sum(times) for _, times in theirs]


def growth() -> Iterator[tuple[str, str, Sequence[float]]]:
    """The exponent of time over operations, and the peak of memory, columns included."""
    points = []
    for operations in GROWTH:
        history = lock_history(Load(operations, keys=max(1, operations // 100_000)))
        best = min(mutex_ms(history, rounds=2))
        points.append((math.log(len(history)), math.log(best)))
        yield f"mutex check, {operations:,} operations, ms", "", [best]
    tracemalloc.start()
    check(history, only=MUTEX)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    columns = sum(c.nbytes for c in vars(history).values() if hasattr(c, "nbytes") and c.strides[0])
    (x0, y0), (x1, y1) = points[0], points[-1]
    yield "growth exponent, 10k to 10M operations", "≤ 1.1", [(y1 - y0) / (x1 - x0)]
    yield "memory at 10M, bytes per operation", "≤ 120", [(peak + columns) / len(history)]


def timed(run: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Milliseconds of each round."""
    times = []
    for _ in range(rounds):
        gc.collect()
        began = perf_counter()
        run()
        times.append(1e3 * (perf_counter() - began))
    return times


def mutex_ms(history: History, rounds: int = ROUNDS) -> list[float]:
    """What deciding double grants and linearizability takes."""
    return timed(lambda: check(history, only=MUTEX), rounds)


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
