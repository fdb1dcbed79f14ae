"""The checker's part of ``make perf``: times and memory against its anchors, side by side.

Beside our own times stand a pure-Python core rule (the smallest program that decides the same for
the easiest histories) and, where Go is on the machine, Porcupine, fetched as a module from the Go
proxy and run in the same minutes on the same histories, turn by turn where the two are compared.
Times are of the check alone, from loaded columns. Wall-clock time is what must be reached; CPU time
stands beside it, because a busy machine stretches only the former.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import tempfile
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lockbench.checker.analysis import Analysis
from lockbench.checker.calls import calls_of
from lockbench.checker.check import check
from lockbench.checker.models import model_of
from lockbench.checker.search import search
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type
from perf.figures import Figure, console, show, timed
from perf.histories import Load, lock_history, register_history
from perf.machines import MS, US, Clock, Link, Machines, simulated

MUTEX = ("double-grant", "linearizable")
ROUNDS = 9
GROWTH = (10_000, 100_000, 1_000_000, 10_000_000)
GROWTH_KEYS = 100  # the same at every size, so that only the operations grow
BATCH = 100
PORCUPINE_SECONDS = 10
GO_FILES = Path(__file__).parent / "porcupine"


def main() -> None:
    """Everything, one table."""
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        porcupine = build_porcupine(Path(folder))
        show("The checker", measure(porcupine))
    console().print(
        f"{os.cpu_count()} cores; load average of the machine before {load_before:.1f}, after "
        f"{os.getloadavg()[0]:.1f}; CPU: median of our process, ms"
    )
    if porcupine is None:
        console().print("Go or its proxy is not there: no Porcupine beside these numbers")


def measure(porcupine: Path | None) -> Iterator[Figure]:
    """Every row."""

    def theirs(what: str, history: History) -> Iterator[Figure]:
        if porcupine is not None:
            words, times = run_porcupine(porcupine, [history], "lock")
            yield Figure(what.format(words[0]), "", times)

    hundred = lock_history(Load(100_000))
    yield ours("mutex check, 100k operations, one lock, ms", "≤ 40", mutex(hundred))
    yield ours("  the core rule in plain Python, ms", "", partial(core_rule, hundred))
    yield from theirs("  Porcupine, ms", hundred)
    recorded = lock_history(Load(100_000, holds=True))
    yield ours("the same with hold ids, leases, fences, ms", "≤ 40", mutex(recorded))
    yield ours("all verdicts and measurements, ms", "≤ 80", every_verdict(recorded))
    yield ours("linearizable, 100k operations of 4 machines at ±5 ms, ms", "≤ 2,000", of_machines())
    yield ours("  locks alone, held for 20 µs, ms", "≤ 2,000", of_holds_alone())
    broken = lock_history(Load(100_000, unknown=0.05, double_grants=1))
    assert check(broken, only=MUTEX).result == "invalid"
    yield ours("mutex check with 5 % unknown, one double grant, ms", "≤ 40", mutex(broken))
    yield ours("  all verdicts and measurements of it, ms", "≤ 80", every_verdict(broken))
    small = lock_history(Load(1_000, unknown=0.05, double_grants=1))
    yield from theirs("  Porcupine on 1,000 of such: {}, ms", small)
    wide = lock_history(Load(1_000_000, keys=100))
    yield ours("mutex check, 1M operations, 100 locks, ms", "≤ 500", mutex(wide))
    yield Figure("  peak of memory beside the columns, MB", "≤ 1,000", [_peak(wide) / 1e6])
    yield from theirs("  Porcupine, ms", wide)
    del wide
    yield from registers(porcupine)
    yield from growth()


def registers(porcupine: Path | None) -> Iterator[Figure]:
    """The general search over a batch of register histories, both sides from loaded histories."""
    for unknown in (0.0, 0.05):
        batch = [
            register_history(operations=120 + seed, seed=seed, wrong=seed % 2 == 0, unknown=unknown)
            for seed in range(BATCH)
        ]
        mine, theirs = [], []
        for _ in range(ROUNDS):
            mine.append(timed(partial(plain_search, batch)))
            if porcupine is not None:
                theirs.append(sum(run_porcupine(porcupine, batch, "register")[1]))
        name = f"search, {BATCH} register histories, {unknown:.0%} unknown, ms in all"
        yield _with_cpu(name, "", mine)
        if theirs:
            yield Figure("  Porcupine, ms in all", "", theirs)


def growth() -> Iterator[Figure]:
    """The exponent of time over operations, and the peak of memory, columns included."""
    points = []
    for operations in GROWTH:
        history = lock_history(Load(operations, keys=GROWTH_KEYS))
        times = [timed(mutex(history)) for _ in range(3)]
        points.append((math.log(len(history)), math.log(min(wall for wall, _ in times))))
        name = f"mutex check, {operations:,} operations, {GROWTH_KEYS} locks, ms"
        yield _with_cpu(name, "", times)
    columns = sum(column.nbytes for column in history.columns().values() if column.strides[0])
    (x0, y0), (x1, y1) = points[0], points[-1]
    yield Figure("growth exponent, 10k to 10M operations", "≤ 1.1", [(y1 - y0) / (x1 - x0)])
    each = (_peak(history) + columns) / len(history)
    yield Figure("memory at 10M, bytes per operation, columns included", "≤ 120", [each])


def _peak(history: History) -> int:
    """Bytes that a mutex check takes at most, beside the columns."""
    tracemalloc.start()
    mutex(history)()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def ours(what: str, target: str, run: Callable[[], object]) -> Figure:
    """Of something that our own process does."""
    return _with_cpu(what, target, [timed(run) for _ in range(ROUNDS)])


def _with_cpu(what: str, target: str, times: Sequence[tuple[float, float]]) -> Figure:
    wall, cpu = zip(*times, strict=True)
    return Figure(what, target, wall, beside={"CPU": cpu})


def mutex(history: History) -> Callable[[], object]:
    """Deciding double grants and linearizability, each time as if for the first time."""
    return lambda: check(replace(history), only=MUTEX)


def every_verdict(history: History) -> Callable[[], object]:
    """The same of everything that is judged and measured."""
    return lambda: check(replace(history))


def of_machines() -> Callable[[], object]:
    """Deciding linearizability where clocks drift and agree to 5 ms: with an ε of that width the
    operations would be searched."""
    links = (Link(5 * MS, 5 * MS, 200 * US),)
    drifting = (Clock(), Clock(10**14, 50, 5), Clock(7 * 10**9, -20, 3))
    history, _ = simulated(Machines(4, 10, 2_500, links=links, clocks=drifting), 1)

    def judge() -> None:
        decided = check(replace(history), only=("linearizable",)).verdicts["linearizable"]
        assert decided.result == "valid"

    return judge


def of_holds_alone() -> Callable[[], object]:
    """The same without any use of the resource: which clocks explain it is too uncertain to call it
    valid (docs/clocks.md)."""
    clocks = (Clock(), Clock(3 * MS), Clock(-2 * MS))
    history, _ = simulated(Machines(4, 10, 5_000, uses=0, clocks=clocks), 1)

    def judge() -> None:
        decided = check(replace(history, epsilon_ns=5 * MS), only=("linearizable",))
        assert decided.verdicts["linearizable"].result == "unknown"

    return judge


def plain_search(batch: Sequence[History]) -> None:
    """The general search, from the columns."""
    for history in batch:
        calls, _ = calls_of(Analysis.of(history), 0, "cas-register")
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
    names = ("process", "f", "value", "old", "invoke_ns", "complete_ns", "type")
    every = history.columns()
    shift = 1_000_000  # above nought, which times may be below
    for process, f, value, old, begin, end, outcome in zip(
        *(every[name][history.key == key].tolist() for name in names), strict=True
    ):
        numbers = [-1 if number == NULL else number for number in (value, old)]
        done = -1 if outcome == Type.INFO else end + shift
        yield f"{process} {f} {numbers[0]} {numbers[1]} {begin + shift} {done}"


if __name__ == "__main__":
    main()
