"""redis-sentinel, redis-sentinel-wait: whom they ask, whom they trust, what errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field

import pytest

from lockbench.clusters.redis.sentinel import DATA_NODES, MASTER_NAME, SENTINELS
from lockbench.locks.base import (
    Denied,
    Hold,
    NoObserver,
    NotHeld,
    Released,
    System,
    Unknown,
    token_of,
)
from lockbench.locks.redis import sentinel as redis_sentinel
from lockbench.locks.redis import sentinel_link
from lockbench.locks.redis import sentinel_wait as redis_sentinel_wait
from lockbench.locks.redis.token import RedisToken
from tests.locks.asking import LONG_S, PATIENT_S, granted, said, take
from tests.locks.fakes import Close, FakeRedis, Late, Reply, Silent, closed_port
from tests.locks.test_redis_token import ACTIONS, opened, patience_s

READONLY = Reply(b"-READONLY You can't write against a read only replica.\r\n")

SYSTEMS = [redis_sentinel.SYSTEM, redis_sentinel_wait.SYSTEM]
ROWS = [(system, row) for system in SYSTEMS for row in system.outcomes]


class FakeServer(FakeRedis):
    """A Redis with a role and replicas that acknowledge, or a Sentinel that names a port."""

    role = b"master"
    acknowledging = 1
    names_port = 0

    def _run(self, command: tuple[bytes, ...]) -> bytes:
        match command:
            case (b"ROLE",):
                return b"*1\r\n$%d\r\n%s\r\n" % (len(self.role), self.role)
            case (b"WAIT", _, _):
                self.log.append(command)
                return b":%d\r\n" % self.acknowledging
            case (b"SENTINEL", b"GET-MASTER-ADDR-BY-NAME", name):
                self.log.append(command)
                assert name == MASTER_NAME.encode()
                port = str(self.names_port).encode()
                # An address of its own: a client has to go by the port.
                return b"*2\r\n$9\r\n10.9.9.99\r\n$%d\r\n%s\r\n" % (len(port), port)
        return super()._run(command)


@dataclass
class Site:
    """Two servers, three Sentinels that all name the first server."""

    data: list[FakeServer] = field(default_factory=lambda: [FakeServer() for _ in DATA_NODES])
    sentinels: list[FakeServer] = field(default_factory=lambda: [FakeServer() for _ in SENTINELS])

    def __post_init__(self) -> None:
        self.nodes = [server.address for server in (*self.data, *self.sentinels)]

    def name(self, server: FakeServer) -> None:
        for sentinel in self.sentinels:
            sentinel.names_port = server.address.port

    def connect(self, system: System, timeout_s: float = PATIENT_S) -> RedisToken:
        lock = system.connect(self.nodes, timeout_s=timeout_s, ttl_s=LONG_S, observer=NoObserver())
        assert isinstance(lock, RedisToken)
        return lock


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    site.name(site.data[0])
    yield site
    for server in (*site.data, *site.sentinels):
        server.stop()


@pytest.mark.parametrize(("system", "row"), ROWS, ids=[f"{s.name}-{row}" for s, row in ROWS])
def test_every_error_means_what_the_table_says(site: Site, system: System, row: str) -> None:
    call, _, error = row.partition(": ")
    with closing(site.connect(system)) as holder:
        hold = granted(holder).hold if call == "release" else None
    with closing(site.connect(system, patience_s(error))) as lock:
        answer = _release(site, lock, hold, error) if hold else _acquire(site, lock, error)
    assert said(answer) == system.outcomes[row]


def _acquire(site: Site, lock: RedisToken, error: str) -> object:
    primary = site.data[0]
    if error == "no connection":
        primary.on("PING", Close())
    elif error == "no Sentinel answers":
        for sentinel in site.sentinels:
            sentinel.on("PING", Close())
    elif error == "not a primary":
        primary.role = b"slave"
    elif error == "ReadOnlyError":
        primary.on("SET", READONLY)
    elif error == "granted too late":
        primary.on("SET", Late(0.1))
        return take(lock, ttl_s=0.05)
    elif error.startswith("nobody acknowledges"):
        primary.acknowledging = 0
        if error.endswith("not deleted"):
            primary.on("EVALSHA", Close())
    elif error == "WAIT breaks":
        primary.on("WAIT", Close())
    else:
        opened(lock)
        primary.on("SET", ACTIONS[error])
    return take(lock)


def _release(site: Site, lock: RedisToken, hold: Hold, error: str) -> object:
    if error == "no connection":
        site.data[0].on("PING", Close())
    else:
        opened(lock)
        site.data[0].on("EVALSHA", ACTIONS[error])
    return lock.release(hold)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_the_next_sentinel_is_asked_when_one_is_silent(site: Site, system: System) -> None:
    site.sentinels[0].on("PING", Silent())
    site.sentinels[1].on("PING", Close())
    with closing(site.connect(system)) as lock:
        granted(lock)
    assert site.sentinels[2].names() == ["SENTINEL"]


def test_the_sentinel_that_answered_is_asked_first_the_next_time(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentinel_link, "SENTINEL_TIMEOUT_S", PATIENT_S)
    site.sentinels[0].on("PING", Close())
    with closing(site.connect(redis_sentinel.SYSTEM)) as lock:
        hold = granted(lock).hold
        lock.close()
        assert isinstance(lock.release(hold), Released)
    assert [len(sentinel.names()) for sentinel in site.sentinels] == [0, 2, 0]


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
def test_a_demoted_server_is_left_for_the_new_primary(site: Site, system: System) -> None:
    old, new = site.data
    with closing(site.connect(system)) as lock:
        hold = granted(lock).hold
        site.name(new)
        old.on("SET", READONLY)
        assert said(take(lock)) == "Denied: no-effect"
        granted(lock)
        assert isinstance(lock.release(hold), NotHeld)
    assert new.names()[0] == "SET"


def test_a_connection_that_works_is_kept_whatever_sentinels_say(site: Site) -> None:
    """As Redis' guideline has it; this is how a client goes on with a primary that was replaced."""
    old, new = site.data
    with closing(site.connect(redis_sentinel.SYSTEM)) as lock:
        hold = granted(lock).hold
        site.name(new)
        assert isinstance(lock.release(hold), Released)
        granted(lock)
    assert new.names() == []
    assert old.names() == ["SET", "EVALSHA", "SET"]


def test_a_grant_that_nobody_acknowledged_is_given_back(site: Site) -> None:
    primary = site.data[0]
    primary.acknowledging = 0
    with closing(site.connect(redis_sentinel_wait.SYSTEM)) as lock:
        answer = take(lock)
        assert answer == Denied("gave-up: no replica acknowledged")
        assert primary.value("k") is None
        primary.acknowledging = 1
        hold = granted(lock).hold
        primary.acknowledging = 0
        assert isinstance(lock.extend(hold, LONG_S), Unknown)
    assert primary.value("k") == token_of(hold.id).encode()


def test_without_wait_it_is_trusted_all_the_same(site: Site) -> None:
    site.data[0].acknowledging = 0
    with closing(site.connect(redis_sentinel.SYSTEM)) as lock:
        granted(lock)


def test_an_error_after_set_is_never_taken_for_a_refusal(site: Site) -> None:
    """WAIT is refused by a server that was demoted in between; the key is set."""
    site.data[0].on("WAIT", READONLY)
    with closing(site.connect(redis_sentinel_wait.SYSTEM)) as lock:
        assert isinstance(take(lock), Unknown)


def test_closed_ports_everywhere(site: Site) -> None:
    nodes = [closed_port() for _ in site.nodes]
    for system in SYSTEMS:
        lock = system.connect(nodes, timeout_s=PATIENT_S, ttl_s=LONG_S, observer=NoObserver())
        with closing(lock):
            answer = take(lock, 0.05)
        assert said(answer) == "Denied: gave-up"
