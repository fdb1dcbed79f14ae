"""Clients that work as fast as they can share their process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

# In a process of its own, because Locust patches it. Of clients whose answers are always there
# before they are waited for, so that only what a user does between two cycles lets another one run.
PROGRAM: Final = """
import json, time
from types import SimpleNamespace
import gevent
from lockbench.workloads.users import RateUser
from lockbench.workloads.client import Client
from lockbench.history.op import NULL

class Ready(Client):
    def __init__(self): pass
    def acquire(self, key, *, intended_ns=NULL):
        until = time.monotonic() + 0.0003
        while time.monotonic() < until: pass
        return SimpleNamespace(hold=None)
    def release(self, hold): pass

load = SimpleNamespace(rates=SimpleNamespace(hold_s=0, keys=0))
here = SimpleNamespace(load=load, count_busy=lambda n: None, page=SimpleNamespace(carried=0))
# It always spins: what the processor gave to others does not count.
counts, ticks, end = {}, [], time.process_time() + 0.5

def work(number):
    user = object.__new__(RateUser)
    user.client, user.session, user.label, user.count = Ready(), here, f"rate-{number}", bool
    while time.process_time() < end:
        user._take(NULL)
        counts[number] = counts.get(number, 0) + 1

def tick():
    while time.process_time() < end:
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


SHARES: Final = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
import gevent
from lockbench.workloads.control import Control
from lockbench.workloads.load import Step
from lockbench.workloads.session import Session

full, half = Step(1.0, 1.0), Step(1.0, 1.0, share=0.5)
rates = SimpleNamespace(steps=(full, half, full, half), clients=1)
load = SimpleNamespace(
    rates=rates, allotment=[{"RateUser": 1}], seed=1, windows_ns=lambda _: [(0, 0, 0)] * 4
)
control = Control(Path(sys.argv[1]), create=True)
here = SimpleNamespace(load=load, control=control, worker=0, _steps={})
found = {}

def ask(number):
    found[number] = Session.arrivals_of(here, number)._rate

asked = [gevent.spawn(ask, number) for number in (1, 3)]
waited = []
for carried in (100_000, 300_000):
    gevent.sleep(0.2)
    waited.append(sorted(found))
    control.carried_per_1000_s = carried
    control.saturated += 1
gevent.joinall(asked)
print(json.dumps({"found": found, "waited": waited}))
"""


def test_a_share_is_that_of_the_saturated_step_before_it(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", SHARES, str(tmp_path / "page")],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(ran.stdout) == {"found": {"1": 50.0, "3": 150.0}, "waited": [[], [1]]}


# A way that may have done it each time and never learns so.
UNSURE: Final = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from lockbench.history.op import F, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import read_recording, write_meta
from lockbench.locks.base import Unknown
from lockbench.locks.without.base import Conflict
from lockbench.workloads.use import Lasting
from lockbench.workloads.without import WayClient

folder, said = Path(sys.argv[1]), sys.argv[2]
write_meta(folder, {"k0": Object(kind="none", job="payment")}, wall_minus_monotonic_ns=0)
recorder = Recorder(folder, 1)
outcome = Unknown("no answer") if said == "unknown" else Conflict("first")
client = object.__new__(WayClient)
client._session = SimpleNamespace(count_busy=lambda n: None, count_failed=print)
client._recorder, client._pace, client._tell = recorder, SimpleNamespace(wait_s=0.01), print
client._process, client._whole = recorder.new_process(), recorder.new_process()
client._resource, client._way = None, SimpleNamespace(do=lambda *a, **k: outcome)
client._job = SimpleNamespace(begin=lambda *a: 7, end=lambda *a, **k: None)
client._tell = lambda told: None
for _ in range(2):
    client.cycle("k0", Lasting(0), wait_s=0)
recorder.close()
history = read_recording(folder)
jobs = history.f == F.JOB
print(json.dumps({
    "types": [Type(t).word for t in history.type[jobs].tolist()],
    "processes": len(set(history.process[jobs].tolist())),
}))
"""


@pytest.mark.parametrize(
    ("said", "word", "processes"), [("unknown", "info", 2), ("conflict", "fail", 1)]
)
def test_a_job_that_may_have_been_done_is_of_unknown_outcome(
    tmp_path: Path, said: str, word: str, processes: int
) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNSURE, str(tmp_path), said],
        capture_output=True, text=True, check=True, timeout=60,
    )  # fmt: skip
    assert json.loads(ran.stdout) == {"types": [word] * 2, "processes": processes}
