"""Greenlets that sleep until a time: none is woken early, all are woken, in their order."""

from __future__ import annotations

import subprocess
import sys

# In a process of its own: a hub of gevent's is not for the threads of other tests.
SLEEPERS = """
import gevent, json, random, sys
from time import monotonic_ns
from lockbench.workloads.timer import Timer
timer, draws = Timer(), random.Random(1)
def sleep(at):
    timer.sleep_until(at)
    early.append(monotonic_ns() < at)
    order.append(at)
for _ in range(20):
    early, order = [], []
    begin = monotonic_ns() + 300_000_000
    times = [begin + draws.randrange(100_000_000) for _ in range(500)]
    times += [begin] * 3 + [begin - 10**9]
    sleepers = [gevent.spawn(sleep, at) for at in times]
    all_asleep = gevent.spawn(monotonic_ns)
    gevent.joinall([*sleepers, all_asleep], timeout=60, raise_error=True)
    assert len(order) == len(times) and not any(early), (len(order), sum(early))
    if all_asleep.value < begin - 1_000_000:  # else some came too late to sleep
        break
else:
    raise AssertionError("they were never all asleep")
assert order == sorted(order), "out of order"
killed = gevent.spawn(timer.sleep_until, monotonic_ns() + 5_000_000)
gevent.sleep(0)
killed.kill()
timer.sleep_until(monotonic_ns() + 20_000_000)
"""


def test_nobody_is_woken_early_and_everybody_is_woken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SLEEPERS], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
