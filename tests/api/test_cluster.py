"""The library's clusters and faults: what is refused, and what happens on real ones."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

import lockbench
from lockbench import (
    BadInput,
    BrokenPromise,
    Cluster,
    NotHealed,
    NotProven,
    Recording,
    Unavailable,
    exclusive,
    faults,
)
from lockbench.cli.break_by_hand import plain_recipe
from lockbench.clusters.engine.docker import Engine
from lockbench.clusters.registry import topologies
from lockbench.locks.registry import systems
from lockbench.locks.use import Client, NotAcquired
from lockbench.nemesis import by_hand
from lockbench.nemesis.faults.pause import Pause
from tests.eventually import eventually

QUICK: Final = ("redis", "etcd", "postgres")  # up in two seconds


# --- what needs no Docker ---


def test_every_name_that_it_promises_is_there() -> None:
    for name in lockbench.__all__:
        assert getattr(lockbench, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lockbench.nothing


def test_nothing_is_patched_and_nothing_is_imported_before_it_is_used() -> None:
    script = """
import sys, socket, threading
before = socket.socket, threading.Thread
import lockbench
assert [name for name in sys.modules if name.startswith("lockbench")] == ["lockbench"]
from lockbench import *
assert (socket.socket, threading.Thread) == before
print({"locust", "gevent", "pytest"} & set(sys.modules))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Cluster("redsi"), "no topology is called 'redsi'; did you mean redis?"),
        (lambda: Cluster("etcd", nodes=4), "etcd is made of 3 or 5 nodes, not of 4"),
        (lambda: Cluster("etcd", network="moon"), "no network is called 'moon'"),
        (lambda: Cluster("etcd").addresses, "etcd is not up: use it inside `with Cluster"),
        (lambda: faults.pause(Cluster("etcd")).__enter__(), "etcd is not up"),
        (lambda: Recording(at_most=0), "at_most=0"),
    ],
)
def test_what_cannot_be_is_one_sentence(make: Callable[[], object], said: str) -> None:
    with pytest.raises(BadInput) as refused:
        make()
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_without_docker_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(Unavailable, match=r"no Docker engine answers .* start Docker"):
        Cluster("redis").start()


@pytest.mark.docker
def test_without_a_folder_to_write_into_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tempfile.TemporaryDirectory", full)
    with pytest.raises(Unavailable, match=r"No space left on device.*: set TMPDIR"):
        Cluster("redis").start()


# --- real ones ---


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster("redis") as made:
        yield made


def left_of(process: int) -> list[str]:
    with Engine() as engine:
        return [
            container.name
            for container in engine.containers({"lockbench": "1"})
            if (state := engine.state(container))
            and state.labels.get("lockbench.owner", "").startswith(f"{process}:")
        ]


@pytest.mark.docker
def test_a_fault_is_proven_in_the_block_and_healed_after_it(cluster: Cluster) -> None:
    client = redis.Redis(*cluster.addresses[0], socket_timeout=0.2, retry=Retry(NoBackoff(), 0))
    with faults.pause(cluster) as fault:
        assert fault.targets == ("redis-1",)
        with pytest.raises(redis.TimeoutError):
            client.ping()
    assert redis.Redis(*cluster.addresses[0]).ping()
    assert cluster.faults[-1].seen.proven is True


@pytest.mark.docker
def test_a_fault_without_an_effect_is_no_fault(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Pause, "begin", lambda self, arena: None)
    with pytest.raises(NotProven, match=r"pause:who=decisive of redis-1 .* no effect"):
        faults.pause(cluster).__enter__()
    cluster.verify()


@pytest.mark.docker
def test_a_fault_that_does_not_heal_is_told(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(by_hand, "RECOVERY_S", 0.0)
    monkeypatch.setattr(Pause, "recovered", lambda self, arena: False)
    fault = faults.pause(cluster).__enter__()
    with pytest.raises(NotHealed, match="of redis-1 is healed, but what it broke is not"):
        fault.__exit__(None)
    cluster.verify()


@pytest.mark.docker
def test_two_faults_that_contradict_each_other(cluster: Cluster) -> None:
    with faults.pause(cluster):
        with pytest.raises(BadInput, match="is on and takes hold of servers"):
            faults.kill(cluster).__enter__()
        with pytest.raises(BadInput, match="is on and takes hold of servers"):
            faults.pause(cluster).__enter__()
        cluster_itself, _ = cluster.running()
        assert not cluster_itself.serves(1, 0.2)
    cluster.verify()


@pytest.mark.docker
@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("pausee", "did you mean pause"),
        ("client-pause", "nobody but you uses this cluster"),
        ("failover", "does not apply"),
    ],
)
def test_a_fault_that_cannot_be_is_one_sentence(cluster: Cluster, fault: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        faults.inject(cluster, fault).__enter__()


@pytest.mark.docker
def test_the_same_seed_draws_the_same() -> None:
    with Cluster("redlock", nodes=5, seed=7) as cluster:

        def struck() -> tuple[str, ...]:
            with faults.pause(cluster, who="minority") as fault:
                return fault.targets

        first = [struck(), struck()]
        cluster.reseed(7)
        assert [struck(), struck()] == first


@pytest.mark.docker
def test_in_an_event_loop_nothing_stands_still() -> None:
    async def ticks(count: list[int]) -> None:
        while True:
            await asyncio.sleep(0.01)
            count[0] += 1

    async def use() -> tuple[int, int]:
        count = [0]
        ticking = asyncio.create_task(ticks(count))
        async with Cluster("redis") as cluster:
            started = count[0]
            async with faults.pause(cluster):
                pass
        ticking.cancel()
        return started, count[0] - started

    starting, under_the_fault = asyncio.run(use())
    assert min(starting, under_the_fault) > 5


@pytest.mark.docker
def test_it_works_under_gevent_and_leaves_nothing() -> None:
    script = """
import gevent.monkey
gevent.monkey.patch_all()
import gevent, gevent.lock, os
from lockbench import Cluster, exclusive, faults
with Cluster("redis") as cluster, exclusive(cluster) as section:
    def work():
        with lock, section.inside("k"):
            gevent.sleep(0.01)
    lock = gevent.lock.RLock()
    gevent.joinall([gevent.spawn(work) for _ in range(2)])
    with faults.pause(cluster):
        gevent.spawn(work).join()
print(os.getpid())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert left_of(int(done.stdout)) == []


@pytest.mark.docker
@pytest.mark.parametrize(
    "topology",
    [
        pytest.param(name, marks=[] if name in QUICK else [pytest.mark.long])
        for name in topologies()
        if any(name in system.topologies for system in systems().values())
    ],
)
def test_what_was_written_is_gone_once_it_is_emptied(topology: str) -> None:
    with Cluster(topology) as cluster:
        lock = plain_recipe(topology)
        before, after = (Client(lock, cluster.addresses, ttl_s=60) for _ in range(2))
        try:
            before.take("k", wait_s=5)
            with pytest.raises(NotAcquired):
                after.take("k", wait_s=0)
            cluster.empty()
            after.take("k", wait_s=5)
        finally:
            for client in (before, after):
                client.close()


# --- a service with a defect, and its neighbour ---


class Service:
    """Works under SET NX with an expiry, which it does not renew."""

    def __init__(
        self, cluster: Cluster, section: Recording, expiry_ms: int, working_at_once: int
    ) -> None:
        self._redis = redis.Redis(*cluster.addresses[0])
        self._section = section
        self._expiry_ms = expiry_ms
        self._working_at_once = working_at_once
        self._came: list[str] = []

    def work(self) -> None:
        while not self._redis.set("lock", "x", nx=True, px=self._expiry_ms):
            time.sleep(0.002)
        with self._section.inside("order"):
            self._came.append(threading.current_thread().name)
            eventually(lambda: len(self._came) >= self._working_at_once)
            time.sleep(0.02)
        self._redis.delete("lock")


def served(cluster: Cluster, expiry_ms: int, working_at_once: int = 1) -> None:
    """Work that lasts until so many have come to it."""
    cluster.empty()
    with exclusive(cluster) as section:
        service = Service(cluster, section, expiry_ms, working_at_once)
        threads = [threading.Thread(target=service.work, name=f"worker-{i}") for i in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


@pytest.mark.docker
def test_an_expiry_shorter_than_the_work_is_told_every_time(cluster: Cluster) -> None:
    for _ in range(20):
        with pytest.raises(BrokenPromise, match="more than one holder inside at once"):
            served(cluster, 5, working_at_once=2)


@pytest.mark.docker
def test_an_expiry_longer_than_the_work_is_never_told(cluster: Cluster) -> None:
    for _ in range(20):
        served(cluster, 60_000)
