"""The workloads under Locust as its users know it: processes, tags, a shape, the web page. Against
a Redis of the test, so that nothing but Locust is started."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.clusters.engine.owner import die_with_parent
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.recording import is_recording, read_recording
from lockbench.workloads.fleet import Fleet, free_port
from lockbench.workloads.load import ENVIRONMENT, Load, Pace, Phases
from tests.eventually import eventually
from tests.locks.fakes import FakeRedis
from tests.workloads.test_load import LOAD

pytestmark = pytest.mark.slow
FILE = Path(__file__).parents[2] / "workloads" / "locustfile.py"
LIMIT_S = 120.0
REPORTED_S = 9.0  # Locust's workers report every 3 s (locust.runners.WORKER_REPORT_INTERVAL)
SHARED = {"k0", "k1"}
SHAPE = """
from pathlib import Path
from locust import LoadTestShape
from lockbench.workloads.locustfile import *

class Steps(LoadTestShape):
    use_common_options = True

    def tick(self):
        if Path(__file__).with_name("end").exists():
            return None
        return (3 if self.get_run_time() < 2 else 8), 20
"""
PATIENT = """
from locust import constant
from lockbench.workloads.locustfile import *

PaymentUser.wait_time = constant(3600)
"""
# A locustfile as its users write them: a shape, tags, a wait time, and a listener.
AS_USERS_KNOW_IT = """
from pathlib import Path
from locust import LoadTestShape, between, events, tag, task
from lockbench.workloads.locustfile import *

class Steady(LoadTestShape):
    use_common_options = True

    def tick(self):
        return (4, 4) if self.get_run_time() < 5 else None

class Mine(PaymentUser):
    wait_time = between(0.01, 0.02)

@events.request.add_listener
def hear(request_type, name, response_time, start_time, exception, **_):
    with Path(__file__).with_name("heard").open("a") as file:
        print(request_type, name, exception is None, file=file)
"""
HANGING = """
import gevent
from lockbench.workloads.locustfile import *
from lockbench.workloads.users import LockUser

def connect(user):
    print("it connects", flush=True)
    gevent.sleep(3600)

LockUser.connect = connect
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Path]:
    """The file of a load of payments, as ``lockbench break`` writes it."""
    with FakeRedis() as server, Fleet(tmp_path, "plain", 2) as fleet:
        fleet.launch()
        replace(
            LOAD,
            phases=Phases(floor_s=0.2, own_s=0.3, contended_s=600),
            pace=Pace(aimed_hold_s=0.05),
            nodes=((server.address,),) * 3,
            resource=fleet.resource,
            folder=str(fleet.folder),
            workload="payment:spread=uniform",
        ).save(fleet.load_file)
        yield fleet.load_file


class Locust:
    """One ``locust`` process and its children, without a limit of time of its own."""

    def __init__(self, load: Path, *words: str, file: Path = FILE) -> None:
        self._log = load.with_name(f"locust-{next(_numbers)}.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).parent / "locust"), "-f", str(file), *words],
                env=os.environ | {ENVIRONMENT: str(load), "PYTHONPATH": str(FILE.parents[1])},
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no locks
            )

    def said(self) -> str:
        return self._log.read_text(encoding="utf-8")

    def stopped_once(self, true: Callable[[], object]) -> str:
        """Asks it to stop as soon as it is true; what it said."""
        eventually(lambda: true() or self._process.poll() is not None, limit_s=LIMIT_S)
        self._process.terminate()
        return self.ended()

    def ended(self) -> str:
        """What it said; everything of it is gone then."""
        try:
            self._process.wait(LIMIT_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        assert "Traceback" not in self.said(), self.said()
        return self.said()


_numbers = itertools.count()


def histories(load: Path) -> list[History]:
    """What was recorded until now, by each start of Locust."""
    folders = sorted((load.parent / "history").glob("locust-*"))
    return [read_recording(folder) for folder in folders if is_recording(folder)]


def recorded(load: Path) -> History:
    (history,) = histories(load)
    return history


def granted_by_workers(history: History) -> dict[int, int]:
    """Worker → its grants of a shared key."""
    granted = (history.f == F.ACQUIRE) & (history.type == Type.OK)
    shared = [number for number, key in enumerate(history.keys) if key in SHARED]
    workers = history.process[granted & np.isin(history.key, shared)] // PROCESSES_PER_WORKER
    return dict(Counter(workers.tolist()))


def test_processes_record_into_one_history_that_is_judged_whole(load: Path) -> None:
    def both_were_granted() -> bool:
        """For longer than it takes a process to report to Locust's master."""
        return any(
            len(found := granted_by_workers(history)) == 2
            and min(found.values()) > 5
            and np.ptp(history.invoke_ns) > 1e9 * REPORTED_S
            for history in histories(load)
        )

    words = ("--headless", "-u", "8", "-r", "8", "--processes", "2", "--tags", "payment")
    said = Locust(load, *words, "--only-summary").stopped_once(both_were_granted)
    assert "acquire" in said, "Locust's own statistics are alive"
    history = recorded(load)
    assert granted_by_workers(history).keys() == {1, 2}, "they contend with each other"
    report = check(history)
    assert report.verdicts["charged-twice"].result == "valid"
    assert report.verdicts["double-grant"].result == "valid"
    assert report.verdicts["lost-charge"].result == "valid"


def test_locust_is_told_of_every_operation(load: Path) -> None:
    """Also of those that were told in a last batch."""

    def many() -> bool:
        return any(np.count_nonzero(history.f == F.RELEASE) > 50 for history in histories(load))

    said = Locust(load, "--headless", "-u", "6", "-r", "6", "--json").stopped_once(many)
    rows, _ = json.JSONDecoder().raw_decode(said[said.index("[\n") :])
    told = {row["method"]: row["num_requests"] for row in rows}
    history = recorded(load)
    for f, names in ((F.RELEASE, ("release",)), (F.ACQUIRE, ("acquire", "acquire, refused"))):
        over = np.count_nonzero((history.f == f) & (history.complete_ns != NULL))
        assert sum(told.get(name, 0) for name in names) == over > 10


def test_a_user_that_is_stopped_while_it_connects_ends_in_silence(
    load: Path, tmp_path: Path
) -> None:
    file = tmp_path / "hanging.py"
    file.write_text(HANGING)
    running = Locust(load, "--headless", "-u", "2", "-r", "2", file=file)
    said = running.stopped_once(lambda: "it connects" in running.said())
    assert "Shutting down (exit code 0)" in said


def test_workers_that_are_started_by_hand_join_a_master(load: Path) -> None:
    """As on other machines, but here."""
    port = str(free_port())
    workers = [Locust(load, "--worker", "--master-port", port) for _ in range(2)]
    words = ("--headless", "-u", "6", "-r", "6", "--only-summary", "--expect-workers", "2")
    master = Locust(load, "--master", "--master-bind-port", port, *words)

    def granted_for_s() -> list[float]:
        """How long each has recorded grants."""
        rows = [
            (history, (history.f == F.ACQUIRE) & (history.type == Type.OK))
            for history in histories(load)
        ]
        return [float(np.ptp(history.invoke_ns[ok])) / 1e9 for history, ok in rows if np.any(ok)]

    said = master.stopped_once(
        lambda: len(granted_for_s()) == 2 and min(granted_for_s()) > REPORTED_S
    )
    for worker in workers:
        worker.ended()
    assert "acquire" in said
    assert len(granted_for_s()) == 2, "each records where it runs"


def test_a_wait_time_lies_between_two_cycles(load: Path, tmp_path: Path) -> None:
    """With one that never ends, nobody asks for a shared key a second time."""
    file = tmp_path / "patient.py"
    file.write_text(PATIENT)

    def contended() -> list[int]:
        granted = [granted_by_workers(history) for history in histories(load)]
        return [sum(found.values()) for found in granted]

    words = ("--headless", "-u", "3", "-r", "3", "--only-summary", "PaymentUser")
    running = Locust(load, *words, file=file)
    running.stopped_once(lambda: contended() == [3])
    history = recorded(load)
    asked = np.unique(history.process[history.f == F.JOB], return_counts=True)
    assert contended() == [3], asked


def test_a_locustfile_of_ones_own_runs_for_its_time(load: Path, tmp_path: Path) -> None:
    """As ``locust --headless -f FILE -t 5s --tags T`` does it, to its own end."""
    file = tmp_path / "mine.py"
    file.write_text(AS_USERS_KNOW_IT)
    words = ("--headless", "-t", "5s", "--tags", "payment", "--csv", str(tmp_path / "own"))
    said = Locust(load, *words, "Mine", file=file).ended()
    assert "Shutting down (exit code" in said
    history = recorded(load)
    heard = Counter(line.split()[0] for line in (tmp_path / "heard").read_text().splitlines())
    releases = np.count_nonzero((history.f == F.RELEASE) & (history.complete_ns != NULL))
    assert heard["release"] == releases > 10
    assert (tmp_path / "own_stats.csv").read_text().count("\nrelease,") == 1


def test_tags_choose_and_leave_out(load: Path) -> None:
    words = ("--headless", "-u", "4", "-r", "4", "--only-summary", "--exclude-tags", "payment")
    running = Locust(load, *words)
    with pytest.raises(AssertionError, match="No tasks defined on PaymentUser"):
        running.stopped_once(lambda: "No tasks defined on PaymentUser" in running.said())
    assert np.count_nonzero(recorded(load).f == F.ACQUIRE) == 0


def test_a_shape_and_the_web_page(load: Path, tmp_path: Path) -> None:
    file = tmp_path / "shaped.py"
    file.write_text(SHAPE)
    port = free_port()
    running = Locust(load, "--autostart", "--autoquit", "1", "--web-port", str(port), file=file)
    most = 0

    def second_step() -> bool:
        nonlocal most
        stats = fetched(f"http://127.0.0.1:{port}/stats/requests")
        most = max(most, int(stats.get("user_count", 0)))
        names = {row["method"] for row in stats.get("stats", ())}
        return most == 8 and {"acquire", "release"} <= names

    try:
        eventually(second_step, f"most users: {most}", limit_s=LIMIT_S)
    finally:
        file.with_name("end").touch()
        running.ended()
    history = recorded(load)
    assert np.count_nonzero(history.f == F.JOB) > 10
    assert check(history).verdicts["charged-twice"].result == "valid"


def fetched(url: str) -> dict[str, Any]:
    """Nothing while the page is not there yet."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            found: dict[str, Any] = json.load(answer)
            return found
    except OSError:
        return {}


@pytest.mark.parametrize("processes", [1, 4])
def test_one_start_carries_the_rate_that_was_asked_for(load: Path, processes: int) -> None:
    """The load was made for two processes of the bench. Each user has a key of its own."""
    asked, phases = Load.read(load), Phases(floor_s=0.2, own_s=8, contended_s=600)
    replace(asked, workload="mutex:rate=40:arrivals=constant", phases=phases).save(load)

    def intended_s(history: History) -> list[Any]:
        """Of each process, from when all have begun until one has no more."""
        shared = [number for number, key in enumerate(history.keys) if key in SHARED]
        jobs = (history.f == F.ACQUIRE) & np.isin(history.key, shared)
        jobs &= history.intended_ns != NULL
        workers = history.process // PROCESSES_PER_WORKER
        found = [history.intended_ns[jobs & (workers == n)] / 1e9 for n in np.unique(workers[jobs])]
        if len(found) < processes:
            return []
        begin_s, end_s = max(map(np.min, found)), min(map(np.max, found))
        return [times[(times >= begin_s) & (times <= end_s)] for times in found]

    def jobs(history: History) -> int:
        return sum(map(len, intended_s(history)))

    among = ["--processes", str(processes)] if processes > 1 else []
    words = ["--headless", "-u", "12", "-r", "100", "--only-summary", *among]
    running = Locust(load, *words, "MutexUser")
    running.stopped_once(lambda: any(jobs(found) > 200 for found in histories(load)))
    history = recorded(load)
    each = intended_s(history)
    rates = [(len(times) - 1) / np.ptp(times) for times in each]
    assert sum(rates) == pytest.approx(40, rel=0.1)
    assert sum(key.startswith("own-contended-") for key in history.keys) == 12
