"""What grows is told, what does not is acquitted, and too little says nothing."""

from __future__ import annotations

import ctypes
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable

import pytest

from soak.growth import FLAT, GROWS, MIB, NOT_KNOWN, STRETCHES, Memory, growth, memory_table
from soak.parts import BENCH, FORK_SERVER, anonymous_bytes, parts
from tests.eventually import eventually

HOUR_S = 3600


def hour(mib: Callable[[float], float], seed: int = 1) -> list[tuple[float, int]]:
    """A sample every ten seconds; ``mib`` is told what part of the hour has passed."""
    noise = random.Random(seed)
    return [
        (1e5 + second, int(MIB * (mib(second / HOUR_S) + noise.gauss(0, 0.5))))
        for second in range(0, HOUR_S, 10)
    ]


def test_a_leak_is_seen_and_measured() -> None:
    seen = growth(hour(lambda passed: 100 + 30 * passed))
    assert seen.word == GROWS
    assert seen.slope == pytest.approx(30, abs=2)
    assert seen.low is not None
    assert seen.high is not None
    assert seen.low < 30 < seen.high


@pytest.mark.parametrize(
    "mib",
    [
        lambda passed: 100.0,
        lambda passed: 100 + 20 * (passed > 0.1),  # everything is imported late
        lambda passed: 100 + 5 * ((passed * 31) % 1),  # a collector comes now and then
        lambda passed: 100 + 40 * (0.4 < passed < 0.43),  # one report is drawn
        lambda passed: 120 - 20 * passed,
    ],
)
def test_what_settles_or_swings_is_flat(mib: Callable[[float], float]) -> None:
    assert growth(hour(mib)).word == FLAT


def test_a_minute_of_noise_says_nothing() -> None:
    assert growth(hour(lambda passed: 100 + 8 * passed)[:7]).word == NOT_KNOWN
    assert growth([(1.0, MIB)]).word == NOT_KNOWN
    short = [(float(n), MIB * (100 + n % 3)) for n in range(STRETCHES * 2)]
    assert growth(short).word == NOT_KNOWN


def test_the_slope_stands_in_the_table_with_its_spread() -> None:
    made = memory_table({"bench": growth(hour(lambda passed: 100.0)), "new": growth([(1.0, MIB)])})
    cells = list(zip(*(column.cells for column in made.columns), strict=True))
    assert [(row[0], row[1], row[-1]) for row in cells] == [
        ("bench", "360", FLAT),
        ("new", "1", NOT_KNOWN),
    ]
    slopes = [str(row[5]) for row in cells]
    assert re.fullmatch(r"[+-]\d\.\d\d \[-\d\.\d\d, \+\d\.\d\d\]", slopes[0]), slopes
    assert slopes[1] == "-"


LOAD = """
import subprocess, sys
log = open(sys.argv[1] + "/worker-1.log", "w")
command = [sys.executable, "-c", "import sys; sys.stdin.read()"]
one = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log)
other = subprocess.Popen([*command, "lockbench.workloads.fork_server"], stdin=subprocess.PIPE)
print(one.pid, other.pid, flush=True)
sys.stdin.read()
"""


def test_the_processes_of_a_bench_are_named_and_no_others(tmp_path: object) -> None:
    command = [sys.executable, "-c", LOAD, str(tmp_path)]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as bench,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other,
    ):
        assert bench.stdout is not None
        assert other.stdout is not None
        worker, server = map(int, bench.stdout.readline().split())
        other.stdout.readline()
        named = {name: process.pid for name, process in parts(bench.pid).items()}
        assert named == {BENCH: bench.pid, FORK_SERVER: server, "worker-1": worker}
        assert (anonymous_bytes(parts(bench.pid)[BENCH]) or 0) > MIB
        memory = Memory()
        memory.read(bench.pid, "redis")
        assert set(memory.found()) == {BENCH, FORK_SERVER, "worker-1 on redis"}
        gone = parts(bench.pid)["worker-1"]
        bench.communicate()
        assert parts(bench.pid) == {}
        other.communicate()
    eventually(lambda: anonymous_bytes(gone) is None)


def test_memory_that_is_free_does_not_count_and_what_is_in_use_does() -> None:
    """Blocks too small for a mapping of their own, and one above them, so that the C library keeps
    them when they are freed."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    blocks = [ctypes.c_void_p(libc.malloc(64 << 10)) for _ in range(1024)]
    for block in blocks:
        ctypes.memset(block, 1, 64 << 10)
    top = ctypes.c_void_p(libc.malloc(64 << 10))

    def used_mib() -> float:
        memory = Memory()
        memory.read(os.getpid(), "redis")
        return memory.found()[BENCH].last_mib

    in_use = used_mib()
    for block in blocks:
        libc.free(block)
    assert used_mib() == pytest.approx(in_use - 64, abs=8)
    libc.free(top)
