"""Readers, writers and permits: what several may hold together, and who waits for whom."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from lockbench.bench.duties import LEASE_S
from lockbench.locks.base import Acquired, Denied, Granted, Lock, Released, Shareable, new_hold_id
from lockbench.locks.zookeeper.mutex import NodeGoneError, ZooKeeper, parent_of
from lockbench.locks.zookeeper.read_write import READ, WRITE, ReadWritePlace
from lockbench.locks.zookeeper.semaphore import PermitPlace
from tests.eventually import eventually
from tests.locks.asking import Room, meanwhile

QUEUE = ["a-read-0000000001", "b-write-0000000002", "c-read-0000000003", "d-read-0000000004"]


def place(node: str, mark: str) -> ReadWritePlace:
    return ReadWritePlace("/p", node[0], mark, node=node, czxid=7)


def test_a_reader_waits_for_the_writer_before_it_only() -> None:
    assert place(QUEUE[0], READ).before(QUEUE) is None
    assert place(QUEUE[3], READ).before(QUEUE) == "/p/b-write-0000000002"
    without = [node for node in QUEUE if WRITE not in node]
    assert place(QUEUE[3], READ).before(without) is None


def test_a_writer_waits_for_everybody_before_it() -> None:
    assert place(QUEUE[1], WRITE).before(QUEUE) == "/p/a-read-0000000001"
    assert place(QUEUE[1], WRITE).before(QUEUE[1:]) is None


def test_only_writers_have_a_fence() -> None:
    assert place(QUEUE[1], WRITE).fence == 7
    assert place(QUEUE[0], READ).fence is None


def test_permits_go_to_the_first_in_the_queue() -> None:
    queue = [f"{letter}-lock-000000000{number}" for number, letter in enumerate("abcd")]
    for node, ahead in zip(
        queue, [None, None, "/p/b-lock-0000000001", "/p/c-lock-0000000002"], strict=True
    ):
        assert PermitPlace("/p", node[0], node=node, permits=2).before(queue) == ahead
    with pytest.raises(NodeGoneError):
        PermitPlace("/p", "x", node="x-lock-0000000009", permits=2).before(queue)


def read(room: Room, lock: Lock, wait_s: float = 0.0) -> Acquired:
    assert isinstance(lock, Shareable)
    return lock.acquire_shared(room.key, hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=wait_s)


def queued(room: Room, lock: Lock) -> int:
    """How many hold the key or wait for it. ``lock``: a client that has a session."""
    assert isinstance(lock, ZooKeeper)
    return len(lock._session.client.get_children(parent_of(room.key)))


@pytest.fixture
def ensemble(room: Callable[[str], Room]) -> Room:
    return room("zookeeper")


@pytest.mark.docker
def test_readers_share_and_writers_do_not(ensemble: Room) -> None:
    locks = [ensemble.client("zookeeper-read-write") for _ in range(4)]
    readers = [read(ensemble, locks[0], 5), read(ensemble, locks[1], 5)]
    assert all(isinstance(reader, Granted) for reader in readers)
    assert isinstance(ensemble.take(locks[2]), Denied)
    with meanwhile(lambda: ensemble.granted(locks[2], 20)) as writing:
        eventually(lambda: queued(ensemble, locks[0]) == 3)
        assert not writing.done()
        assert isinstance(read(ensemble, locks[3]), Denied)  # nobody overtakes a waiting writer
        for lock, reader in zip(locks, readers, strict=False):
            assert isinstance(reader, Granted)
            assert reader.fence is None
            assert isinstance(lock.release(reader.hold), Released)
    assert writing.result().fence is not None
    assert isinstance(read(ensemble, locks[3]), Denied)
    assert isinstance(locks[2].release(writing.result().hold), Released)
    assert isinstance(read(ensemble, locks[3], 5), Granted)


@pytest.mark.docker
def test_three_permits(ensemble: Room) -> None:
    locks = [ensemble.client("zookeeper-semaphore") for _ in range(4)]
    held = [ensemble.granted(lock, 5) for lock in locks[:3]]
    assert isinstance(ensemble.take(locks[3]), Denied)
    with meanwhile(lambda: ensemble.granted(locks[3], 20)) as waiting:
        eventually(lambda: queued(ensemble, locks[0]) == 4)
        assert not waiting.done()
        assert isinstance(locks[1].release(held[1].hold), Released)


@pytest.mark.docker
def test_an_answer_that_is_not_due_does_not_end_the_client(ensemble: Room) -> None:
    """kazoo's connection routine ended with it, and every later request was kept for ever."""
    lock = ensemble.client("zookeeper")
    assert isinstance(lock, ZooKeeper)
    assert lock.release(ensemble.granted(lock, 5).hold) == Released()
    kazoo = lock._session.client
    kazoo._pending.appendleft((None, kazoo.handler.async_result(), 10**9))
    end = time.monotonic() + 20.0
    while not isinstance(answer := ensemble.take(lock, 1), Granted):
        assert time.monotonic() < end, answer
    assert lock.release(answer.hold) == Released()
