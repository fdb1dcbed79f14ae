"""What locks on Redis promise, against the end that real servers keep.

Every client reaches its servers by a proxy that makes one message late: each message of an acquire,
of an extend and of a renewal in turn. The server's own record of when the key ends (PEXPIRETIME)
bounds the promise: never later than that, and never earlier than that by more than the time of the
request that set it (and the declared drift). Covered is every lock of the registry that a process
of this machine drives; those that run in containers are not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import Any, Final, NamedTuple

import pytest
from redis.exceptions import ResponseError

from lockbench.bench.duties import Running
from lockbench.locks.base import (
    Acquired,
    Address,
    Extendable,
    Granted,
    Hold,
    Lock,
    NoObserver,
    Observer,
    System,
    new_hold_id,
    token_of,
)
from lockbench.locks.redis import redlock
from lockbench.locks.redis import token as redis_token
from lockbench.locks.redis.link import Link, NotSent
from lockbench.locks.redis.recipe import Taken
from lockbench.locks.redis.redlock import Redlock
from lockbench.locks.redis.token import RedisToken
from tests.eventually import eventually
from tests.locks import asking
from tests.locks.asking import Told, one_of_each_class
from tests.locks.delays import Burst, DelayingProxy, Direction
from tests.locks.early import TOO_EARLY, unless_once

TTL_S: Final = 10.0  # so that nothing is renewed in between
RENEWED_TTL_S: Final = 2.0
TIMEOUT_S: Final = 5.0
DELAY_S: Final = 0.3  # less than what Redlock waits for a node
WAIT_S: Final = 0.4  # until the key is free
SLACK_NS: Final = 150_000_000  # from a client's look at the clock to its proxy, on a busy machine
TICK_NS: Final = 1_000_000  # Redis counts whole milliseconds, and a key lives through its last one
DRIFT: Final = 0.01, 2_000_000  # of Redlock: of the time to live, and nanoseconds
AT_ONCE: Final = 5
DIRECTIONS: Final[tuple[Direction, ...]] = ("request", "reply")

pytestmark = pytest.mark.docker


def _named(system: System) -> object:
    """Libraries take longer; of them ``make test`` runs what it runs anyway."""
    long = system.prepare is not None and not system.represents
    return pytest.param(system, id=system.name, marks=[pytest.mark.long] if long else [])


SYSTEMS = one_of_each_class("redis", "redlock", "sentinel", "redis-cluster")
LIMITED = [_named(system) for system in SYSTEMS if system.limited]
RECIPES, OF_LIBRARIES = (
    [system for system in SYSTEMS if system.limited and (system.prepare is not None) is of_library]
    for of_library in (False, True)
)
UNLIMITED = [_named(system) for system in SYSTEMS if not system.limited]


class Late(NamedTuple):
    """A message to delay: the node, and which one of a direction from now on."""

    node: int
    direction: Direction
    number: int


@dataclass
class Served:
    """Servers that a client is given, each behind a proxy of its own. ``since``: how many requests
    and replies each had passed before the phase began."""

    system: System
    servers: Sequence[Address]
    proxies: Sequence[DelayingProxy]
    key: str
    since: Sequence[tuple[int, int]] = ()

    def connect(
        self, *, proxied: bool = True, ttl_s: float = TTL_S, observer: Observer | None = None
    ) -> Lock:
        return self.system.connect(
            [proxy.address for proxy in self.proxies] if proxied else self.servers,
            timeout_s=TIMEOUT_S,
            ttl_s=ttl_s,
            observer=observer or NoObserver(),
        )

    def take(self, lock: Lock, wait_s: float = 0.0, ttl_s: float = TTL_S) -> Acquired:
        return asking.take(lock, wait_s, ttl_s=ttl_s, key=self.key)

    def granted(self, lock: Lock, ttl_s: float = TTL_S) -> Granted:
        return asking.granted(lock, ttl_s=ttl_s, key=self.key)

    def delay(self, late: Sequence[Late]) -> None:
        """The phase begins."""
        self.since = self.counts()
        for node, direction, number in late:
            proxy = self.proxies[node]
            proxy.delay(direction, proxy.count(direction) + number, DELAY_S)

    def messages(self) -> list[Late]:
        """What the phase sent and was sent."""
        return [
            Late(node, direction, number)
            for node, (before, now) in enumerate(zip(self.since, self.counts(), strict=True))
            for place, direction in enumerate(DIRECTIONS)
            for number in range(1, 1 + now[place] - before[place])
        ]

    def counts(self) -> list[tuple[int, int]]:
        return [(proxy.count("request"), proxy.count("reply")) for proxy in self.proxies]

    def ask(self, *command: str) -> list[Any]:
        """All servers. None where it is refused: by a Sentinel, or by a replica of a cluster."""
        answers: list[Any] = []
        for server in self.servers:
            with closing(Link(server, timeout_s=TIMEOUT_S)) as link:
                _open(link)
                try:
                    answers.append(link.call(*command))
                except ResponseError:
                    answers.append(None)
        return answers

    def ends_ns(self) -> list[int | None]:
        """When the lock's key ends on each server at the latest, in the monotonic clock; None where
        it is not, or has no end. A lock may keep other keys with an end; its own is the last."""
        offset_ns = _offset_ns()
        ends: list[int | None] = [None] * len(self.servers)
        for name in {name for names in self.ask("KEYS", f"*{self.key}*") for name in names or ()}:
            for number, last_ms in enumerate(self.ask("PEXPIRETIME", name)):
                if last_ms is not None and last_ms >= 0:
                    end_ns = last_ms * 1_000_000 + TICK_NS + offset_ns
                    ends[number] = max(end_ns, ends[number] or 0)
        return ends


def _open(link: Link) -> None:
    """What a test asks with is no lock's: a server that is too busy for it is asked again."""

    def is_open() -> bool:
        with suppress(NotSent):
            link.open()
            return True
        return False

    eventually(is_open, "a server does not answer")


def _offset_ns() -> int:
    """What to add to this machine's wall clock, which is the servers' too, for the latest time that
    its monotonic clock may have shown then."""
    looks = []
    for _ in range(10):
        before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
        looks.append((after_ns - before_ns, after_ns - wall_ns))
    return min(looks)[1]


def wrong(served: Served, until_ns: int | None, called_ns: int, ttl_s: float = TTL_S) -> str | None:
    """What is wrong with a promise that was just made; None: nothing. ``called_ns``: when the call
    that made it returned."""
    assert until_ns is not None
    ends = served.ends_ns()
    ttl_ns = int(ttl_s * 1e9)
    alive = sorted(end for end in ends if end is not None)
    end_ns, drift_ns = alive[-1], 0
    if served.system.topologies[0] == "redlock":
        others = len(ends) - (len(ends) // 2 + 1)  # so many nodes let nobody else in
        end_ns, drift_ns = alive[len(alive) - others - 1], int(DRIFT[0] * ttl_ns) + DRIFT[1]
    asked_ns = []
    for proxy, node_ends_ns in zip(served.proxies, ends, strict=True):
        if node_ends_ns is None:
            continue
        ran_ns = node_ends_ns - ttl_ns
        while ran_ns - called_ns > ttl_ns / 2:  # it was added to what was left
            ran_ns -= ttl_ns
        came_ns = _came_ns(proxy.bursts(), ran_ns)
        if came_ns is not None:
            asked_ns.append((came_ns, node_ends_ns - ran_ns))
    late_ns = until_ns - end_ns
    if late_ns > 0:
        return f"too late by {late_ns / 1e6:.1f} ms"
    if not asked_ns:
        return f"{TOO_EARLY} to say: no request was seen"
    early_ns = min(at_ns + for_ns for at_ns, for_ns in asked_ns) - drift_ns - until_ns
    if early_ns > SLACK_NS:
        return f"{TOO_EARLY} by {early_ns / 1e6:.1f} ms"
    return None


def _came_ns(bursts: Sequence[Burst], ran_ns: int) -> int | None:
    """When the request came that a server ran at ``ran_ns`` or up to two ticks before. If there is
    a doubt, the one before it."""
    asked: dict[int, int] = {}  # by connection
    found = []
    for burst in bursts:
        if burst.direction == "request":
            asked[burst.connection] = burst.time_ns
        elif burst.time_ns >= ran_ns - 2 * TICK_NS and asked.get(burst.connection, ran_ns) < ran_ns:
            found.append(asked[burst.connection])
    return min(found, default=None)


# What is played, each with one message late. Returns what is wrong.
Phase = Callable[[Served, Sequence[Late]], str | None]


def acquire(served: Served, late: Sequence[Late]) -> str | None:
    """By a new client, so that its connections are made on the way. The libraries of Redlock count
    that as a part of the round, so theirs are made before."""
    with closing(served.connect()) as lock:
        if served.system.prepare is not None and served.system.topologies[0] == "redlock":
            _warm(served, lock)
        served.delay(late)
        return _judged(served, served.take(lock), late)


def extend(served: Served, late: Sequence[Late]) -> str | None:
    """The server does not know the script yet."""
    with closing(served.connect()) as lock:
        assert isinstance(lock, Extendable)
        answer = served.granted(lock)
        _forget_scripts(served)
        served.delay(late)
        return _judged(served, lock.extend(answer.hold, TTL_S), late)


def renewal(served: Served, late: Sequence[Late]) -> str | None:
    """The first one after a grant."""
    told = Told()
    with closing(served.connect(ttl_s=RENEWED_TTL_S, observer=told)) as lock:
        served.granted(lock, RENEWED_TTL_S)
        _forget_scripts(served)
        served.delay(late)
        eventually(lambda: told.until_ns, "nothing was renewed")
        while True:
            before = served.counts()
            found = wrong(served, told.until_ns[-1], time.monotonic_ns(), RENEWED_TTL_S)
            if served.counts() == before:  # else it may be of the next one
                return "lost" if told.losses else found


def wait(served: Served, late: Sequence[Late]) -> str | None:
    """Until another gives the key back."""
    with closing(served.connect(proxied=False)) as holder, closing(served.connect()) as lock:
        held = served.granted(holder)
        frees = threading.Timer(WAIT_S, holder.release, [held.hold])
        frees.start()
        served.delay(late)
        answer = served.take(lock, wait_s=TTL_S / 2)
        frees.join()
        return _judged(served, answer, late)


def _judged(served: Served, answer: object, late: Sequence[Late]) -> str | None:
    called_ns = time.monotonic_ns()
    if not isinstance(answer, Granted) and len({one.node for one in late}) > 1:
        return None  # a majority was late
    assert isinstance(answer, Granted), answer
    return wrong(served, answer.valid_until_ns, called_ns)


def _warm(served: Served, lock: Lock) -> None:
    other = replace(served, key=f"{served.key}-warm")
    lock.release(other.granted(lock).hold)


def _forget_scripts(served: Served) -> None:
    """Redlock loads its scripts with its connections, and would not know what an error means."""
    if served.system.topologies[0] != "redlock":
        served.ask("SCRIPT", "FLUSH")


class Bench:
    """Plays phases, several at once. A client of one Redis has a server of the five to itself, for
    the server is made to forget its scripts."""

    def __init__(self, running: Callable[[str], Running]) -> None:
        self._running = running
        self._places = count(1)
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._single: SimpleQueue[Address] = SimpleQueue()
        for server in running("redlock").nodes:
            self._single.put(server)

    def close(self) -> None:
        self._pool.shutdown()

    def play(self, system: System, phase: Phase) -> list[str]:
        """Once as it is and then with each message late; what is wrong. Of the nodes of Redlock one
        is late, and then a majority."""
        if system.topologies[0] != "redis":
            self._running(system.topologies[0])  # not in one of the threads
        found, messages = self._once(system, phase, [])
        late = [[message] for message in messages]
        if system.topologies[0] == "redlock":
            of_one = {message._replace(node=0) for message in messages}  # a slow node is not asked
            late = [
                [m._replace(node=n) for n in nodes] for m in of_one for nodes in ((0,), (0, 1, 2))
            ]
        assert late, "nothing was sent"
        answers = self._pool.map(partial(self._once, system, phase), late)
        return found + [text for texts, _ in answers for text in texts]

    def once(self, system: System, phase: Phase) -> list[str]:
        """As it is."""
        return self._once(system, phase, [])[0]

    def extends(self, system: System) -> bool:
        """Whether its holders can lengthen their promise."""
        with self._served(system) as served, closing(served.connect()) as lock:
            return isinstance(lock, Extendable)

    def renewing(self, systems: Sequence[System]) -> list[System]:
        """Those that tell of a renewal within most of a time to live."""
        told: dict[str, Told] = {}
        with ExitStack() as stack:
            for system in systems:
                nodes = self._running(system.topologies[0]).nodes
                served = Served(system, nodes, (), f"renewed-{token_of(new_hold_id())}")
                observer = told[system.name] = Told()
                lock = served.connect(proxied=False, ttl_s=RENEWED_TTL_S, observer=observer)
                stack.callback(lock.close)
                served.take(lock, ttl_s=RENEWED_TTL_S)
            time.sleep(0.8 * RENEWED_TTL_S)
            return [system for system in systems if told[system.name].until_ns]

    def _once(
        self, system: System, phase: Phase, late: Sequence[Late]
    ) -> tuple[list[str], list[Late]]:
        messages: list[Late] = []

        def play() -> str | None:
            with self._served(system) as served:
                found = phase(served, late)
                messages[:] = served.messages()
                return found

        found = unless_once(play)
        return [f"{found}, late: {[tuple(one) for one in late]}"] if found else [], messages

    @contextmanager
    def _served(self, system: System) -> Iterator[Served]:
        """A proxy listens at the port of its server: Sentinels and clusters name nodes by ports."""
        single = system.topologies[0] == "redis"
        servers = [self._single.get()] if single else self._running(system.topologies[0]).nodes
        place = next(self._places)
        try:
            with ExitStack() as stack:
                proxies = [
                    stack.enter_context(
                        DelayingProxy(
                            server, Address(f"127.1.{place // 256}.{place % 256}", server.port)
                        )
                    )
                    for server in servers
                ]
                # The part in braces puts all keys of a cluster on one node.
                yield Served(system, servers, proxies, f"{{promise}}{token_of(new_hold_id())}")
        finally:
            if single:
                self._single.put(servers[0])


@pytest.fixture(scope="module")
def bench(running: Callable[[str], Running]) -> Iterator[Bench]:
    made = Bench(running)
    yield made
    made.close()


def test_the_registry_has_such_locks() -> None:
    assert {"redis-token", "redlock", "redis-sentinel", "redis-cluster"} <= {
        system.name for system in SYSTEMS if system.limited
    }


@pytest.mark.parametrize("system", LIMITED)
def test_a_promise_is_what_the_servers_keep(bench: Bench, system: System) -> None:
    found = bench.play(system, acquire)
    found += bench.once(system, wait)
    if bench.extends(system):
        found += bench.play(system, extend)
    assert found == []


@pytest.mark.parametrize("system", UNLIMITED)
def test_a_grant_without_an_end_has_none_on_the_server(bench: Bench, system: System) -> None:
    def acquire_only(served: Served, late: Sequence[Late]) -> str | None:
        with closing(served.connect()) as lock:
            served.delay(late)
            answer = served.granted(lock)
            ends = [end for end in served.ends_ns() if end is not None]
            lock.release(answer.hold)
            return None if answer.valid_until_ns is None and not ends else f"it ends: {ends}"

    assert bench.once(system, acquire_only) == []


@pytest.mark.parametrize(
    ("systems", "at_least"),
    [
        (RECIPES, {"redis-watchdog", "redis-renew-no-owner"}),
        pytest.param(OF_LIBRARIES, {"python-redis-lock-safe"}, marks=pytest.mark.long),
    ],
    ids=["recipes", "libraries"],
)
def test_a_renewal_promises_what_the_server_keeps(
    bench: Bench, systems: list[System], at_least: set[str]
) -> None:
    renewing = bench.renewing(systems)
    assert at_least <= {system.name for system in renewing}
    assert [text for system in renewing for text in bench.play(system, renewal)] == []


class AtCompletion(RedisToken):
    """Plant: the promise is counted from the answer."""

    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        taken = super().take(key, token, ttl_ms)
        return taken and taken._replace(sent_ns=time.monotonic_ns())

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        return super().lengthen(hold, ttl_ms) and time.monotonic_ns()


class AtTheCall(RedisToken):
    """Plant: the promise is counted from the call, whatever had to be waited for."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        called_ns = time.monotonic_ns()
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        assert isinstance(answer, Granted)
        return replace(answer, valid_until_ns=called_ns + int(ttl_s * 1e9))

    def lengthen(self, hold: Hold, ttl_ms: int) -> int | None:
        called_ns = time.monotonic_ns()
        return super().lengthen(hold, ttl_ms) and called_ns


class MajorityAtCompletion(Redlock):
    """Plant: the answer of the majority begins the promise."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        if not isinstance(answer, Granted) or answer.valid_until_ns is None:
            return answer
        took_ns = time.monotonic_ns() - answer.sent_ns
        return replace(answer, valid_until_ns=answer.valid_until_ns + took_ns)


@pytest.mark.parametrize(
    ("planted", "phase", "is_wrong"),
    [
        (replace(redis_token.SYSTEM, connect=AtCompletion), acquire, "too late"),
        (replace(redis_token.SYSTEM, connect=AtCompletion), extend, "too late"),
        (replace(redis_token.SYSTEM, connect=AtTheCall), acquire, "too early"),
        (replace(redis_token.SYSTEM, connect=AtTheCall), wait, "too early"),
        (replace(redis_token.SYSTEM, connect=AtTheCall), extend, "too early"),
        (replace(redlock.SYSTEM, connect=MajorityAtCompletion), acquire, "too late"),
    ],
)
def test_a_wrong_beginning_is_seen(
    bench: Bench, planted: System, phase: Phase, is_wrong: str
) -> None:
    found = bench.once(planted, wait) if phase is wait else bench.play(planted, phase)
    assert found
    assert {text.partition(" by ")[0] for text in found} == {is_wrong}
