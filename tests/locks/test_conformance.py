"""What every lock owes to its users, held to on real clusters. A new lock is found by the scan.

``test_conformance_gevent`` runs this file again under gevent, as Locust's workers do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from clusters.base import Pausable
from locks import sidecar
from locks.base import (
    Acquired,
    Address,
    Denied,
    Extendable,
    Granted,
    Hold,
    Lock,
    NoObserver,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
    new_hold_id,
    token_of,
)
from tests.locks.conftest import LEASE_S, Running, every_system, more_systems
from tests.locks.remote import RemoteClient

FOREVER = 2**62
# Nothing ends a hold whose holder is gone, or an acquire whose answer was lost.
LOCKED_FOR_EVER = {"redis-setnx", "redis-setnx-expire"}
# They queue as etcd's own lock does: a key for each who waits, below the name of the lock.
ETCD_QUEUES = {
    "etcd",
    "etcd-concurrency",
    "etcd-concurrency-is-owner",
    "etcd-no-recheck",
    "jetcd",
}
CURATOR = {"curator-mutex", "curator-read-write"}
REDISSON = {  # at its defaults
    "redisson-fair",
    "redisson-fenced",
    "redisson-multilock",
    "redisson-rlock-sentinel",
    "redisson-spin",
}
# What a library does not owe, by lock and test, and why.
NOT_OWED = {
    ("redis-py-safe", "test_a_wait_that_ran_out_leaves_nothing_behind"): (
        "it gives up as soon as the next poll would come after the wait"
    ),
    ("redis-py-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "its error does not say whether anything was sent"
    ),
    ("etcd3gw-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "its error does not say whether anything was sent"
    ),
    ("kazoo-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "start() wants a connection, so there is no client without one"
    ),
    ("redisson-rlock-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "Redisson.create() wants a connection, so there is no client without one"
    ),
    ("kazoo-safe", "test_paused_servers_make_a_release_unknown"): (
        "acquire() tries again for as long as there is no connection"
    ),
    ("tooz-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "start() wants a connection, so there is no client without one"
    ),
    ("tooz-safe", "test_paused_servers_make_a_release_unknown"): (
        "acquire() tries again for as long as there is no connection"
    ),
    ("redlock-ng-safe", "test_paused_servers_make_a_release_unknown"): (
        "release() returns nothing, whatever happened"
    ),
    ("redlock-ng-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "lock.valid is False for a node in error as for a node that refuses"
    ),
    ("python-redis-lock-safe", "test_paused_servers_make_a_release_unknown"): (
        "a wait is one BLPOP, so no request may have a shorter limit than the longest wait"
    ),
    ("python-redis-lock-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "its error does not say whether anything was sent"
    ),
    ("redis-lock-py-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "its error does not say whether anything was sent"
    ),
    ("pottery-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "its error does not say whether anything was sent"
    ),
    ("pottery-safe", "test_a_hold_lives_on_while_it_is_kept_alive"): (
        "it extends a lock three times, then it raises TooManyExtensions"
    ),
    ("bsm-redislock-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "go-redis dials five times, 100 ms apart (go-redis#3686); before that the context ends"
    ),
    ("redsync-safe", "test_a_server_that_is_not_there_has_no_effect"): (
        "Lock() whose context ends says ErrFailed, whatever its tries have met"
    ),
    **{
        (name, "test_a_key_does_not_touch_those_that_begin_with_it"): (
            "it waits for every key that begins with its name and a slash (etcd-io/website#710)"
        )
        for name in ETCD_QUEUES
    },
    **{
        (name, "test_a_server_that_is_not_there_has_no_effect"): (
            "acquire() throws ConnectionLossException, whether anything was sent or not"
        )
        for name in CURATOR
    },
    **{
        (name, "test_a_server_that_is_not_there_has_no_effect"): (
            "Redisson.create() wants a connection, so there is no client without one"
        )
        for name in REDISSON
    },
    **{
        (name, "test_paused_servers_make_a_release_unknown"): (
            "at its defaults it waits three seconds for an answer, and tries again"
        )
        for name in REDISSON
    },
    **{
        (name, "test_a_hold_lives_on_while_it_is_kept_alive"): (
            "with a lease time it has no watchdog, and nothing to extend a lock with"
        )
        for name in REDISSON - {"redisson-rlock-sentinel"}
    },
}
# What a library says to whoever gives back a hold too late, where it is not "not held", and why.
LATE_RELEASE = {
    "etcd-concurrency": ("Released", "Unlock() returns nil where there was no key"),
    "jetcd": ("Unknown", "unlock() returns all the same; revoke() does not find the lease"),
    "redlock-ng-safe": ("Released", "release() returns nothing, whatever happened"),
    **dict.fromkeys(
        ("kazoo-safe", "tooz-safe"), ("Released", "release() returns True for a node that is gone")
    ),
    **dict.fromkeys(CURATOR, ("Released", "release() does not mind that its node is gone")),
}
# How long a release and a try take on silent servers, where the library tries again; in seconds.
# Curator's ExponentialBackoffRetry(1000, 3) needs some 25 for both.
RETRIES_S = dict.fromkeys(CURATOR, 40.0)

# A lease that ends in no test, whatever else the machine does. Locks whose grants have no lease of
# their own are kept alive by their clients.
LONG_S = 60.0

pytestmark = pytest.mark.docker


@dataclass
class Desk:
    """A system on its cluster, a fresh key, and clients that are closed at the end."""

    system: System
    running: Running
    open: ExitStack
    lease_s: float = LEASE_S
    timeout_s: float = LEASE_S / 2
    key: str = field(default_factory=lambda: f"test-{token_of(new_hold_id())}")

    @property
    def patience_s(self) -> float:
        """A dead holder's lock is free by then, an election over."""
        return 4 * self.lease_s

    def client(self, observer: Observer | None = None) -> Lock:
        lock = self.system.connect(
            self.running.nodes,
            timeout_s=self.timeout_s,
            ttl_s=self.lease_s,
            observer=observer or NoObserver(),
        )
        self.open.callback(lock.close)
        return lock

    def remote(self) -> RemoteClient:
        client = RemoteClient(
            self.system, self.running.nodes, timeout_s=self.timeout_s, ttl_s=self.lease_s
        )
        self.open.callback(client.kill)
        return client

    def take(self, lock: Lock, wait_s: float = 0.0, ttl_s: float | None = None) -> Acquired:
        return lock.acquire(
            self.key, hold_id=new_hold_id(), ttl_s=ttl_s or self.lease_s, wait_s=wait_s
        )

    def granted(self, lock: Lock, ttl_s: float | None = None) -> Granted:
        answer = self.take(lock, self.patience_s, ttl_s)
        assert isinstance(answer, Granted), answer
        return answer


@pytest.fixture(
    params=[
        *every_system(),
        *(pytest.param(system, marks=pytest.mark.long) for system in more_systems()),
    ],
    ids=lambda system: system.name,
)
def desk(request: pytest.FixtureRequest, running: Callable[[str], Running]) -> Iterator[Desk]:
    system: System = request.param
    reason = NOT_OWED.get((system.name, request.node.originalname))
    if reason is not None:
        pytest.skip(reason)
    if system.prepare is not None:
        system.prepare()
    with ExitStack() as stack:
        made = Desk(system, running(system.topologies[0]), stack)
        # A shorter lease suits a server that elects nobody, not a JVM that connects for the first
        # time, which takes longer than a quarter of it.
        if system.family == "redis" and not system.name.startswith("redisson-"):
            made.lease_s, made.timeout_s = LEASE_S / 2, LEASE_S / 4
        yield made


@contextmanager
def fresh_sidecars() -> Iterator[None]:
    """Of jetcd a process has one client, made for the servers that it is first told of."""
    sidecar.close_shared()
    try:
        yield
    finally:
        sidecar.close_shared()


def test_a_grant_is_promised_for_about_a_lease(desk: Desk) -> None:
    lock = desk.client()
    before_ns = time.monotonic_ns()
    grant = desk.granted(lock)
    assert grant.hold.key == desk.key
    assert (grant.valid_until_ns is not None) == desk.system.limited
    if grant.valid_until_ns is not None:
        assert grant.valid_until_ns > time.monotonic_ns()
        assert grant.valid_until_ns - before_ns < 1.5e9 * (desk.lease_s + 1)
    assert isinstance(lock.release(grant.hold), Released)


def test_a_try_is_denied_while_held(desk: Desk) -> None:
    holder, other = desk.client(), desk.client()
    grant = desk.granted(holder, LONG_S)
    answer = desk.take(other)
    assert isinstance(answer, Denied)
    assert answer.reason.startswith("held")
    assert isinstance(holder.release(grant.hold), Released)
    desk.granted(other)


def test_a_try_of_a_free_key_is_granted(desk: Desk) -> None:
    lock = desk.client()
    desk.granted(lock)  # connections are up
    desk.key = f"{desk.key}-2"
    answer = desk.take(lock)
    assert isinstance(answer, Granted), answer


def test_a_released_hold_is_not_held(desk: Desk) -> None:
    lock = desk.client()
    grant = desk.granted(lock)
    assert isinstance(lock.release(grant.hold), Released)
    assert isinstance(lock.release(grant.hold), NotHeld)


def test_keys_do_not_touch_each_other(desk: Desk) -> None:
    lock = desk.client()
    desk.granted(lock, LONG_S)
    desk.key = f"{desk.key}/x"
    desk.granted(lock)


def test_a_key_does_not_touch_those_that_begin_with_it(desk: Desk) -> None:
    lock, key = desk.client(), desk.key
    for longer in ("0", "/x"):
        desk.key = key + longer
        desk.granted(lock, LONG_S)
    desk.key = key
    desk.granted(lock)


def test_a_waiter_gets_it_after_the_release(desk: Desk) -> None:
    holder, waiter = desk.client(), desk.client()
    grant = desk.granted(holder, LONG_S)
    waited: list[Acquired] = []
    thread = threading.Thread(
        target=lambda: waited.append(desk.take(waiter, LONG_S / 2, LONG_S)), daemon=True
    )
    thread.start()
    time.sleep(0.3)
    assert not waited
    assert isinstance(holder.release(grant.hold), Released)
    thread.join(LONG_S / 4)
    assert waited, "it must not wait until its last try"
    assert isinstance(waited[0], Granted)


def test_a_wait_that_ran_out_leaves_nothing_behind(desk: Desk) -> None:
    holder, waiter, third = desk.client(), desk.client(), desk.client()
    grant = desk.granted(holder, LONG_S)
    began = time.monotonic()
    answer = desk.take(waiter, 0.3, LONG_S)
    assert isinstance(answer, Denied)
    assert answer.reason.startswith("gave-up")
    assert 0.3 <= time.monotonic() - began < LONG_S
    assert isinstance(holder.release(grant.hold), Released)
    desk.granted(third)


def test_fences_grow(desk: Desk) -> None:
    locks = [desk.client(), desk.client()]
    fences = []
    for turn in range(6):
        lock = locks[turn % 2]
        grant = desk.granted(lock)
        fences.append(grant.fence)
        lock.release(grant.hold)
    if desk.system.fence is None:
        assert fences == [None] * 6
    else:
        numbers = [fence for fence in fences if fence is not None]
        assert numbers == sorted(set(numbers))
        assert len(numbers) == 6


def test_no_two_promises_overlap_under_contention(desk: Desk) -> None:
    """Each promise from its grant to its release, or to its end if that came first."""
    promises: list[tuple[int, int]] = []
    began = time.monotonic()

    def enough() -> bool:
        took_s = time.monotonic() - began
        return took_s > 1.5 and (len(promises) > 20 or took_s > 20)

    def work() -> None:
        with closing(desk.client()) as lock:
            while not enough():
                answer = desk.take(lock, 1)
                if not isinstance(answer, Granted):
                    continue
                began_ns = time.monotonic_ns()
                time.sleep(0.002)
                ended_ns = min(time.monotonic_ns(), answer.valid_until_ns or FOREVER)
                promises.append((began_ns, ended_ns))
                lock.release(answer.hold)

    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    promises.sort()
    assert len(promises) > 20
    for (_, ended_ns), (began_ns, _) in pairwise(promises):
        assert ended_ns <= began_ns


def test_a_frozen_holder_loses_it_after_its_promise_and_not_before(desk: Desk) -> None:
    remote, local = desk.remote(), desk.client()
    desk.granted(local)  # connections are up
    desk.key = f"{desk.key}-2"
    mine = remote.ask(call="acquire", key=desk.key, wait_s=desk.patience_s)
    assert mine["said"] == "Granted"
    remote.freeze()
    if not desk.system.limited:
        assert isinstance(desk.take(local, desk.lease_s), Denied)
        remote.thaw()
        assert remote.ask(call="release", key=desk.key)["said"] == "Released"
        return
    grant = desk.granted(local)
    assert time.monotonic_ns() >= mine["valid_until_ns"]
    remote.thaw()
    time.sleep(0.5)  # a client may need a moment to notice that its connection is gone
    remotely = remote.ask(call="release", key=desk.key)["said"]
    locally = local.release(grant.hold)
    if desk.system.name in {"redis-no-owner", "redis-setnx-expire"}:
        assert (remotely, type(locally)) == ("Released", NotHeld)
    elif desk.system.name == "etcd-no-recheck":
        # It waited for as long as a lease lasts, and did not look whether its own had ended.
        assert remotely == "NotHeld"
    else:
        said, _ = LATE_RELEASE.get(desk.system.name, ("NotHeld", ""))
        assert (remotely, type(locally)) == (said, Released)


def test_a_killed_holders_lock_is_free_after_its_lease(desk: Desk) -> None:
    remote, local = desk.remote(), desk.client()
    mine = remote.ask(call="acquire", key=desk.key, wait_s=desk.patience_s)
    assert mine["said"] == "Granted"
    remote.kill()
    if not desk.system.limited and desk.system.name in LOCKED_FOR_EVER:
        assert isinstance(desk.take(local, desk.lease_s), Denied)
        return
    desk.granted(local)
    assert time.monotonic_ns() >= (mine["valid_until_ns"] or 0)


class Listener:
    """An observer that keeps the promise as the checker would."""

    def __init__(self) -> None:
        self.until_ns: list[int] = []
        self.gaps = 0

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self.gaps += bool(self.until_ns) and acknowledged_ns > self.until_ns[-1]
        assert sent_ns <= acknowledged_ns <= time.monotonic_ns()
        self.until_ns.append(valid_until_ns)

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        raise AssertionError("nothing was to be lost")


def test_a_hold_lives_on_while_it_is_kept_alive(desk: Desk) -> None:
    """By heartbeats where the client sends them, else by extending it."""
    listener = Listener()
    if desk.system.name == "redis-setnx-expire":
        pytest.skip("nothing keeps it alive")
    lock, other = desk.client(listener), desk.client()
    grant = desk.granted(lock)
    until = time.monotonic() + 1.5 * desk.lease_s
    while time.monotonic() < until:
        time.sleep(desk.lease_s / 4)
        if isinstance(lock, Extendable):
            again = lock.extend(grant.hold, desk.lease_s)
            assert isinstance(again, Granted)
            assert again.valid_until_ns is not None
            listener.until_ns.append(again.valid_until_ns)
    if desk.system.limited:
        assert listener.until_ns[-1] > time.monotonic_ns()
    assert listener.gaps == 0
    assert isinstance(desk.take(other), Denied)
    assert isinstance(lock.release(grant.hold), Released)


def test_paused_servers_make_a_release_unknown(desk: Desk) -> None:
    cluster = desk.running.cluster
    if cluster is None:
        pytest.skip("the cluster belongs to another process")
    if not isinstance(cluster, Pausable):
        pytest.skip("its servers cannot be paused")
    lock, other = desk.client(), desk.client()
    desk.granted(other)
    desk.key = f"{desk.key}-2"
    grant = desk.granted(lock, LEASE_S)  # it must not have ended when it is given back
    cluster.pause(cluster.nodes)
    try:
        began = time.monotonic()
        assert isinstance(lock.release(grant.hold), Unknown)
        answer = desk.take(other)
        nothing_sent = isinstance(answer, Denied) and answer.reason.startswith("no-effect")
        assert isinstance(answer, Unknown) or nothing_sent, answer
        other.close()
        limit_s = RETRIES_S.get(desk.system.name, 20.0)
        assert time.monotonic() - began < limit_s
    finally:
        cluster.unpause(cluster.nodes)
    cluster.verify()
    if desk.system.name in LOCKED_FOR_EVER:
        assert isinstance(desk.take(lock, desk.lease_s), Denied)
        return
    desk.granted(lock)


def test_a_server_that_is_not_there_has_no_effect(desk: Desk) -> None:
    nodes = [Address("127.0.0.1", 9)] * len(desk.running.nodes)
    with fresh_sidecars():
        lock = desk.system.connect(nodes, timeout_s=0.2, ttl_s=desk.lease_s, observer=NoObserver())
        with closing(lock):
            answer = desk.take(lock, 0.3)
    assert isinstance(answer, Denied), answer
    assert answer.reason.startswith(("no-effect", "gave-up: no-effect"))


def test_closing_twice_and_closing_unused(desk: Desk) -> None:
    used, unused = desk.client(), desk.client()
    desk.granted(used)
    for lock in (used, used, unused, unused):
        lock.close()
