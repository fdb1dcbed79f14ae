"""The guarded resource applies everything in order and keeps a log of it."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from history.op import NULL, F
from history.recording import records_of
from workloads.control import Control
from workloads.load import Load, Pace, Phases
from workloads.resource import Resource


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, int]]:
    port_file = tmp_path / "port"
    with subprocess.Popen(
        [sys.executable, "-m", "workloads.resource_server", str(port_file), str(tmp_path / "log")]
    ) as process:
        end = time.monotonic() + 20
        while not port_file.exists() and time.monotonic() < end:
            time.sleep(0.01)
        yield "127.0.0.1", int(port_file.read_text())
        process.terminate()


def test_versions_grow_by_one_with_every_write_and_stale_ones_are_applied(
    server: tuple[str, int], tmp_path: Path
) -> None:
    with closing(Resource(server)) as a, closing(Resource(server)) as b:
        assert a.read("k0", 1)[0] == 0
        assert b.read("k0", 2)[0] == 0
        assert b.write("k0", 2, 0, 18)[0] == 1
        made, applied_ns = a.write("k0", 1, 0, None)
        assert made == 2
        assert abs(time.monotonic_ns() - applied_ns) < 10e9
        assert a.read("other", 1)[0] == 0
    log = records_of(tmp_path / "log" / "2000.0.ops", 0)
    assert log["f"].tolist() == [F.READ, F.READ, F.WRITE, F.WRITE, F.READ]
    assert log["hold"].tolist() == [1, 2, 2, 1, 1]
    assert log["fence"].tolist() == [NULL, NULL, 18, NULL, NULL]
    assert (log["applied_ns"][1:] >= log["applied_ns"][:-1]).all()


def test_the_control_page_is_shared(tmp_path: Path) -> None:
    bench = Control(tmp_path / "control", create=True)
    worker = Control(tmp_path / "control")
    bench.start_ns, bench.aim = 123, True
    worker.held, worker.held_until_ns = 7, 456
    worker.worker(2).ready = 5
    assert (worker.start_ns, worker.aim, worker.stop) == (123, True, False)
    assert (bench.held, bench.held_until_ns) == (7, 456)
    assert [bench.worker(w).ready for w in range(3)] == [0, 0, 5]


def load() -> Load:
    return Load(
        lock="redis-token",
        keys=2,
        clients=8,
        solo=2,
        rivals=2,
        workers=2,
        phases=Phases(1, 5, 14),
        pace=Pace(),
        seed=0,
        nodes=((("127.0.0.2", 1),),) * 3,
        resource=("127.0.0.1", 9),
        folder="f",
        master_port=1,
    )


def test_a_load_comes_back_from_its_file(tmp_path: Path) -> None:
    load().save(tmp_path / "load.json")
    assert Load.read(tmp_path / "load.json") == load()


def test_every_user_is_allotted_once_and_the_victim_is_alone() -> None:
    allotted = load().allotment
    assert allotted[0] == {"VictimUser": 1}
    assert sum(n for users in allotted.values() for n in users.values()) == load().users
    assert allotted[1] == allotted[2]


def test_every_key_that_a_user_can_ask_for_has_a_role() -> None:
    objects = load().objects()
    for worker in (1, 2):
        for user in range(4):
            assert objects[f"own-contended-{worker + 3 * user}"].role == "own"
    assert {objects[k].role for k in ("k0", "k1")} == {"contended"}
