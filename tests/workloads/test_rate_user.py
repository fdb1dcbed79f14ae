"""Clients that work as fast as they can share their process."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

# In a process of its own, because Locust patches it. Of clients whose answers are always there
# before they are waited for, so that only what a user does between two cycles lets another one run.
PROGRAM: Final = """
import json, time
from types import SimpleNamespace
import gevent
from workloads.users import RateUser
from workloads.client import Client
from history.op import NULL

class Ready(Client):
    def __init__(self): pass
    def acquire(self, key, *, intended_ns=NULL):
        until = time.monotonic() + 0.0003
        while time.monotonic() < until: pass
        return SimpleNamespace(hold=None)
    def release(self, hold): pass

load = SimpleNamespace(rates=SimpleNamespace(hold_s=0, keys=0))
here = SimpleNamespace(load=load, count_busy=lambda n: None, page=SimpleNamespace(carried=0))
counts, ticks, end = {}, [], time.monotonic() + 0.5

def work(number):
    user = object.__new__(RateUser)
    user.client, user.session, user.label, user.count = Ready(), here, f"rate-{number}", bool
    while time.monotonic() < end:
        user._take(NULL)
        counts[number] = counts.get(number, 0) + 1

def tick():
    while time.monotonic() < end:
        ticks.append(time.monotonic())
        gevent.sleep(0.01)

gevent.joinall([gevent.spawn(tick), *(gevent.spawn(work, n) for n in range(3))])
print(json.dumps({"counts": counts, "ticks": len(ticks)}))
"""


def test_a_client_that_never_waits_lets_the_others_run() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    found = json.loads(ran.stdout)
    counts = found["counts"].values()
    assert len(counts) == 3
    assert max(counts) <= 1.5 * min(counts)
    assert found["ticks"] >= 5
