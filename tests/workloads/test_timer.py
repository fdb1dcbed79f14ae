"""Greenlets that sleep until a time: none is woken early, all are woken, in their order."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: a hub of gevent's is not for the threads of other tests.
SLEEPERS = """
import gevent, json, random, sys
from time import monotonic_ns
from lockbench.workloads.timer import Timer
timer, draws, early, order = Timer(), random.Random(1), [], []
begin = monotonic_ns() + 300_000_000
times = [begin + draws.randrange(100_000_000) for _ in range(500)] + [begin] * 3 + [begin - 10**9]
def sleep(at):
    timer.sleep_until(at)
    early.append(monotonic_ns() < at)
    order.append(at)
gevent.joinall([gevent.spawn(sleep, at) for at in times], timeout=60, raise_error=True)
killed = gevent.spawn(timer.sleep_until, monotonic_ns() + 5_000_000)
gevent.sleep(0)
killed.kill()
timer.sleep_until(monotonic_ns() + 20_000_000)
assert len(order) == len(times) and not any(early), (len(order), sum(early))
assert order == sorted(order), "out of order"
"""


def test_nobody_is_woken_early_and_everybody_is_woken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLEEPERS], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
