"""The lock as a program uses it, against a scripted Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from locks import redis_setnx, redis_token, redis_watchdog
from locks.base import Hold, Lock, System
from locks.use import Losses, MayBeAcquired, NotAcquired, NotReleased, held, take
from tests.locks.fakes import Close, FakeRedis, Silent

TTL_S = 0.6


@pytest.fixture
def server() -> Iterator[FakeRedis]:
    fake = FakeRedis()
    yield fake
    fake.stop()


def client(server: FakeRedis, losses: Losses, system: System = redis_token.SYSTEM) -> Lock:
    return system.connect([server.address], timeout_s=0.15, ttl_s=TTL_S, observer=losses)


def test_the_block_runs_under_the_lock_and_gives_it_back(server: FakeRedis) -> None:
    with closing(client(server, Losses())) as lock:
        with held(lock, "k", ttl_s=TTL_S, wait_s=0) as grant:
            assert server.value("k") is not None
            assert not grant.lost
            assert grant.fence is None
        assert server.value("k") is None


def test_the_block_does_not_run_without_the_lock(server: FakeRedis) -> None:
    ran = False
    with closing(client(server, Losses())) as lock, held(lock, "k", ttl_s=TTL_S, wait_s=0):
        for wait_s in (0, 0.1):
            with (
                closing(client(server, Losses())) as other,
                pytest.raises(NotAcquired, match="k: "),
                held(other, "k", ttl_s=TTL_S, wait_s=wait_s),
            ):
                ran = True
    assert not ran


def test_what_is_not_known_is_not_acquired(server: FakeRedis) -> None:
    server.on("SET", Close())
    with closing(client(server, Losses())) as lock, pytest.raises(MayBeAcquired):
        take(lock, "k", ttl_s=TTL_S, wait_s=0)


def test_waiting_has_a_deadline(server: FakeRedis) -> None:
    with closing(client(server, Losses())) as first, closing(client(server, Losses())) as second:
        take(first, "k", ttl_s=0.2, wait_s=0)
        grant = take(second, "k", ttl_s=TTL_S, wait_s=5)
        assert not grant.lost


def test_a_block_that_outlived_its_hold_is_told(server: FakeRedis) -> None:
    def overstay(lock: Lock) -> None:
        with held(lock, "k", ttl_s=0.05, wait_s=0) as grant:
            while not grant.lost:
                time.sleep(0.005)
            server.keys.clear()

    with closing(client(server, Losses())) as lock, pytest.raises(NotReleased, match="over before"):
        overstay(lock)


def test_an_unconfirmed_release_is_told(server: FakeRedis) -> None:
    with (
        closing(client(server, Losses())) as lock,
        pytest.raises(NotReleased, match="TimeoutError"),
        held(lock, "k", ttl_s=TTL_S, wait_s=0),
    ):
        server.on("EVALSHA", Silent())


def test_an_error_of_the_block_comes_first_and_the_lock_is_given_back(server: FakeRedis) -> None:
    with (
        closing(client(server, Losses())) as lock,
        pytest.raises(ZeroDivisionError),
        held(lock, "k", ttl_s=TTL_S, wait_s=0),
    ):
        _ = 1 / 0
    assert server.value("k") is None


def test_extending(server: FakeRedis) -> None:
    with closing(client(server, Losses())) as lock:
        grant = take(lock, "k", ttl_s=TTL_S, wait_s=0)
        before_ns = grant.valid_until_ns
        assert grant.extend(30)
        assert before_ns is not None
        assert grant.valid_until_ns is not None
        assert grant.valid_until_ns > before_ns + 20_000_000_000
        server.on("EVALSHA", Silent())
        assert not grant.extend(60)
        assert not grant.lost
        server.keys.clear()
        assert not grant.extend(60)
        assert grant.lost


def test_a_lock_that_cannot_be_extended_says_so(server: FakeRedis) -> None:
    with closing(client(server, Losses(), redis_setnx.SYSTEM)) as lock:
        grant = take(lock, "k", ttl_s=TTL_S, wait_s=0)
        assert grant.valid_until_ns is None
        assert not grant.lost
        with pytest.raises(TypeError, match="RedisSetnx cannot be extended"):
            grant.extend(1)


def test_a_loss_is_told_and_a_renewal_lengthens(server: FakeRedis) -> None:
    told: list[Hold] = []
    losses = Losses(told.append)
    with closing(client(server, losses, redis_watchdog.SYSTEM)) as lock:
        grant = take(lock, "k", ttl_s=TTL_S, wait_s=0, losses=losses)
        first_ns = grant.valid_until_ns
        until = time.monotonic() + 10
        while grant.valid_until_ns == first_ns:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert not grant.lost
        server.keys.clear()
        while not told:
            assert time.monotonic() < until
            time.sleep(0.01)
        assert told == [grant.hold]
        assert grant.lost
