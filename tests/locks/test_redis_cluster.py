"""redis-cluster against scripted servers: whom it asks, what it follows, what errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from lockbench.clusters.redis.cluster import slot_of
from lockbench.locks.base import Hold, NoObserver, Released, Unknown
from lockbench.locks.redis.cluster import SYSTEM, RedisClusterLock
from tests.locks.asking import LONG_S, PATIENT_S, granted, said, take
from tests.locks.fakes import Close, FakeRedis, Late, Reply
from tests.locks.test_redis_token import ACTIONS, opened, patience_s

CLUSTERDOWN = Reply(b"-CLUSTERDOWN The cluster is down\r\n")
LAST_SLOT = 16383


class FakeNode(FakeRedis):
    """A Redis that says who owns all slots."""

    owner_port = 0

    def _run(self, command: tuple[bytes, ...]) -> bytes:
        if command != (b"CLUSTER", b"SLOTS"):
            return super()._run(command)
        self.log.append(command)
        # An address of its own: a client has to go by the port.
        owner = b"*3\r\n$9\r\n10.9.9.99\r\n:%d\r\n$2\r\nid\r\n" % self.owner_port
        return b"*1\r\n*3\r\n:0\r\n:%d\r\n%s" % (LAST_SLOT, owner)


class Site:
    """Three nodes, the first of which owns everything."""

    def __init__(self) -> None:
        self.nodes = [FakeNode() for _ in range(3)]
        self.addresses = [node.address for node in self.nodes]
        self.give_to(self.nodes[0])

    def give_to(self, owner: FakeNode) -> None:
        for node in self.nodes:
            node.owner_port = owner.address.port

    def move(self, key: str, source: FakeNode, target: FakeNode, command: str = "SET") -> None:
        answer = f"-MOVED {slot_of(key)} 10.9.9.99:{target.address.port}\r\n"
        source.on(command, Reply(answer.encode()))

    def connect(self, timeout_s: float = PATIENT_S) -> RedisClusterLock:
        lock = SYSTEM.connect(
            self.addresses, timeout_s=timeout_s, ttl_s=LONG_S, observer=NoObserver()
        )
        assert isinstance(lock, RedisClusterLock)
        return lock


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    for node in site.nodes:
        node.stop()


@pytest.mark.parametrize("row", SYSTEM.outcomes)
def test_every_error_means_what_the_table_says(site: Site, row: str) -> None:
    call, _, error = row.partition(": ")
    with closing(site.connect()) as holder:
        hold = granted(holder).hold if call == "release" else None
    with closing(site.connect(patience_s(error))) as lock:
        answer = _release(site, lock, hold, error) if hold else _acquire(site, lock, error)
    assert said(answer) == SYSTEM.outcomes[row]


def _acquire(site: Site, lock: RedisClusterLock, error: str) -> object:
    owner, other, _ = site.nodes
    if error == "no connection":
        # First as a guide, then as the owner.
        owner.on("PING", Close(), Close())
    elif error == "nobody knows the owner":
        for node in site.nodes:
            node.on("CLUSTER", CLUSTERDOWN)
    elif error == "CLUSTERDOWN":
        owner.on("SET", CLUSTERDOWN)
    elif error == "MOVED":
        site.move("k", owner, other)
    elif error == "MOVED in circles":
        for _ in range(9):
            site.move("k", owner, other)
            site.move("k", other, owner)
    elif error == "granted too late":
        owner.on("SET", Late(0.1))
        return take(lock, ttl_s=0.05)
    else:
        lock._link.aim("k")
        opened(lock)
        owner.on("SET", ACTIONS[error])
    return take(lock)


def _release(site: Site, lock: RedisClusterLock, hold: Hold, error: str) -> object:
    owner = site.nodes[0]
    lock._link.aim("k")
    opened(lock)
    if error == "no connection":
        lock.close()
        owner.on("PING", Close())
    else:
        owner.on("EVALSHA", ACTIONS[error])
    return lock.release(hold)


def test_what_moved_is_remembered_and_nothing_is_sent_twice(site: Site) -> None:
    owner, other, _ = site.nodes
    site.move("k", owner, other)
    with closing(site.connect()) as lock:
        hold = granted(lock).hold
        assert isinstance(lock.release(hold), Released)
    assert [name for name in other.names() if name != "CLUSTER"] == ["SET", "EVALSHA"]
    assert "SET" not in owner.names()


def test_each_key_goes_to_its_own_owner(site: Site) -> None:
    owner, other, _ = site.nodes
    with closing(site.connect()) as lock:
        first = granted(lock).hold
        site.give_to(other)
        second = granted(lock, key="another").hold
        assert isinstance(lock.release(first), Released)
        assert isinstance(lock.release(second), Released)
    assert owner.value("another") is None
    assert [name for name in other.names() if name != "CLUSTER"] == ["SET", "EVALSHA"]


def test_after_a_broken_request_the_owner_is_looked_for_again(site: Site) -> None:
    owner, other, _ = site.nodes
    with closing(site.connect()) as lock:
        owner.on("SET", Close())
        assert isinstance(take(lock), Unknown)
        site.give_to(other)
        granted(lock)
    assert "SET" in other.names()


def test_a_guide_that_does_not_answer_is_passed_over(site: Site) -> None:
    for _ in range(3):
        for node in site.nodes[1:]:
            node.on("CLUSTER", CLUSTERDOWN)
        with closing(site.connect()) as lock:
            hold = granted(lock).hold
            assert isinstance(lock.release(hold), Released)
