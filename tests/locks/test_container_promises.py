"""What the libraries of Go, of the JVM, of Node and of PHP promise, beside what servers keep.

A proxy delays one message of an acquire after the other. However late a message is, the promise is
not later than the server's own end of the lease or the session. It is early by no more than what
the one request took that it was anchored at; a promise from an earlier request would be early
whenever anything after that is delayed.

The server's end is asked of the server itself, past the proxy: the time to live of the key, the
lease's own, or when the node of a session is gone.
"""

from __future__ import annotations

import base64
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from lockbench.bench.duties import LEASE_S, Running
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.wire import Http, Line
from lockbench.clusters.zookeeper.ensemble import TICK_MS_MIN, TICKS_PER_LEASE, ZooKeeperCluster
from lockbench.locks import registry
from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Granted,
    Released,
    Unknown,
    new_hold_id,
    token_of,
)
from lockbench.locks.shared import sidecar
from tests.eventually import eventually
from tests.locks.asking import Told, granted, meanwhile, take
from tests.locks.delays import DelayingProxy, Direction
from tests.locks.test_pins import contained

KEY_S, WAIT_S = 12.0, 5.0
DELAY_S = 0.6
NEAR_S = DELAY_S / 2  # more than a message takes that nobody delays
ROUND_NS = 2_000_000  # the servers tell milliseconds
QUIET_S, ASK_LIMIT_S = 0.03, 5.0
READ_LIMIT_S = 3.0  # of go-redis, which asks again then
DIRECTIONS: tuple[Direction, ...] = ("request", "reply")

pytestmark = pytest.mark.docker


@dataclass(frozen=True)
class Taken:
    granted: Granted
    asked_ns: int
    answered_ns: int

    @property
    def until_ns(self) -> int:
        assert self.granted.valid_until_ns is not None
        return self.granted.valid_until_ns


class Client:
    """One client of a lock, with a proxy before each of its servers."""

    def __init__(self, name: str, servers: Sequence[Address], ttl_s: float) -> None:
        self.key = f"promise-{token_of(new_hold_id())}"
        self.observer = Told()
        self.proxies = [DelayingProxy(server) for server in servers]
        self._ttl_s = ttl_s
        system = registry.find(name)
        assert system.prepare is not None
        system.prepare()
        self._lock = system.connect(
            [proxy.address for proxy in self.proxies],
            timeout_s=ttl_s / 2,
            ttl_s=ttl_s,
            observer=self.observer,
        )

    def take(self) -> Taken:
        asked_ns = time.monotonic_ns()
        answer = granted(self._lock, WAIT_S, ttl_s=self._ttl_s, key=self.key)
        return Taken(answer, asked_ns, time.monotonic_ns())

    def asked(self) -> Acquired:
        """Whatever comes of an acquire."""
        return take(self._lock, WAIT_S, ttl_s=self._ttl_s, key=self.key)

    def give_back(self, taken: Taken) -> None:
        assert isinstance(self._lock.release(taken.granted.hold), Released)

    def settle(self) -> None:
        """Connections are up, scripts and paths known; until all is quiet, whatever a release left
        to be done."""
        self.give_back(self.take())
        self.quiet()

    def quiet(self) -> None:
        def still() -> bool:
            before = self._counts()
            time.sleep(QUIET_S)
            return self._counts() == before

        eventually(still)

    def messages(self) -> list[tuple[int, Direction, int]]:
        """Those of an acquire: which proxy's, which way, and the how manieth."""
        before = self._counts()
        taken = self.take()
        found = [
            (index // 2, DIRECTIONS[index % 2], nth + 1)
            for index, (now, then) in enumerate(zip(self._counts(), before, strict=True))
            for nth in range(now - then)
        ]
        self.give_back(taken)
        self.quiet()
        return found

    def delay(self, proxy: int, direction: Direction, nth: int, seconds: float = DELAY_S) -> None:
        one = self.proxies[proxy]
        one.delay(direction, one.count(direction) + nth, seconds)

    def cut(self) -> None:
        for proxy in self.proxies:
            proxy.close()

    def close(self) -> None:
        self._lock.close()
        self.cut()

    def _counts(self) -> list[int]:
        return [proxy.count(way) for proxy in self.proxies for way in DIRECTIONS]


@dataclass
class Found:
    """How early each promise was, and by how much one would have been too late that counted from
    the answer."""

    early_s: dict[tuple[int, Direction, int], float] = field(default_factory=dict)
    answer_late_s: list[float] = field(default_factory=list)

    def judge(
        self,
        message: tuple[int, Direction, int],
        taken: Taken,
        until_ns: int,
        kept_ns: tuple[int, int],
        lease_s: float,
    ) -> None:
        """``kept_ns``: between which times the server ends it."""
        early, late = kept_ns
        assert until_ns <= late, f"{message}: promised {(until_ns - late) / 1e9} s too much"
        self.early_s[message] = (early - until_ns) / 1e9
        self.answer_late_s.append((taken.answered_ns - late) / 1e9 + lease_s)

    def too_early(self, more_than_s: float) -> list[tuple[int, Direction, int]]:
        return [message for message, early_s in self.early_s.items() if early_s > more_than_s]


@pytest.fixture
def client(running: Callable[[str], Running]) -> Iterator[Callable[..., Client]]:
    with ExitStack() as stack:

        def made(name: str, topology: str, ttl_s: float, servers: int | None = None) -> Client:
            one = Client(name, running(topology).nodes[:servers], ttl_s)
            stack.callback(one.close)
            return one

        yield made


# --- Redis ---------------------------------------------------------------------------------------


def kept_ns(server: Address, key: str) -> tuple[int, int] | None:
    """Between which times the server ends the key; None: it has none."""
    with Line(server, ASK_LIMIT_S) as line:
        before_ns = time.monotonic_ns()
        left_ms = resp.ask(line, "PTTL", key)
        after_ns = time.monotonic_ns()
    assert isinstance(left_ms, int)
    if left_ms < 0:
        return None
    left_ns = left_ms * 1_000_000
    return before_ns + left_ns - ROUND_NS, after_ns + left_ns + ROUND_NS


def kept_by_enough_ns(servers: Sequence[Address], key: str, enough: int) -> tuple[int, int]:
    """Between which times so many of the servers no longer have the key."""
    found = sorted(one for server in servers if (one := kept_ns(server, key)) is not None)
    return found[len(found) - enough]


LONG = pytest.mark.long
ON_ONE = ("bsm-redislock", "redsync", "redisson-rlock-safe", "node-redlock-5-safe")
ON_ONE_TOO = (
    *("redisson-rlock-lease", "redisson-fair", "redisson-fenced", "redisson-spin"),
    *("node-redlock-safe", "sesamecare-redlock-safe", "symfony-redis-safe"),
)
# They subtract a hundredth of the lease.
MINUS_DRIFT = ("redsync", "node-redlock-safe", "node-redlock-5-safe", "sesamecare-redlock-safe")


@pytest.mark.parametrize(
    ("name", "topology", "delayed"),
    [
        *((name, "redis", (0,)) for name in ON_ONE),
        *(pytest.param(name, "redis", (0,), marks=LONG) for name in ON_ONE_TOO),
        pytest.param("redsync", "redlock", (0, 2), marks=LONG),
        ("redisson-redlock", "redlock", (4,)),
        pytest.param("redisson-redlock", "redlock", (0, 2, 4), marks=LONG),
        pytest.param("redisson-multilock", "redlock", (0, 1, 2, 3, 4), marks=LONG),
    ],
)
def test_a_lease_is_promised_from_the_request_that_began_it(
    client: Callable[..., Client],
    running: Callable[[str], Running],
    name: str,
    topology: str,
    delayed: tuple[int, ...],
) -> None:
    one = client(name, topology, KEY_S)
    servers = running(topology).nodes
    one.settle()
    found = Found()
    for message in one.messages():
        if message[0] not in delayed:
            continue
        one.delay(*message)
        taken = one.take()
        every = name == "redisson-multilock"
        enough = len(servers) if every else len(servers) // 2 + 1
        kept = kept_by_enough_ns(servers, one.key, enough)
        found.judge(message, taken, taken.until_ns, kept, KEY_S)
        one.give_back(taken)
        one.quiet()
    drift_s = 0.01 * KEY_S if name in MINUS_DRIFT else 0.0
    late = found.too_early(drift_s + NEAR_S)
    # Its own request, and where it asks many at once, that of each.
    assert len({proxy for proxy, _, _ in late}) == len(late), found.early_s
    assert len(late) <= (len(delayed) if name == "redsync" else 1), found.early_s
    assert all(direction == "request" for _, direction, _ in late), found.early_s
    assert max(found.early_s.values()) < drift_s + DELAY_S + NEAR_S
    assert max(found.answer_late_s) > NEAR_S, "the delays would not show a promise that is too late"


def test_a_request_that_is_sent_again_counts_from_then(
    client: Callable[..., Client], running: Callable[[str], Running]
) -> None:
    """The script sets the key again for its own token, and go-redis sends it again by itself."""
    one = client("bsm-redislock", "redis", KEY_S)
    one.settle()
    one.delay(0, "reply", 1, READ_LIMIT_S + DELAY_S)
    taken = one.take()
    assert taken.answered_ns - taken.asked_ns > 1e9 * READ_LIMIT_S
    early, late = kept_by_enough_ns(running("redis").nodes, one.key, 1)
    assert early - 1e9 * NEAR_S < taken.until_ns <= late


def test_what_was_sent_once_is_not_denied_because_it_could_not_be_sent_again(
    client: Callable[..., Client], running: Callable[[str], Running]
) -> None:
    """go-redis tells the last of four tries alone; the first had set the key."""
    one = client("bsm-redislock", "redis", KEY_S)
    one.settle()
    (proxy,) = one.proxies
    proxy.refuse()
    proxy.drop("reply", proxy.count("reply") + 1)
    assert isinstance(one.asked(), Unknown)
    assert kept_ns(running("redis").nodes[0], one.key)
    assert isinstance(one.asked(), Denied), "nothing is sent by the next"


def test_what_shortens_a_lease_counts_from_when_it_was_first_sent(
    client: Callable[..., Client], running: Callable[[str], Running]
) -> None:
    """RedissonMultiLock sets the lease of each lock at last. Where the answer is lost, it waits for
    longer than the lease and sends it again, to a key that is another's here by then."""
    one = client("redisson-multilock", "redlock", ttl_s=LEASE_S, servers=2)
    one.settle()
    replies = [n for proxy, way, n in one.messages() if (proxy, way) == (0, "reply")]
    first, server = one.proxies[0], running("redlock").nodes[0]
    struck = first.count("reply") + replies[-1]
    first.drop("reply", struck)
    with meanwhile(one.take) as taking:
        eventually(lambda: first.count("reply") >= struck)
        eventually(lambda: resp.ask_once(server, ASK_LIMIT_S, "EXISTS", one.key) == 0)
        resp.ask_once(server, ASK_LIMIT_S, "HSET", one.key, "another", "1")
    taken = taking.result()
    assert taken.until_ns < taken.asked_ns + 1.5e9 * LEASE_S < taken.answered_ns


@pytest.mark.long
@pytest.mark.parametrize("name", ["redisson-rlock", "redisson-rlock-safe"])
def test_a_renewal_by_the_watchdog_counts_from_when_it_was_sent(
    client: Callable[..., Client], running: Callable[[str], Running], name: str
) -> None:
    ttl_s = 3.0
    one = client(name, "redis", ttl_s)
    one.settle()
    taken = one.take()
    told = len(one.observer.until_ns)
    eventually(lambda: len(one.observer.until_ns) > told)
    one.delay(0, "request", 1)
    told = len(one.observer.until_ns)
    eventually(lambda: len(one.observer.until_ns) > told)
    kept = kept_ns(running("redis").nodes[0], one.key)
    assert kept is not None
    early_s = (kept[0] - one.observer.newest_ns(taken.granted)) / 1e9
    assert NEAR_S < early_s < DELAY_S + NEAR_S, "its request was delayed"
    assert one.observer.newest_ns(taken.granted) <= kept[1]


# --- ZooKeeper -----------------------------------------------------------------------------------


SESSION_S = LEASE_S  # that the cluster was made for
TICK_S = SESSION_S / TICKS_PER_LEASE  # after which a server has told its leader of what it answered
PING_S = SESSION_S / 3  # of an idle client; go-zookeeper's are that far apart whatever it sends
LATE_S = 0.4  # over before a new client's first heartbeat, which would lengthen the session


@pytest.mark.parametrize(
    "name",
    [
        "curator-mutex",
        "go-zookeeper",
        pytest.param("curator-mutex-no-listener", marks=LONG),
        pytest.param("curator-semaphore", marks=LONG),
        pytest.param("curator-read-write", marks=LONG),
    ],
)
def test_a_session_is_promised_from_its_last_message_that_counts(
    client: Callable[..., Client], running: Callable[[str], Running], name: str
) -> None:
    """The client is cut off when it has the grant, and the session ends. A new client's messages
    count from the opening; one that has long been idle has sent heartbeats."""
    cluster = running("zookeeper").cluster
    assert isinstance(cluster, ZooKeeperCluster)
    server = running("zookeeper").nodes[0]
    watch = KazooClient(f"{server.host}:{server.port}")
    watch.start()
    # A session is touched where the client is connected, told on with a tick's half, and ended
    # by whole ticks.
    ended_s = 2 * cluster.tick_ms / 1000
    found = Found()
    try:
        first = client(name, "zookeeper", SESSION_S, 1)
        first.settle()
        for message in [*first.messages(), (0, "request", 0)]:
            one = client(name, "zookeeper", SESSION_S, 1)
            begun_ns = time.monotonic_ns()
            one.settle()
            if message[2]:
                one.delay(*message, LATE_S)
            else:
                heartbeats(one, 4)
            taken = one.take()
            one.cut()
            gone_ns = gone(watch, one.key, name)
            until_ns = one.observer.newest_ns(taken.granted)
            found.judge(message, taken, until_ns, (gone_ns, gone_ns), SESSION_S)
            silent_s = (taken.asked_ns - begun_ns) / 1e9 + LATE_S if message[2] else PING_S
            assert found.early_s[message] < silent_s + TICK_S + ended_s + NEAR_S, message
    finally:
        watch.stop()
        watch.close()
    assert max(found.answer_late_s) > 0, "nothing would show a promise that is too late"


def heartbeats(one: Client, count: int) -> None:
    """Returns after so many more messages of an idle client."""
    before = one.proxies[0].count("request")
    eventually(lambda: one.proxies[0].count("request") >= before + count)


@pytest.mark.parametrize("name", ["curator-mutex", "go-zookeeper"])
def test_a_session_that_is_found_again_is_promised_from_then(
    client: Callable[..., Client], name: str
) -> None:
    """After an outage longer than the pause between heartbeats."""
    one = client(name, "zookeeper", SESSION_S, 1)
    one.settle()
    proxy = one.proxies[0]
    proxy.drop("request", proxy.count("request") + 1)  # the next heartbeat; the connection ends

    def newest() -> int:
        return max(burst.connection for burst in proxy.bursts("request"))

    eventually(lambda: newest() > 1)
    taken = one.take()
    opened_ns = next(b.time_ns for b in proxy.bursts("request") if b.connection == newest())
    assert taken.until_ns > opened_ns + (SESSION_S - NEAR_S) * 1e9


def test_the_tick_is_that_of_the_clusters() -> None:
    """The sources in Java and Go have it, because no client is told."""
    source = contained()["curator-mutex"].source.read_text()
    assert f"TICKS_PER_LEASE = {TICKS_PER_LEASE};" in source
    assert f"TICK_MS_MIN = {TICK_MS_MIN};" in source
    session = contained()["go-zookeeper"].source.with_name("zookeeper_session.go").read_text()
    assert re.search(rf"\bticksPerLease += {TICKS_PER_LEASE}\n", session)
    assert re.search(rf"\btickMsMin += {TICK_MS_MIN}\n", session)


def gone(watch: Any, key: str, name: str) -> int:
    """When the node of whoever holds the key was first seen to be gone."""
    path = f"/lockbench/{key}" + ("/leases" if name == "curator-semaphore" else "")
    assert watch.get_children(path)
    while watch.get_children(path):
        time.sleep(QUIET_S / 3)
    return time.monotonic_ns()


# --- etcd ----------------------------------------------------------------------------------------

LEASE_OF_ETCD_S = 5.0


@pytest.mark.long
@pytest.mark.parametrize("name", ["etcd-concurrency", "etcd-concurrency-is-owner"])
def test_a_kept_lease_is_promised_from_its_last_answered_keep_alive(
    client: Callable[..., Client], running: Callable[[str], Running], name: str
) -> None:
    """Also while the session is made: each message of a new client is delayed."""
    server = running("etcd").nodes[0]
    found = Found()
    for direction in DIRECTIONS:
        for nth in range(1, 9):
            one = client(name, "etcd", LEASE_OF_ETCD_S, 1)
            one.proxies[0].delay(direction, nth, DELAY_S)
            taken = one.take()
            one.cut()
            until_ns = one.observer.newest_ns(taken.granted)
            kept, granted_s = lease_kept_ns(server, one.key)
            found.judge((0, direction, nth), taken, until_ns, kept, granted_s)
    assert max(found.early_s.values()) < DELAY_S + NEAR_S, found.early_s


@pytest.mark.long
def test_a_lease_of_jetcd_is_promised_from_its_grant_or_its_last_answered_keep_alive(
    client: Callable[..., Client], running: Callable[[str], Running]
) -> None:
    """A process has one client, made for the servers that it is first told of, and an acquire a
    lease of its own. It is kept alive all the while, so the promise is read on both sides of the
    look at the server."""
    server = running("etcd").nodes[0]
    sidecar.close_shared()
    found = Found()
    one = client("jetcd", "etcd", LEASE_OF_ETCD_S, 1)
    try:
        one.settle()
        for message in one.messages():
            one.delay(*message)
            one.observer.until_ns.clear()
            taken = one.take()
            before_ns = one.observer.newest_ns(taken.granted)
            kept, granted_s = lease_kept_ns(server, one.key)
            found.judge(message, taken, before_ns, kept, granted_s)
            after_ns = one.observer.newest_ns(taken.granted)
            assert (kept[0] - after_ns) / 1e9 < DELAY_S + NEAR_S, message
            one.give_back(taken)
            one.quiet()
    finally:
        sidecar.close_shared()


def lease_kept_ns(server: Address, key: str) -> tuple[tuple[int, int], float]:
    """Between which times etcd ends the lease of the key's holder, and what it granted. It tells
    whole seconds, so what it says is watched until it changes."""
    prefix = f"/lockbench/{key}/".encode()
    with Http(server, 4 * ASK_LIMIT_S) as http:
        asked = {"key": _text(prefix), "range_end": _text(prefix[:-1] + b"0")}
        (held,) = http.post("/v3/kv/range", asked)["kvs"]
        before, last_s = time.monotonic_ns(), None
        while True:
            now = time.monotonic_ns()
            said = http.post("/v3/lease/timetolive", {"ID": held["lease"]})
            left_s = int(said.get("TTL", "0"))
            if last_s is not None and left_s < last_s:
                after = time.monotonic_ns()
                end = (before + last_s * 10**9, after + last_s * 10**9)
                return end, float(said["grantedTTL"])
            before, last_s = now, left_s


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.mark.parametrize(
    "name", [name for name in contained() if f'"{name}"' not in Path(__file__).read_text()]
)
def test_the_promises_of_a_library_that_is_not_named_here(name: str) -> None:
    pytest.skip(f"the promises of {name} are not compared with what its servers keep")
