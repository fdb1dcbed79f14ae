"""Readers, writers and permits: what several may hold together, and who waits for whom."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from bench.duties import LEASE_S, Running
from locks import registry
from locks.base import (
    Acquired,
    Denied,
    Granted,
    Lock,
    NoObserver,
    Released,
    Shareable,
    new_hold_id,
    token_of,
)
from locks.zookeeper.mutex import NodeGoneError, ZooKeeper
from locks.zookeeper.read_write import READ, WRITE, ReadWritePlace
from locks.zookeeper.semaphore import PermitPlace

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


@dataclass
class Room:
    """A real ensemble, a fresh key, clients that are closed at the end."""

    running: Running
    open: ExitStack
    key: str

    def client(self, name: str) -> Lock:
        lock = registry.find(name).connect(
            self.running.nodes, timeout_s=5, ttl_s=LEASE_S, observer=NoObserver()
        )
        self.open.callback(lock.close)
        return lock

    def write(self, lock: Lock, wait_s: float = 0.0) -> Acquired:
        return lock.acquire(self.key, hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=wait_s)

    def read(self, lock: Lock, wait_s: float = 0.0) -> Acquired:
        assert isinstance(lock, Shareable)
        return lock.acquire_shared(self.key, hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=wait_s)


@pytest.fixture
def room(running: Callable[[str], Running]) -> Iterator[Room]:
    with ExitStack() as stack:
        yield Room(running("zookeeper"), stack, f"shared-{token_of(new_hold_id())}")


@pytest.mark.docker
def test_readers_share_and_writers_do_not(room: Room) -> None:
    locks = [room.client("zookeeper-read-write") for _ in range(4)]
    readers = [room.read(locks[0], 5), room.read(locks[1], 5)]
    assert all(isinstance(reader, Granted) for reader in readers)
    assert isinstance(room.write(locks[2]), Denied)
    written: list[Acquired] = []
    writer = threading.Thread(target=lambda: written.append(room.write(locks[2], 20)))
    writer.start()
    writer.join(0.3)
    assert not written
    assert isinstance(room.read(locks[3]), Denied)  # nobody overtakes a writer that waits
    for lock, reader in zip(locks, readers, strict=False):
        assert isinstance(reader, Granted)
        assert reader.fence is None
        assert isinstance(lock.release(reader.hold), Released)
    writer.join(20)
    assert isinstance(written[0], Granted)
    assert written[0].fence is not None
    assert isinstance(room.read(locks[3]), Denied)
    assert isinstance(locks[2].release(written[0].hold), Released)
    assert isinstance(room.read(locks[3], 5), Granted)


@pytest.mark.docker
def test_three_permits(room: Room) -> None:
    locks = [room.client("zookeeper-semaphore") for _ in range(4)]
    held = [room.write(lock, 5) for lock in locks[:3]]
    assert all(isinstance(answer, Granted) for answer in held)
    assert isinstance(room.write(locks[3]), Denied)
    waited: list[Acquired] = []
    waiter = threading.Thread(target=lambda: waited.append(room.write(locks[3], 20)))
    waiter.start()
    waiter.join(0.3)
    assert not waited
    second = held[1]
    assert isinstance(second, Granted)
    assert isinstance(locks[1].release(second.hold), Released)
    waiter.join(20)
    assert isinstance(waited[0], Granted)


@pytest.mark.docker
def test_an_answer_that_is_not_due_does_not_end_the_client(room: Room) -> None:
    """kazoo's connection routine ended with it, and every later request was kept for ever."""
    lock = room.client("zookeeper")
    assert isinstance(lock, ZooKeeper)
    first = room.write(lock, 5)
    assert isinstance(first, Granted)
    assert lock.release(first.hold) == Released()
    kazoo = lock._session.client
    kazoo._pending.appendleft((None, kazoo.handler.async_result(), 10**9))
    end = time.monotonic() + 20.0
    while not isinstance(answer := room.write(lock, 1), Granted):
        assert time.monotonic() < end, answer
    assert lock.release(answer.hold) == Released()
