"""redis-token and its control against a scripted server: every error, and what it must mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from locks.base import (
    Address,
    Denied,
    Granted,
    Hold,
    NoObserver,
    NotHeld,
    Released,
    System,
    Unknown,
    new_hold_id,
)
from locks.redis import no_owner as redis_no_owner
from locks.redis import token as redis_token
from locks.redis.link import RESTED_S, NotSent
from locks.redis.token import RedisToken
from tests.eventually import eventually
from tests.locks.fakes import Action, Close, FakeRedis, Late, Reply, Silent, closed_port

TTL_S = 30.0
PATIENT_S, SHORT_S = 10.0, 0.15  # to wait for a server that answers, and for one that will not

OOM = Reply(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n")
LOADING = Reply(b"-LOADING Redis is loading the dataset in memory\r\n")
NONSENSE = Reply(b"?what\r\n")
NOSCRIPT = Reply(b"-NOSCRIPT No matching script.\r\n")

ACTIONS: dict[str, Action] = {
    "BusyLoadingError": LOADING,
    "ResponseError": OOM,
    "TimeoutError": Silent(),
    "ConnectionError": Close(),
    "InvalidResponse": NONSENSE,
    "NoScriptError": NOSCRIPT,
}

SYSTEMS = [redis_token.SYSTEM, redis_no_owner.SYSTEM]
ROWS = [(system, row) for system in SYSTEMS for row in system.outcomes]


@pytest.fixture
def server() -> Iterator[FakeRedis]:
    fake = FakeRedis()
    yield fake
    fake.stop()


def connect(system: System, address: Address, timeout_s: float = PATIENT_S) -> RedisToken:
    lock = system.connect([address], timeout_s=timeout_s, ttl_s=TTL_S, observer=NoObserver())
    assert isinstance(lock, RedisToken)
    return lock


def take(lock: RedisToken, *, wait_s: float = 0.0, ttl_s: float = TTL_S) -> object:
    return lock.acquire("k", hold_id=new_hold_id(), ttl_s=ttl_s, wait_s=wait_s)


def granted(lock: RedisToken) -> Granted:
    answer = take(lock)
    assert isinstance(answer, Granted)
    return answer


def patience_s(error: str) -> float:
    return SHORT_S if error == "TimeoutError" else PATIENT_S


def opened(lock: RedisToken) -> None:
    """So that a short time limit can end the command only."""

    def true() -> bool:
        try:
            lock._link.open()
        except NotSent:
            return False
        return True

    eventually(true)


def said(answer: object) -> str:
    if isinstance(answer, Denied):
        return f"Denied: {answer.reason.split(':')[0]}"
    return type(answer).__name__


@pytest.mark.parametrize(("system", "row"), ROWS, ids=[f"{s.name}-{row}" for s, row in ROWS])
def test_every_error_means_what_the_table_says(server: FakeRedis, system: System, row: str) -> None:
    call, _, error = row.partition(": ")
    lock = connect(system, server.address, patience_s(error))
    with closing(lock):
        opened(lock)
        if call == "acquire":
            answer = _acquire_with(server, system, lock, error)
        else:
            answer = _release_with(server, system, lock, error)
    assert said(answer) == system.outcomes[row]


def _acquire_with(server: FakeRedis, system: System, lock: RedisToken, error: str) -> object:
    if error == "no connection":
        return take(connect(system, closed_port()))
    if error == "granted too late":
        server.on("SET", Late(0.1))
        return take(lock, ttl_s=0.05)
    server.on("SET", ACTIONS[error])
    return take(lock)


def _release_with(server: FakeRedis, system: System, lock: RedisToken, error: str) -> object:
    with closing(connect(system, server.address)) as holder:
        hold = granted(holder).hold
    if error == "no connection":
        return connect(system, closed_port()).release(hold)
    server.on("EVALSHA", ACTIONS[error])
    server.on("DEL", ACTIONS[error])
    return lock.release(hold)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_next_call_after_a_broken_connection_works(server: FakeRedis, system: System) -> None:
    # A limit that is waited for once, and that the calls after it keep.
    with closing(connect(system, server.address, timeout_s=1.0)) as lock:
        opened(lock)
        for action in (Silent(), Close(), NONSENSE):
            server.on("SET", action)
            assert isinstance(take(lock), Unknown)
            server.keys.clear()
            assert isinstance(lock.release(granted(lock).hold), Released)


def test_a_command_is_sent_once(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        server.on("SET", Close())
        assert isinstance(take(lock), Unknown)
    assert server.names() == ["SET"]


def test_a_silent_server_behind_an_accepting_socket_has_no_effect(server: FakeRedis) -> None:
    """What a proxy in front of a dead server looks like."""
    server.on("PING", Close())
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        assert said(take(lock)) == "Denied: no-effect"
    assert server.names() == []


def test_waiting_outlives_a_server_that_is_away(server: FakeRedis) -> None:
    server.on("PING", Close(), Close(), Close())
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        assert isinstance(take(lock, wait_s=20), Granted)


def test_a_refused_try_is_held_and_a_refused_wait_gave_up(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        granted(lock)
        assert take(lock) == Denied("held")
        began = time.monotonic()
        assert said(take(lock, wait_s=0.1)) == "Denied: gave-up"
        assert 0.1 <= time.monotonic() - began < TTL_S, "it waited for as long as the key lived"


def test_the_promise_starts_when_the_command_is_sent(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        server.on("SET", Late(0.1))
        before_ns = time.monotonic_ns()
        grant = granted(lock)
        assert grant.valid_until_ns == grant.sent_ns + int(TTL_S * 1e9)
        assert before_ns <= grant.sent_ns <= time.monotonic_ns() - 100_000_000


def test_extending_renews_the_own_hold_only(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        grant = granted(lock)
        again = lock.extend(grant.hold, 60)
        assert isinstance(again, Granted)
        assert again.valid_until_ns == again.sent_ns + 60_000_000_000
        assert isinstance(lock.extend(Hold(new_hold_id(), "k"), 60), NotHeld)


def test_the_token_guards_a_successor(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        first = granted(lock)
        server.keys.clear()  # as when its time is over
        second = granted(lock)
        assert isinstance(lock.release(first.hold), NotHeld)
        assert isinstance(lock.release(second.hold), Released)


def test_the_control_deletes_its_successors_key(server: FakeRedis) -> None:
    with closing(connect(redis_no_owner.SYSTEM, server.address)) as lock:
        first = granted(lock)
        server.keys.clear()  # as when its time is over
        second = granted(lock)
        assert isinstance(lock.release(first.hold), Released)
        assert isinstance(lock.release(second.hold), NotHeld)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_closing_twice_and_closing_unused(server: FakeRedis, system: System) -> None:
    closer: Callable[[], None] = connect(system, server.address).close
    closer()
    closer()


def test_a_connection_that_ended_while_it_rested_is_made_anew(server: FakeRedis) -> None:
    """The command would have an unknown fate on it."""
    lock = connect(redis_token.SYSTEM, server.address)
    with closing(lock):
        hold = granted(lock).hold
        server.drop_connections()
        time.sleep(2 * RESTED_S)
        assert isinstance(lock.release(hold), Released)
