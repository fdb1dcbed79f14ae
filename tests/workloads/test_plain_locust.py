"""The workloads under Locust as its users know it: processes, tags, a shape, the web page. Against
a Redis of the test, so that nothing but Locust is started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from checker.check import check
from history.columns import History
from history.op import NULL, F, Type
from history.recorder import PROCESSES_PER_WORKER
from history.recording import read_recording
from tests.locks.fakes import FakeRedis
from workloads.fleet import Fleet, free_port
from workloads.load import ENVIRONMENT, Load, Pace, Phases

pytestmark = pytest.mark.slow
FILE = Path(__file__).parents[2] / "workloads" / "locustfile.py"
LIMIT_S = 60.0
SHAPE = """
from pathlib import Path
from locust import LoadTestShape
from workloads.locustfile import *

class Steps(LoadTestShape):
    use_common_options = True

    def tick(self):
        if Path(__file__).with_name("end").exists():
            return None
        return (3 if self.get_run_time() < 2 else 8), 20
"""


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Path]:
    """The file of a load of payments, as ``lockbench break`` writes it."""
    server = FakeRedis()
    try:
        with Fleet(tmp_path, "plain", 2) as fleet:
            fleet.launch()
            Load(
                lock="redis-token",
                keys=2,
                clients=8,
                solo=2,
                rivals=2,
                workers=2,
                phases=Phases(floor_s=0.2, own_s=0.3, contended_s=600),
                pace=Pace(aimed_hold_s=0.05),
                seed=0,
                nodes=((server.address,),) * 3,
                resource=fleet.resource,
                history=str(fleet.history),
                logs=str(fleet.logs),
                control=str(fleet.control_file),
                master_port=1,
                workload="payment:spread=uniform",
            ).save(fleet.load_file)
            yield fleet.load_file
    finally:
        server.stop()


def locust(load: Path, *words: str, file: Path = FILE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(Path(sys.executable).parent / "locust"), "-f", str(file), *words],
        env=os.environ | {ENVIRONMENT: str(load), "PYTHONPATH": str(FILE.parents[1])},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        process_group=0,
    )


def ended(process: subprocess.Popen[str]) -> str:
    """What it said; everything of it is gone then."""
    try:
        said, _ = process.communicate(timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return said


def recorded(load: Path) -> History:
    (folder,) = (load.parent / "history").glob("locust-*")
    return read_recording(folder)


def test_processes_record_into_one_history_that_is_judged_whole(load: Path) -> None:
    words = ("--headless", "-u", "8", "-r", "8", "-t", "5s", "--processes", "2")
    said = ended(locust(load, *words, "--tags", "payment", "--only-summary"))
    assert "acquire" in said, "Locust's own statistics are alive"
    history = recorded(load)
    granted = (history.f == F.ACQUIRE) & (history.type == Type.OK)
    workers = np.unique(history.process[granted] // PROCESSES_PER_WORKER)
    assert workers.tolist() == [1, 2]
    shared = history.process[granted & (history.key == history.keys.index("k0"))]
    assert len(np.unique(shared // PROCESSES_PER_WORKER)) == 2, "they contend with each other"
    report = check(history)
    assert report.verdicts["charged-twice"].result == "valid"
    assert report.verdicts["double-grant"].result == "valid"
    assert report.verdicts["lost-charge"].result == "valid"


def test_locust_is_told_of_every_operation(load: Path) -> None:
    """Also of those that were told in a last batch."""
    said = ended(locust(load, "--headless", "-u", "6", "-r", "6", "-t", "3s", "--json"))
    rows, _ = json.JSONDecoder().raw_decode(said[said.index("[\n") :])
    told = {row["method"]: row["num_requests"] for row in rows}
    history = recorded(load)
    for f, names in ((F.RELEASE, ("release",)), (F.ACQUIRE, ("acquire", "acquire, refused"))):
        over = np.count_nonzero((history.f == f) & (history.complete_ns != NULL))
        assert sum(told.get(name, 0) for name in names) == over > 10


def test_workers_that_are_started_by_hand_join_a_master(load: Path) -> None:
    """As on other machines, but here."""
    port = str(free_port())
    workers = [locust(load, "--worker", "--master-port", port) for _ in range(2)]
    words = ("--headless", "-u", "6", "-r", "6", "-t", "3s", "--only-summary")
    master = locust(load, "--master", "--master-bind-port", port, "--expect-workers", "2", *words)
    said = ended(master)
    for worker in workers:
        ended(worker)
    assert "acquire" in said
    folders = list((load.parent / "history").glob("locust-*"))
    granted = [
        np.count_nonzero((history.f == F.ACQUIRE) & (history.type == Type.OK))
        for history in map(read_recording, folders)
    ]
    assert len(granted) == 2, "each records where it runs"
    assert min(granted) > 0


def test_tags_choose_and_leave_out(load: Path) -> None:
    words = ("--headless", "-u", "4", "-r", "4", "-t", "2s", "--only-summary")
    ended(locust(load, *words, "--exclude-tags", "payment"))
    assert np.count_nonzero(recorded(load).f == F.ACQUIRE) == 0


def test_a_shape_and_the_web_page(load: Path, tmp_path: Path) -> None:
    file = tmp_path / "shaped.py"
    file.write_text(SHAPE)
    port = free_port()
    process = locust(load, "--autostart", "--autoquit", "1", "--web-port", str(port), file=file)
    try:
        end = time.monotonic() + LIMIT_S
        most = 0
        while most < 8 and time.monotonic() < end:
            stats = fetched(f"http://127.0.0.1:{port}/stats/requests")
            most = max(most, int(stats.get("user_count", 0)))
            time.sleep(0.1)
        assert most == 8, "the shape's second step"
        names = {row["method"] for row in stats["stats"]}
        assert {"acquire", "release"} <= names
    finally:
        file.with_name("end").touch()
        said = ended(process)
    assert "Traceback" not in said
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
