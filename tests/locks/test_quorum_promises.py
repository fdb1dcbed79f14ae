"""What locks on etcd, ZooKeeper and PostgreSQL promise, against the end that real servers keep.

Every client reaches one server by a proxy that makes one message of its acquire late, each in turn.
Another client, which reaches the server directly, finds out when the lock ends:

- etcd: by the time to live of the key's lease. It is told in whole seconds, so the moment is taken
  at which it changes.
- ZooKeeper: the proxy is closed, and the node is seen to go. The promise may be early by what
  ``zookeeper_touches`` declares, beside the time of the request.
- PostgreSQL: there is no lease and none may be promised; another is refused until the session is
  ended, and then the loss is told from about that time.

A promise is never later than the end, and never earlier by more than the time of the request that
it runs from. Locks in containers are not covered.
"""

from __future__ import annotations

import math
import threading
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from lockbench.bench.duties import LEASE_S, Running
from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Granted,
    Lock,
    LockUnusableError,
    System,
    new_hold_id,
    token_of,
)
from lockbench.locks.etcd import mutex as etcd
from lockbench.locks.etcd.gateway import client_of, encoded
from lockbench.locks.etcd.mutex import Etcd
from lockbench.locks.libraries.shared.zookeeper_touches import passed_on_ns
from lockbench.locks.postgres import lease_row
from lockbench.locks.postgres.lease_row import PostgresLeaseRow
from lockbench.locks.postgres.session import Session
from lockbench.locks.shared.sessions import LOOK_S
from lockbench.locks.zookeeper import mutex as zookeeper
from lockbench.locks.zookeeper.mutex import ZooKeeper
from tests.eventually import eventually
from tests.locks import asking
from tests.locks.asking import Told, one_of_each_class
from tests.locks.delays import DelayingProxy, Direction
from tests.locks.early import TOO_EARLY, unless_once

TTL_S: Final = 9.0  # of etcd: nothing is renewed while the end is found out
TIMEOUT_S: Final = 10.0
DELAY_S: Final = 0.4
WAIT_S: Final = 3.5  # until the key is free; after a third of its lease etcd's has been renewed
LIMIT_S: Final = 30.0
SLACK_NS: Final = 150_000_000  # from a client's look at the clock to its proxy, on a busy machine
NEAR_NS: Final = 100_000_000  # from a proxy to the server's own look at the clock
AT_ONCE: Final = 6
DELAYS_S: Final = (0.4, 0.4, 0.6, 0.8, 1.0, 1.2, 1.4, 1.6)  # for a plant
DIRECTIONS: Final[tuple[Direction, ...]] = ("request", "reply")

MAIN: Final = {
    *("etcd", "zookeeper", "postgres-advisory", "postgres-for-update", "postgres-lease-row"),
}

pytestmark = pytest.mark.docker


def systems_on(topology: str, *, limited: bool = True) -> list[Any]:
    """Whose grants end by themselves, or do not.

    Of what sends the same messages ``make test`` has one, and of the libraries what it runs
    anyway."""
    return [
        pytest.param(
            system,
            id=system.name,
            marks=[] if system.name in MAIN or system.represents else [pytest.mark.long],
        )
        for system in one_of_each_class(topology)
        if system.limited == limited
    ]


class Late(NamedTuple):
    """A message to delay: which one of a direction, from when the client was made."""

    direction: Direction
    number: int


@dataclass(frozen=True)
class Served:
    """One server, and the proxy before it."""

    system: System
    server: Address
    proxy: DelayingProxy
    key: str
    told: Told
    ttl_s: float
    delay_s: float

    def connect(self, *, proxied: bool = True) -> Lock:
        return self.system.connect(
            [self.proxy.address if proxied else self.server],
            timeout_s=TIMEOUT_S,
            ttl_s=self.ttl_s,
            observer=self.told if proxied else Told(),
        )

    def take(self, lock: Lock, wait_s: float = 0.0) -> Acquired:
        return asking.take(lock, wait_s, ttl_s=self.ttl_s, key=self.key)

    def granted(self, lock: Lock) -> Granted:
        return asking.granted(lock, LIMIT_S, ttl_s=self.ttl_s, key=self.key)

    def requests(self, late: Sequence[Late]) -> list[tuple[int, int]]:
        """When each came to the proxy, and when the server could have it."""
        delayed = {one.number for one in late if one.direction == "request"}
        return [
            (burst.time_ns, burst.time_ns + int(self.delay_s * 1e9) * (burst.number in delayed))
            for burst in self.proxy.bursts("request")
        ]


# What is played, each time with another message late. Returns what is wrong.
Phase = Callable[[Served, Sequence[Late]], str | None]


def once(
    server: Address,
    ttl_s: float,
    system: System,
    phase: Phase,
    late: Sequence[Late],
    delay_s: float = DELAY_S,
) -> tuple[list[str], list[Late]]:
    """What is wrong, and the messages there were."""
    counts: list[tuple[Direction, int]] = []

    def play() -> str | None:
        with DelayingProxy(server) as proxy:
            key = token_of(new_hold_id())
            served = Served(system, server, proxy, key, Told(), ttl_s, delay_s)
            for one in late:
                proxy.delay(one.direction, one.number, delay_s)
            found: str | None = None
            try:
                found = phase(served, late)
            except LockUnusableError:
                assert late  # etcd3-py wants the version in less time than that
            counts[:] = [(direction, proxy.count(direction)) for direction in DIRECTIONS]
        return found

    found = unless_once(play)
    messages = [Late(direction, n) for direction, count in counts for n in range(1, count + 1)]
    return [f"{found}, late: {[tuple(one) for one in late]}"] if found else [], messages


def play(server: Address, ttl_s: float, system: System, phase: Phase) -> list[str]:
    """Once as it is and then with each message late; what is wrong."""
    found, messages = once(server, ttl_s, system, phase, [])
    assert messages, "nothing was sent"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        again = partial(once, server, ttl_s, system, phase)
        answers = list(pool.map(again, [[message] for message in messages]))
    return found + [text for texts, _ in answers for text in texts]


def acquire(served: Served, late: Sequence[Late], *, waits: bool = False) -> tuple[Lock, Granted]:
    """By a new client; ``waits``: until another gives the key back."""
    if not waits:
        lock = served.connect()
        return lock, served.granted(lock)
    with closing(served.connect(proxied=False)) as holder:
        held = served.granted(holder)
        lock = served.connect()
        frees = threading.Timer(WAIT_S, holder.release, [held.hold])
        frees.start()
        answer = served.granted(lock)
        frees.join()
        return lock, answer


# etcd.


def lease_ends_ns(served: Served) -> tuple[int, int]:
    """Between which times the lease of the key ends, should nobody renew it."""
    client = client_of(served.server, TIMEOUT_S)
    everything = {"key": encoded("\0"), "range_end": encoded("\0")}
    found = client.post(client.get_url("kv/range"), json=everything).get("kvs", [])
    (lease,) = {
        int(pair["lease"])
        for pair in found
        if served.key in b64decode(pair["key"]).decode() and "lease" in pair
    }
    last_s: int | None = None
    before_ns = 0
    while True:
        asked_ns = time.monotonic_ns()
        answer = client.post(client.get_url("lease/timetolive"), json={"ID": lease})
        read_ns, left_s = time.monotonic_ns(), int(answer.get("TTL", 0))
        assert left_s >= 0, "the lease is over"
        if last_s is not None and left_s == last_s - 1:
            return before_ns + last_s * 1_000_000_000, read_ns + last_s * 1_000_000_000
        last_s, before_ns = left_s, asked_ns


def of_etcd(served: Served, late: Sequence[Late], *, waits: bool = False) -> str | None:
    lock, answer = acquire(served, late, waits=waits)
    with closing(lock):
        while True:
            until_ns = served.told.newest_ns(answer)
            earliest_ns, latest_ns = lease_ends_ns(served)
            if served.told.newest_ns(answer) == until_ns:  # else it was renewed meanwhile
                break
    if until_ns > latest_ns:
        return f"too late by {(until_ns - latest_ns) / 1e6:.0f} ms"
    # The request that the server ran then: the first one that it could have at about that time.
    ttl_ns = math.ceil(served.ttl_s) * 1_000_000_000
    near_ns = earliest_ns - ttl_ns - NEAR_NS
    asked_ns = min(came_ns for came_ns, could_ns in served.requests(late) if could_ns >= near_ns)
    early_ns = asked_ns + ttl_ns - until_ns
    return f"{TOO_EARLY} by {early_ns / 1e6:.0f} ms" if early_ns > SLACK_NS else None


@pytest.mark.parametrize("system", systems_on("etcd"))
def test_a_lease_of_etcd_is_promised(running: Callable[[str], Running], system: System) -> None:
    server = running("etcd").nodes[0]
    assert play(server, TTL_S, system, of_etcd) == []
    if system.name != "etcd3gw":  # it does not wait, and looks at no answer
        assert once(server, TTL_S, system, partial(of_etcd, waits=True), [])[0] == []


class EtcdAtCompletion(Etcd):
    """The defect: anchored when the answer came."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        until_ns = time.monotonic_ns() + int(ttl_s * 1e9)
        return replace(answer, valid_until_ns=until_ns) if isinstance(answer, Granted) else answer


class EtcdAtStart(Etcd):
    """The defect: anchored when the wait began."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        until_ns = time.monotonic_ns() + int(ttl_s * 1e9)
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        return replace(answer, valid_until_ns=until_ns) if isinstance(answer, Granted) else answer


def test_wrong_promises_on_etcd_are_found(running: Callable[[str], Running]) -> None:
    server = running("etcd").nodes[0]
    late = play(server, TTL_S, replace(etcd.SYSTEM, connect=EtcdAtCompletion), of_etcd)
    assert any("too late" in text for text in late)
    planted = replace(etcd.SYSTEM, connect=EtcdAtStart)
    early, _ = once(server, TTL_S, planted, partial(of_etcd, waits=True), [])
    assert any("too early" in text for text in early)


# ZooKeeper.


def paths_of(client: KazooClient, key: str, at: str = "/") -> Iterator[str]:
    """The nodes below whatever is named after the key."""
    try:
        children = client.get_children(at)
    except NoNodeError:
        return
    for child in children:
        path = f"{at.rstrip('/')}/{child}"
        if key in at:
            yield path
        yield from paths_of(client, key, path)


def of_zookeeper(
    direct: KazooClient, served: Served, late: Sequence[Late], *, waits: bool = False
) -> str | None:
    lock, answer = acquire(served, late, waits=waits)
    with closing(lock):
        paths = list(paths_of(direct, served.key))
        assert paths, "no node was made"
        served.proxy.close()
        for path in paths:
            there = direct.exists(path)  # not where the session has ended already
            if there is not None and there.ephemeralOwner:
                eventually(lambda: direct.exists(path) is None, "it stays", limit_s=LIMIT_S)  # noqa: B023
        gone_ns = time.monotonic_ns()
        until_ns = served.told.newest_ns(answer)
    if until_ns > gone_ns:
        return f"too late by {(until_ns - gone_ns) / 1e6:.0f} ms"
    came_ns = [came_ns for came_ns, _ in served.requests(late)]
    silent_ns = max(after - before for before, after in pairwise(came_ns))
    # What is declared: the silence, a tick, and another one that the end is rounded up by.
    declared_ns = silent_ns + 2 * passed_on_ns(served.ttl_s) + int(served.delay_s * 1e9) * len(late)
    early_ns = gone_ns - until_ns - declared_ns
    return f"{TOO_EARLY} by {early_ns / 1e6:.0f} ms" if early_ns > SLACK_NS else None


@pytest.fixture(scope="module")
def direct(running: Callable[[str], Running]) -> Iterator[KazooClient]:
    client = KazooClient(
        hosts=",".join(f"{host}:{port}" for host, port in running("zookeeper").nodes)
    )
    client.start(LIMIT_S)
    yield client
    client.stop()
    client.close()


@pytest.mark.parametrize("system", systems_on("zookeeper"))
def test_a_session_of_zookeeper_is_promised(
    running: Callable[[str], Running], direct: KazooClient, system: System
) -> None:
    server = running("zookeeper").nodes[0]
    assert play(server, LEASE_S, system, partial(of_zookeeper, direct)) == []


class ZooKeeperAtCompletion(ZooKeeper):
    """The defect: anchored when the answer came."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        until_ns = time.monotonic_ns() + self._session.timeout_ns
        return replace(answer, valid_until_ns=until_ns) if isinstance(answer, Granted) else answer


class ZooKeeperAtStart(ZooKeeper):
    """The defect: anchored when the wait began."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        started_ns = time.monotonic_ns()
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        until_ns = started_ns + self._session.timeout_ns
        return replace(answer, valid_until_ns=until_ns) if isinstance(answer, Granted) else answer

    def _heartbeat(self, session_id: int, sent_ns: int, valid_until_ns: int) -> None:
        del session_id, sent_ns, valid_until_ns


def found_in_time(
    what: str, server: Address, system: System, phase: Phase, together: Sequence[Sequence[Late]]
) -> bool:
    """Whether a plant is found in a few tries, with longer and longer delays. Of a try that came to
    nothing nothing is concluded: on a busy machine the session ends too soon, the server ends it
    too late to show the defect, or two messages pass as one."""

    def tried(late: Sequence[Late], delay_s: float) -> list[str]:
        with suppress(AssertionError):
            return once(server, LEASE_S, system, phase, late, delay_s)[0]
        return []

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for delay_s in DELAYS_S:
            found = pool.map(partial(tried, delay_s=delay_s), together)
            if any(what in text for texts in found for text in texts):
                return True
    return False


class ZooKeeperTwice(ZooKeeperAtCompletion):
    """The defect: a session is promised for twice as long as it lasts."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if not isinstance(answer, Granted) or answer.valid_until_ns is None:
            return answer
        return replace(answer, valid_until_ns=answer.valid_until_ns + self._session.timeout_ns)

    def _heartbeat(self, session_id: int, sent_ns: int, valid_until_ns: int) -> None:
        del session_id, sent_ns, valid_until_ns


def test_wrong_promises_on_zookeeper_are_found(
    running: Callable[[str], Running], direct: KazooClient
) -> None:
    server = running("zookeeper").nodes[0]
    phase = partial(of_zookeeper, direct)
    planted = replace(zookeeper.SYSTEM, connect=ZooKeeperTwice)
    assert found_in_time("too late", server, planted, phase, [[]])
    planted = replace(zookeeper.SYSTEM, connect=ZooKeeperAtStart)
    assert found_in_time("too early", server, planted, partial(phase, waits=True), [[]])


@pytest.mark.long
def test_a_promise_that_is_too_late_by_one_delay_is_found_on_zookeeper(
    running: Callable[[str], Running], direct: KazooClient
) -> None:
    server = running("zookeeper").nodes[0]
    phase = partial(of_zookeeper, direct)
    planted = replace(zookeeper.SYSTEM, connect=ZooKeeperAtCompletion)
    # An answer is late, and so is the heartbeat that is sent while it is waited for: to the server
    # the session is as long as it would be without the defect.
    together = [[Late("reply", n), Late("request", n + 1)] for n in range(4, 10)]
    assert found_in_time("too late", server, planted, phase, together)


# PostgreSQL.


def of_postgres(served: Served, late: Sequence[Late]) -> str | None:
    lock, answer = acquire(served, late)
    with closing(lock), closing(served.connect(proxied=False)) as other:
        if answer.valid_until_ns is not None:
            return "a promise with an end"
        if not isinstance(served.take(other), Denied):
            return "granted to another"
        ((pid,),) = answer.hold.handle.ask("SELECT pg_backend_pid()")
        before_ns = time.monotonic_ns()
        with closing(Session([served.server], timeout_s=TIMEOUT_S)) as session:
            session.ask(f"SELECT pg_terminate_backend({pid})")
        if not isinstance(free := served.take(other, wait_s=LIMIT_S), Granted):
            return f"not free after the end of the session: {free}"
        freed_ns = time.monotonic_ns()
        eventually(lambda: served.told.alive_ns, "the loss is not told", limit_s=LIMIT_S)
        (alive_ns,) = served.told.alive_ns
    assert alive_ns is not None
    if alive_ns < before_ns - int(LOOK_S * 1e9) - SLACK_NS:
        return f"lost {(before_ns - alive_ns) / 1e6:.0f} ms before the session was ended"
    if alive_ns > freed_ns + SLACK_NS:
        return f"lost only {(alive_ns - freed_ns) / 1e6:.0f} ms after another was granted it"
    return None


@pytest.mark.parametrize("system", systems_on("postgres", limited=False))
def test_no_end_is_promised_on_postgresql(
    running: Callable[[str], Running], system: System
) -> None:
    server = running("postgres").nodes[0]
    assert play(server, LEASE_S, system, of_postgres) == []


def of_lease_row(served: Served, late: Sequence[Late]) -> str | None:
    lock, answer = acquire(served, late)
    row = f"lockbench_leases WHERE key = '{served.key}'"
    with closing(lock), closing(Session([served.server], timeout_s=TIMEOUT_S)) as session:
        before_ns = time.monotonic_ns()
        ((left_s,),) = session.ask(
            f"SELECT extract(epoch FROM expires_at - clock_timestamp()) FROM {row}"
        )
        after_ns = time.monotonic_ns()
    left_ns = int(float(left_s) * 1e9)
    assert answer.valid_until_ns is not None
    if answer.valid_until_ns > after_ns + left_ns:
        return f"too late by {(answer.valid_until_ns - after_ns - left_ns) / 1e6:.0f} ms"
    early_ns = before_ns + left_ns - answer.valid_until_ns - int(served.delay_s * 1e9) * len(late)
    return f"{TOO_EARLY} by {early_ns / 1e6:.0f} ms" if early_ns > SLACK_NS else None


@pytest.mark.parametrize("system", systems_on("postgres"))
def test_a_lease_row_is_promised(running: Callable[[str], Running], system: System) -> None:
    server = running("postgres").nodes[0]
    assert play(server, LEASE_S, system, of_lease_row) == []


class LeaseRowAtCompletion(PostgresLeaseRow):
    """The defect: anchored when the answer came."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        until_ns = time.monotonic_ns() + int(ttl_s * 1e9)
        return replace(answer, valid_until_ns=until_ns) if isinstance(answer, Granted) else answer


def test_a_wrong_promise_of_a_lease_row_is_found(running: Callable[[str], Running]) -> None:
    server = running("postgres").nodes[0]
    planted = replace(lease_row.SYSTEM, connect=LeaseRowAtCompletion)
    assert any("too late" in text for text in play(server, LEASE_S, planted, of_lease_row))
