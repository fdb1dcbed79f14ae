"""Redlock against five scripted servers: what late, silent and broken nodes may and may not do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial

import pytest

from lockbench.locks.base import Denied, Granted, NoObserver, NotHeld, Released, Unknown
from lockbench.locks.redis.redlock import NO_MAJORITY, SYSTEM, Redlock
from lockbench.locks.redis.redlock_nodes import OWED_MAX, Question
from tests.eventually import eventually
from tests.locks import asking
from tests.locks.asking import PATIENT_S, said
from tests.locks.fakes import Action, Close, FakeRedis, Late, Reply, Silent, closed_port

SHORT_S = 0.1  # to wait for nodes that will not answer
TTL_S = 10 * PATIENT_S  # nodes are waited for a tenth of it
MAJORITY = range(3)
MINORITY = range(2)
OOM = Reply(b"-OOM command not allowed when used memory > 'maxmemory'.\r\n")

Servers = list[FakeRedis]


@contextmanager
def connected(servers: Servers, kind: type[Redlock] = Redlock) -> Iterator[Redlock]:
    """A client whose five connections are up, so that a test begins with the locks."""
    addresses = [server.address for server in servers]
    lock = kind(addresses, timeout_s=PATIENT_S, ttl_s=TTL_S, observer=NoObserver())
    with closing(lock):
        lock._nodes.ask(Question("PING"), set(range(5)), lambda _: False, PATIENT_S)
        assert all(node.ready for node in lock._nodes.nodes)
        for server in servers:
            server.log.clear()
        yield lock


take = partial(asking.take, ttl_s=TTL_S)
granted = partial(asking.granted, ttl_s=TTL_S)


def drained(lock: Redlock, condition: Callable[[], bool]) -> None:
    def true() -> bool:
        met = condition()
        if not met:
            lock._nodes.drain()
        return met

    eventually(true)


def each(servers: Servers, numbers: range, command: str, *actions: Action) -> None:
    for number in numbers:
        servers[number].on(command, *actions)


def occupy(servers: Servers, numbers: range) -> None:
    for number in numbers:
        servers[number].keys[b"k"] = (b"somebody", time.monotonic() + 60)


def split(servers: Servers) -> None:
    occupy(servers, MINORITY)
    servers[2].on("SET", Close())


def silent_and_split(servers: Servers) -> None:
    each(servers, MINORITY, "SET", Silent())
    occupy(servers, range(2, 3))


def forget(servers: Servers) -> None:
    for server in servers[:3]:
        server.keys.clear()


Arrange = Callable[[Servers], None]

# Every row of the table: how to bring it about.
ACQUIRES: dict[str, Arrange] = {
    "majority refuses": lambda s: occupy(s, MAJORITY),
    "majority replies with errors": lambda s: each(s, MAJORITY, "SET", OOM),
    "split, one closes": split,
    "minority silent, rest split": silent_and_split,
    "majority silent": lambda s: each(s, MAJORITY, "SET", Silent()),
    "majority closes": lambda s: each(s, MAJORITY, "SET", Close()),
}
RELEASES: dict[str, Arrange] = {
    "majority closes": lambda s: each(s, MAJORITY, "EVALSHA", Close()),
    "majority silent": lambda s: each(s, MAJORITY, "EVALSHA", Silent()),
    "majority replies with errors": lambda s: each(s, MAJORITY, "EVALSHA", OOM),
    "majority has forgotten": forget,
    "minority silent": lambda s: each(s, MINORITY, "EVALSHA", Silent()),
}


@pytest.mark.parametrize("row", SYSTEM.outcomes)
def test_every_case_means_what_the_table_says(servers: Servers, row: str) -> None:
    call, _, case = row.partition(": ")
    if case == "no node connected":
        addresses = [closed_port() for _ in range(5)]
        lock = Redlock(addresses, timeout_s=1, ttl_s=TTL_S, observer=NoObserver())
        answer: object = take(lock)
    else:
        with connected(servers) as lock:
            answer = _acquire(servers, lock, case) if call == "acquire" else None
            if call == "release":
                hold = granted(lock).hold
                drained(lock, lambda: all(server.value("k") for server in servers))
                RELEASES[case](servers)
                if case == "majority silent":
                    lock._limit_s = SHORT_S
                answer = lock.release(hold)
    assert said(answer) == SYSTEM.outcomes[row]


def _acquire(servers: Servers, lock: Redlock, case: str) -> object:
    if case == "majority too late, deleted":
        each(servers, MAJORITY, "SET", Late(0.06))
        return take(lock, ttl_s=0.05)
    ACQUIRES[case](servers)
    if case == "majority silent":
        lock._limit_s = SHORT_S
    elif case == "minority silent, rest split":
        lock._limit_s = 1.0  # that the others are given too, to delete what they granted
    return take(lock)


def test_a_frozen_minority_delays_nobody(servers: Servers) -> None:
    with connected(servers) as lock:
        for server in servers[:2]:
            server.freeze()
        for _ in range(20):
            began = time.monotonic()
            assert isinstance(lock.release(granted(lock).hold), Released)
            assert time.monotonic() - began < lock._limit_s, "a frozen node was waited for"


def test_a_late_set_is_followed_by_its_release(servers: Servers) -> None:
    """The frozen node ran neither; when it thaws, both run in their order."""
    with connected(servers) as lock:
        servers[0].freeze()
        assert isinstance(lock.release(granted(lock).hold), Released)
        servers[0].thaw()
        drained(lock, lambda: len(servers[0].names()) == 2)
        assert servers[0].names() == ["SET", "EVALSHA"]
        assert servers[0].value("k") is None


def test_a_failed_try_cleans_up_behind_its_stragglers(servers: Servers) -> None:
    with connected(servers) as lock:
        for server in servers[:3]:
            server.freeze()
        lock._limit_s = SHORT_S
        assert isinstance(take(lock), Unknown)
        drained(lock, lambda: not any(server.value("k") for server in servers[3:]))
        for server in servers[:3]:
            server.thaw()
        drained(lock, lambda: all(len(s.names()) == 2 for s in servers[:3]))
        assert not any(server.value("k") for server in servers)


def test_what_a_broken_connection_may_have_taken_is_deleted_on_the_next(servers: Servers) -> None:
    """The answers of a majority are lost, and nobody else knows the token."""
    with connected(servers) as lock:
        each(servers, MAJORITY, "SET", Close())
        assert isinstance(take(lock), Unknown)
        assert all(servers[number].value("k") for number in MAJORITY)
        assert isinstance(take(lock, PATIENT_S), Granted)


def test_a_release_reaches_those_whose_connection_had_broken(servers: Servers) -> None:
    """A minority that kept the token would let a free key hang on every other node."""
    with connected(servers) as lock:
        grant = take(lock)
        assert isinstance(grant, Granted)
        eventually(lambda: all(server.value("k") for server in servers))
        for node in lock._nodes.nodes[:2]:
            node.fail()
        assert lock.release(grant.hold) == Released()

        def free() -> bool:
            lock._nodes.ask(Question("PING"), set(range(5)), lambda _: False, SHORT_S)
            return not any(server.value("k") for server in servers)

        eventually(free)


def test_what_errors_leave_undecided_is_no_refusal(servers: Servers) -> None:
    """Two nodes say no, three say nothing about the key."""
    with connected(servers) as lock:
        occupy(servers, MINORITY)
        for server in servers[2:]:
            server.on("SET", OOM)
        assert take(lock) == Denied(NO_MAJORITY)


def test_a_node_that_loads_its_data_is_asked_when_it_has_the_scripts(servers: Servers) -> None:
    """Redis serves who connects meanwhile, and takes no script."""
    servers[0].on("SCRIPT", Reply(b"-LOADING Redis is loading the dataset in memory\r\n"))
    addresses = [server.address for server in servers]
    lock = Redlock(addresses, timeout_s=PATIENT_S, ttl_s=TTL_S, observer=NoObserver())
    with closing(lock):

        def ready() -> bool:
            lock._nodes.ask(Question("PING"), set(range(5)), lambda _: False, SHORT_S)
            return all(node.ready for node in lock._nodes.nodes)

        eventually(ready)
        greetings = [[each[0] for each in server.log].count(b"SCRIPT") for server in servers]
        assert greetings[0] > greetings[1] == greetings[2]


def test_a_partial_grant_is_released_everywhere(servers: Servers) -> None:
    with connected(servers) as lock:
        occupy(servers, MAJORITY)
        assert take(lock) == Denied("held")
        drained(lock, lambda: not any(server.value("k") for server in servers[3:]))


def test_late_answers_are_not_taken_for_new_ones(servers: Servers) -> None:
    with connected(servers) as lock:
        servers[0].on("SET", Late(0.05))
        first = granted(lock)
        assert isinstance(lock.release(first.hold), Released)
        occupy(servers, MAJORITY)
        time.sleep(0.06)
        assert take(lock) == Denied("held")


def test_a_node_that_owes_too_much_is_not_asked(servers: Servers) -> None:
    with connected(servers) as lock:
        servers[0].freeze()
        for _ in range(OWED_MAX):
            assert isinstance(lock.release(granted(lock).hold), Released)
        assert len(lock._nodes.nodes[0]._owed) <= 2 * OWED_MAX  # each SET and its deletion
        servers[0].thaw()
        drained(lock, lambda: not lock._nodes.nodes[0]._owed)
        lock.release(granted(lock).hold)
        drained(lock, lambda: servers[0].names()[-2:] == ["SET", "EVALSHA"])


def test_waiting_outlives_a_majority_that_is_away(servers: Servers) -> None:
    with connected(servers) as lock:
        for server in servers[:3]:
            server.drop_connections()
        assert isinstance(take(lock, 20), Granted)


def test_an_unknown_try_within_a_wait_stays_unknown(servers: Servers) -> None:
    with connected(servers) as lock:
        each(servers, MAJORITY, "SET", Close())
        occupy(servers, range(3, 5))
        answer = take(lock, 0.05)
        assert isinstance(answer, Unknown)


def test_the_promise_is_ttl_less_drift_from_the_first_send(servers: Servers) -> None:
    with connected(servers) as lock:
        each(servers, range(5), "SET", Late(0.05))
        before_ns = time.monotonic_ns()
        grant = granted(lock)
        assert grant.valid_until_ns == grant.sent_ns + 100_000_000_000 - 1_002_000_000
        assert before_ns <= grant.sent_ns <= time.monotonic_ns() - 50_000_000


def test_extending_counts_a_majority(servers: Servers) -> None:
    with connected(servers) as lock:
        hold = granted(lock).hold
        again = lock.extend(hold, 30)
        assert isinstance(again, Granted)
        # A SET that is still under way would bring the key back.
        drained(lock, lambda: not any(node._owed for node in lock._nodes.nodes))
        for server in servers[:3]:
            server.keys.clear()
        assert isinstance(lock.extend(hold, 30), NotHeld)
