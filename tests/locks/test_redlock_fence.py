"""The counter on one of five nodes: what its errors mean, and that it is one node's alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from locks.base import Denied, Granted, NoObserver, Unknown, new_hold_id
from locks.redis.redlock_fence import COUNTER, SYSTEM, RedlockFence
from locks.redis.redlock_nodes import Question
from tests.eventually import eventually
from tests.locks.fakes import Action, Close, FakeRedis, Reply, Silent

PATIENT_S = 10.0
TTL_S = 10 * PATIENT_S  # nodes are waited for a tenth of it

ERROR = Reply(b"-ERR no\r\n")


@pytest.fixture
def servers() -> Iterator[list[FakeRedis]]:
    fakes = [FakeRedis() for _ in range(5)]
    yield fakes
    for fake in fakes:
        fake.stop()


@contextmanager
def connected(servers: list[FakeRedis]) -> Iterator[RedlockFence]:
    addresses = [server.address for server in servers]
    lock = RedlockFence(addresses, timeout_s=PATIENT_S, ttl_s=TTL_S, observer=NoObserver())
    with closing(lock):
        lock._nodes.ask(Question("PING"), set(range(5)), lambda _: False, PATIENT_S)
        assert all(node.ready for node in lock._nodes.nodes)
        yield lock


def take(lock: RedlockFence) -> object:
    return lock.acquire("k", hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=0)


def test_fences_grow_by_the_count_of_one_node(servers: list[FakeRedis]) -> None:
    with connected(servers) as lock:
        for expected in (1, 2, 3):
            granted = take(lock)
            assert isinstance(granted, Granted)
            assert granted.fence == expected
            lock.release(granted.hold)
    assert ["INCR" in server.names() for server in servers] == [True, *[False] * 4]


@pytest.mark.parametrize(
    ("row", "action"),
    [
        ("acquire: counting node closes", Close()),
        ("acquire: counting node replies with errors", ERROR),
        ("acquire: counting node closes", Silent()),
    ],
)
def test_without_a_number_the_hold_is_given_back(
    servers: list[FakeRedis], row: str, action: Action
) -> None:
    servers[COUNTER].on("INCR", action)
    with connected(servers) as lock:
        if isinstance(action, Silent):
            lock._limit_s = 1.0  # that the others are given too
        answer = take(lock)
        assert isinstance(answer, Denied)
        assert f"Denied: {answer.reason.split(':')[0]}" == SYSTEM.outcomes[row]
        # The last nodes are not waited for.
        eventually(lambda: not any(server.value("k") for server in servers[1:]))


def test_without_a_number_and_without_a_release_it_is_unknown(servers: list[FakeRedis]) -> None:
    servers[COUNTER].on("INCR", Close())
    for server in servers:
        server.on("EVALSHA", Silent())
    with connected(servers) as lock:
        lock._limit_s = 0.1
        assert isinstance(take(lock), Unknown)
