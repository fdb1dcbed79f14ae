"""Two locks of one name: what the control lets in, and what the other keeps out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from locks import registry
from locks.base import (
    Acquired,
    Denied,
    Granted,
    Lock,
    NoObserver,
    NotHeld,
    Released,
    new_hold_id,
    token_of,
)
from locks.hybrid_redis_confirmed_by_zookeeper import HybridRedisConfirmedByZooKeeper
from tests.locks.conftest import LEASE_S, Running

pytestmark = pytest.mark.docker


@dataclass
class Both:
    """A cluster of both, a fresh key, clients that are closed at the end."""

    running: Running
    open: ExitStack
    key: str

    def client(self, name: str) -> Lock:
        lock = registry.find(name).connect(
            self.running.nodes, timeout_s=1, ttl_s=LEASE_S, observer=NoObserver()
        )
        self.open.callback(lock.close)
        return lock

    def take(self, lock: Lock, wait_s: float) -> Acquired:
        return lock.acquire(self.key, hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=wait_s)


@pytest.fixture
def both(running: Callable[[str], Running]) -> Iterator[Both]:
    with ExitStack() as stack:
        key = f"hybrid-{token_of(new_hold_id())}"
        yield Both(running("redlock-zookeeper"), stack, key)


def test_contention_alone_lets_two_in(both: Both) -> None:
    one, two, three = (both.client("hybrid-redlock-else-zookeeper") for _ in range(3))
    first = both.take(one, 5)
    second = both.take(two, 5)
    assert isinstance(first, Granted)
    assert isinstance(second, Granted)
    assert isinstance(both.take(three, 0), Denied)
    assert isinstance(one.release(first.hold), Released)
    assert isinstance(one.release(first.hold), NotHeld)
    assert isinstance(two.release(second.hold), Released)


def test_a_filter_that_forgot_lets_nobody_in(both: Both) -> None:
    one, two = (both.client("hybrid-redis-confirmed-by-zookeeper") for _ in range(2))
    first = both.take(one, 5)
    assert isinstance(first, Granted)
    assert isinstance(one, HybridRedisConfirmedByZooKeeper)
    one._filter.release(first.hold.handle.filter)
    assert isinstance(both.take(two, 0), Denied)
    assert isinstance(one.release(first.hold), Released)
    assert isinstance(both.take(two, 5), Granted)
