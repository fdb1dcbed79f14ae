"""What Symfony's stores do, as their declaration says: on real servers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from lockbench.clusters import images
from lockbench.clusters.postgres.protocol import Row, Session
from lockbench.clusters.redis import protocol as resp
from lockbench.locks.base import Denied, Granted, Released, Unknown
from lockbench.locks.shared.client_programs import PHP_IMAGE
from tests.eventually import eventually
from tests.locks.asking import LONG_S, Room, Told, take
from tests.locks.delays import DelayingProxy

REDIS, KEPT, SAFE, ADVISORY, ROW = (
    *("symfony-redis", "symfony-redis-kept", "symfony-redis-safe"),
    *("symfony-postgresql", "symfony-pdo"),
)
TTL_S = 1.0
GRANTS = 200
# Both have the CRC-32 that the store makes of a name.
ONE, OTHER = "plumless", "buckeroo"

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    images.ensure([PHP_IMAGE])


def redis(room: Room, *command: str) -> object:
    return resp.ask_once(room.running.nodes[0], LONG_S, *command)


def sql(room: Room, statement: str) -> list[Row]:
    with Session(room.running.nodes[0], LONG_S) as session:
        return session.query(statement)


def promised_ns(grant: Granted) -> int:
    assert grant.valid_until_ns is not None
    return grant.valid_until_ns


@pytest.fixture
def proxy(room: Callable[[str], Room]) -> Iterator[DelayingProxy]:
    with closing(DelayingProxy(room("redis").running.nodes[0])) as one:
        yield one


@pytest.mark.parametrize(("name", "least_s", "most_s"), [(REDIS, 60, 300), (SAFE, 0, TTL_S)])
def test_a_key_whose_answer_was_lost_stays_for_the_time_of_the_store(
    room: Callable[[str], Room], proxy: DelayingProxy, name: str, least_s: float, most_s: float
) -> None:
    here = room("redis")
    lock = here.client(name, at=proxy.address, ttl_s=TTL_S)
    first = here.granted(lock)
    assert isinstance(lock.release(first.hold), Released)
    proxy.drop("reply", proxy.count("reply") + 1)
    assert isinstance(here.take(lock, ttl_s=TTL_S), Unknown)
    left_ms = redis(here, "PTTL", here.key)
    assert isinstance(left_ms, int)
    assert 1000 * least_s < left_ms <= 1000 * most_s


@pytest.mark.parametrize(("name", "twice"), [(KEPT, True), (SAFE, False)])
def test_on_a_connection_that_is_kept_late_answers_are_those_of_later_calls(
    room: Callable[[str], Room], name: str, twice: bool
) -> None:
    here = room("redis")
    holder, other = here.client(SAFE), here.client(name, timeout_s=0.3, ttl_s=LONG_S)
    held = here.granted(holder, ttl_s=LONG_S)
    assert isinstance(here.take(other), Denied)
    redis(here, "CLIENT", "PAUSE", "5000")
    answers = [take(other, ttl_s=LONG_S, key=f"{here.key}-{free}") for free in (1, 2)]
    assert [type(one) for one in answers] == [Unknown, Unknown]
    assert redis(here, "PING") == "PONG", "answered when the pause is over"
    assert isinstance(here.take(other), Granted if twice else Denied)
    assert redis(here, "EXISTS", here.key) == 1
    assert isinstance(holder.release(held.hold), Released)
    assert redis(here, "EXISTS", here.key) == 0, "it was the holder's"


def test_a_key_may_end_a_millisecond_before_its_lease(room: Callable[[str], Room]) -> None:
    here = room("redis")
    lock = here.client(SAFE)
    early_ns = []
    for _ in range(GRANTS):
        grant = here.granted(lock)
        wall_ms = redis(here, "PEXPIRETIME", here.key)
        assert isinstance(wall_ms, int)
        ahead_ns = time.time_ns() - time.monotonic_ns()
        early_ns.append(promised_ns(grant) - (1_000_000 * wall_ms - ahead_ns))
        assert isinstance(lock.release(grant.hold), Released)
    assert 0 < max(early_ns) < 1_100_000  # the two clocks are not read at once


@pytest.mark.parametrize(("name", "topology"), [(REDIS, "redis"), (ROW, "postgres")])
def test_a_release_that_finds_nothing_says_nothing(
    room: Callable[[str], Room], name: str, topology: str
) -> None:
    here = room(topology)
    first, second = here.client(name), here.client(name)
    grant = here.granted(first, ttl_s=TTL_S)
    after = here.granted(second, LONG_S, ttl_s=LONG_S)
    assert isinstance(first.release(grant.hold), Released)
    assert isinstance(here.take(first), Denied), "the next one still has it"
    assert isinstance(second.release(after.hold), Released)


def test_a_row_ends_half_a_second_before_its_promise(room: Callable[[str], Room]) -> None:
    """PostgreSQL rounds its end down, and somebody else is let in."""
    here = room("postgres")
    first, second = here.client(ROW), here.client(ROW)

    def overlaps() -> bool:
        eventually(lambda: 0.3 < time.time() % 1 < 0.45)
        grant = here.granted(first, LONG_S, ttl_s=TTL_S)
        after = here.granted(second, LONG_S, ttl_s=TTL_S)
        at_ns = time.monotonic_ns()
        second.release(after.hold)
        first.release(grant.hold)
        return at_ns < promised_ns(grant)

    eventually(overlaps)


def test_a_holder_is_not_told_that_its_session_is_gone(room: Callable[[str], Room]) -> None:
    here = room("postgres")
    told = Told()
    first, second = here.client(ADVISORY, told), here.client(ADVISORY)
    grant = here.granted(first)
    assert grant.valid_until_ns is None
    held = "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"
    sql(here, f"SELECT pg_terminate_backend(pid) FROM ({held}) AS held")
    after = here.granted(second, LONG_S)
    assert told.losses == []
    assert isinstance(first.release(grant.hold), Unknown)
    assert isinstance(second.release(after.hold), Released)


def test_two_names_may_be_one_lock(room: Callable[[str], Room]) -> None:
    here = room("postgres")
    first, second = here.client(ADVISORY), here.client(ADVISORY)
    here.key = ONE
    grant = here.granted(first)
    here.key = OTHER
    assert isinstance(here.take(second), Denied)
    assert isinstance(first.release(grant.hold), Released)
    assert isinstance(second.release(here.granted(second).hold), Released)
