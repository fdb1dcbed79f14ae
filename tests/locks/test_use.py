"""A lock as a program uses it, against a scripted Redis."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from lockbench.locks.base import Acquired, Hold
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis import watchdog as redis_watchdog
from lockbench.locks.redis.token import RedisToken
from lockbench.locks.registry import LockNotFoundError
from lockbench.locks.use import Client, Grant, MayBeAcquired, NotAcquired, NotReleased
from tests.eventually import eventually
from tests.locks.fakes import Close, FakeRedis

TTL_S, PATIENT_S = 30.0, 10.0


def client(server: FakeRedis, name: str = "redis-token", ttl_s: float = TTL_S) -> Client:
    return Client(name, [server.address], ttl_s=ttl_s, timeout_s=PATIENT_S)


def test_the_block_runs_under_the_lock_and_gives_it_back(server: FakeRedis) -> None:
    with client(server) as locks:
        with locks.held("k", wait_s=0) as grant:
            assert server.value("k") is not None
            assert not grant.lost
            assert grant.fence is None
        assert server.value("k") is None


def test_the_block_does_not_run_without_the_lock(server: FakeRedis) -> None:
    ran = False
    with client(server) as locks, locks.held("k", wait_s=0):
        for wait_s in (0, 0.1):
            with (
                client(server) as other,
                pytest.raises(NotAcquired, match="k: "),
                other.held("k", wait_s=wait_s),
            ):
                ran = True
    assert not ran


def test_what_is_not_known_is_not_acquired(server: FakeRedis) -> None:
    server.on("SET", Close())
    with client(server) as locks, pytest.raises(MayBeAcquired):
        locks.take("k", wait_s=0)


def test_waiting_has_a_deadline(server: FakeRedis) -> None:
    def end_the_first() -> None:
        eventually(lambda: server.names().count("SET") >= 2)
        server.keys.clear()

    with client(server) as first, client(server) as second:
        first.take("k", wait_s=0)
        thread = threading.Thread(target=end_the_first)
        thread.start()
        assert not second.take("k", wait_s=20).lost
        thread.join()


def test_what_was_taken_is_given_back_by_hand(server: FakeRedis) -> None:
    with client(server) as locks:
        grant = locks.take("k", wait_s=0)
        grant.release()
        assert server.value("k") is None
        assert grant.lost
        with pytest.raises(NotReleased, match="over before"):
            grant.release()


def overstay(locks: Client, server: FakeRedis) -> None:
    with locks.held("k", wait_s=0) as grant:
        eventually(lambda: grant.lost)
        server.keys.clear()


def test_a_block_that_outlived_its_hold_is_told(server: FakeRedis) -> None:
    with client(server, ttl_s=1.0) as locks, pytest.raises(NotReleased, match="over before"):
        overstay(locks, server)


def test_an_unconfirmed_release_is_told(server: FakeRedis) -> None:
    with (
        client(server) as locks,
        pytest.raises(NotReleased, match="ConnectionError"),
        locks.held("k", wait_s=0),
    ):
        server.on("EVALSHA", Close())


def test_an_error_of_the_block_comes_first_and_the_lock_is_given_back(server: FakeRedis) -> None:
    with client(server) as locks, pytest.raises(ZeroDivisionError), locks.held("k", wait_s=0):
        _ = 1 / 0
    assert server.value("k") is None


def fail_without_the_key(locks: Client, server: FakeRedis) -> None:
    with locks.held("k", wait_s=0):
        server.keys.clear()
        _ = 1 / 0


def test_an_error_of_the_block_hides_that_of_the_release(server: FakeRedis) -> None:
    with client(server) as locks, pytest.raises(ZeroDivisionError):
        fail_without_the_key(locks, server)


def test_extending(server: FakeRedis) -> None:
    with client(server) as locks:
        grant = locks.take("k", wait_s=0)
        before_ns = grant.valid_until_ns
        assert grant.extend(60)
        assert before_ns is not None
        assert grant.valid_until_ns is not None
        assert grant.valid_until_ns > before_ns + 20_000_000_000
        longer_ns = grant.valid_until_ns
        assert grant.extend(20)
        assert grant.valid_until_ns < longer_ns
        server.on("EVALSHA", Close())
        assert not grant.extend(60)
        assert not grant.lost
        server.keys.clear()
        assert not grant.extend(60)
        assert grant.lost


def test_what_a_lock_cannot_do_is_said(server: FakeRedis) -> None:
    with client(server, "redis-setnx") as locks:
        grant = locks.take("k", wait_s=0)
        assert grant.valid_until_ns is None
        assert not grant.lost
        with pytest.raises(TypeError, match="RedisSetnx cannot be extended"):
            grant.extend(1)
        with pytest.raises(TypeError, match="RedisSetnx cannot be shared"):
            locks.take("other", wait_s=0, shared=True)


class Readers(RedisToken):
    """Redis' token lock with a second way in, which asks for another key."""

    def acquire_shared(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        return self.acquire(f"{key} to read", hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)


def test_asking_to_read(server: FakeRedis) -> None:
    system = replace(redis_token.SYSTEM, connect=Readers)
    with Client(system, [server.address], ttl_s=TTL_S, timeout_s=PATIENT_S) as locks:
        with locks.held("k", wait_s=0, shared=True):
            assert server.value("k to read") is not None
            assert server.value("k") is None
        assert server.value("k to read") is None


def test_a_name_that_does_not_exist(server: FakeRedis) -> None:
    with pytest.raises(LockNotFoundError, match="'redis-tokn'"):
        client(server, "redis-tokn")


def renewed(grant: Grant) -> None:
    known_ns = grant.valid_until_ns
    eventually(lambda: grant.valid_until_ns != known_ns)


def test_a_renewal_in_the_background_lengthens_and_a_loss_is_told(
    server: FakeRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_watchdog, "RENEWALS_PER_TTL", TTL_S / 0.2)
    told: list[Hold] = []
    with Client(
        "redis-watchdog", [server.address], ttl_s=TTL_S, timeout_s=PATIENT_S, told=told.append
    ) as locks:
        grant = locks.take("k", wait_s=0)
        renewed(grant)
        renewed(grant)
        assert not grant.lost
        server.keys.clear()
        eventually(lambda: told)
        assert told == [grant.hold]
        assert grant.lost
