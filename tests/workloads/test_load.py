"""What a load is made of: its file and control page, who gets which key, and its port."""

from __future__ import annotations

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lockbench.workloads import fleet
from lockbench.workloads.control import Control
from lockbench.workloads.fleet import free_port
from lockbench.workloads.load import Load, Pace, Phases, shared_key

LOAD = Load(
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


def test_the_control_page_is_shared(tmp_path: Path) -> None:
    bench = Control(tmp_path / "control", create=True)
    worker = Control(tmp_path / "control")
    bench.start_ns, bench.aim = 123, True
    worker.held, worker.held_until_ns = 7, 456
    worker.worker(2).ready = 5
    assert (worker.start_ns, worker.aim, worker.stop) == (123, True, False)
    assert (bench.held, bench.held_until_ns) == (7, 456)
    assert [bench.worker(w).ready for w in range(3)] == [0, 0, 5]


def test_a_load_comes_back_from_its_file(tmp_path: Path) -> None:
    LOAD.save(tmp_path / "load.json")
    assert Load.read(tmp_path / "load.json") == LOAD


def test_every_user_is_allotted_once_and_the_victim_is_alone() -> None:
    allotted = LOAD.allotment
    assert allotted[0] == {"VictimUser": 1}
    assert sum(n for users in allotted.values() for n in users.values()) == LOAD.users
    assert allotted[1] == allotted[2]


def test_every_key_that_a_user_can_ask_for_has_a_role() -> None:
    objects = LOAD.objects()
    for worker in (1, 2):
        for user in range(4):
            assert objects[f"own-contended-{worker + 3 * user}"].role == "own"
    assert {objects[k].role for k in ("k0", "k1")} == {"contended"}


@pytest.mark.parametrize("workers", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("keys", [1, 2, 3, 5, 8, 20])
@pytest.mark.parametrize("users", [8, 24, 64])
def test_keys_are_shared_evenly_and_across_workers(workers: int, keys: int, users: int) -> None:
    asked = [(shared_key(place, keys, workers), place % workers) for place in range(users)]
    per_key = Counter(key for key, _ in asked)
    assert max(per_key.values()) - min(per_key.values()) <= 1 or users < keys
    if workers == 1 or users < 2 * keys:
        return
    alone = [key for key in per_key if len({w for other, w in asked if other == key}) == 1]
    assert not alone, f"only one worker asks for {alone}"


def test_a_port_is_not_handed_out_twice_before_somebody_listens_there() -> None:
    """Loads that start at the same time, as tests and suites start them, have their own."""
    with ThreadPoolExecutor(8) as pool:
        ports = list(pool.map(lambda _: free_port(), range(100)))
    assert len(set(ports)) == len(ports)


def test_a_port_that_another_process_has_drawn_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Though nobody listens there yet."""
    first = free_port()
    monkeypatch.setattr(fleet, "_drawn", itertools.count(first - fleet.FIRST_PORT))
    assert free_port() != first


def test_a_key_may_stay_taken_for_as_long_as_its_service_keeps_what_nobody_renews() -> None:
    """Consul: twice the TTL, and a lock-delay."""
    assert LOAD.slack_s == 2.0
    kept = {"consul-session": 2 * 3.0, "consul-session-no-delay": 3.0}
    for lock, more_s in kept.items():
        assert replace(LOAD, lock=lock).slack_s == LOAD.slack_s + more_s
