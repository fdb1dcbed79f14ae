"""redis-token and its control against a scripted server: every error, and what it must mean."""

from __future__ import annotations

import time
from contextlib import closing

import pytest

from lockbench.locks.base import (
    Address,
    Denied,
    Freed,
    Granted,
    Hold,
    NoObserver,
    NotHeld,
    Released,
    System,
    Unknown,
    new_hold_id,
)
from lockbench.locks.redis import no_owner as redis_no_owner
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.link import RESTED_S, NotSent
from lockbench.locks.redis.token import RedisToken
from tests.eventually import eventually
from tests.locks.asking import LONG_S, PATIENT_S, granted, said, take
from tests.locks.fakes import Action, Close, FakeRedis, Late, Reply, Silent, closed_port

SHORT_S = 0.15  # to wait for a server that will not answer

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


def connect(system: System, address: Address, timeout_s: float = PATIENT_S) -> RedisToken:
    lock = system.connect([address], timeout_s=timeout_s, ttl_s=LONG_S, observer=NoObserver())
    assert isinstance(lock, RedisToken)
    return lock


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
        assert isinstance(take(lock, 20), Granted)


def test_a_refused_try_is_held_and_a_refused_wait_gave_up(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        granted(lock)
        assert take(lock) == Denied("held")
        began = time.monotonic()
        assert said(take(lock, 0.1)) == "Denied: gave-up"
        assert 0.1 <= time.monotonic() - began < LONG_S, "it waited for as long as the key lived"


def test_the_promise_starts_when_the_command_is_sent(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        server.on("SET", Late(0.1))
        before_ns = time.monotonic_ns()
        grant = granted(lock)
        assert grant.valid_until_ns == grant.sent_ns + int(LONG_S * 1e9)
        assert before_ns <= grant.sent_ns <= time.monotonic_ns() - 100_000_000


def test_extending_renews_the_own_hold_only(server: FakeRedis) -> None:
    with closing(connect(redis_token.SYSTEM, server.address)) as lock:
        grant = granted(lock)
        again = lock.extend(grant.hold, 60)
        assert isinstance(again, Granted)
        assert again.valid_until_ns == again.sent_ns + 60_000_000_000
        assert isinstance(lock.extend(Hold(new_hold_id(), "k"), 60), NotHeld)


@pytest.mark.parametrize(
    ("system", "late", "successors"),
    [(redis_token.SYSTEM, NotHeld(), Released()), (redis_no_owner.SYSTEM, Released(), NotHeld())],
)
def test_only_the_control_deletes_its_successors_key(
    server: FakeRedis, system: System, late: Freed, successors: Freed
) -> None:
    with closing(connect(system, server.address)) as lock:
        first = granted(lock)
        server.keys.clear()  # as when its time is over
        second = granted(lock)
        assert (lock.release(first.hold), lock.release(second.hold)) == (late, successors)


def test_a_connection_that_ended_while_it_rested_is_made_anew(server: FakeRedis) -> None:
    """The command would have an unknown fate on it."""
    lock = connect(redis_token.SYSTEM, server.address)
    with closing(lock):
        hold = granted(lock).hold
        server.drop_connections()
        time.sleep(2 * RESTED_S)
        assert isinstance(lock.release(hold), Released)
