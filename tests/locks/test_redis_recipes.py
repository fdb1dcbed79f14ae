"""The recipes on one Redis: what their errors mean, and what each does that the others do not.

A relay in front of a real server fails the commands that a test wants failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from bench.duties import Running
from locks import registry
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
from locks.redis.link import Link
from locks.redis.pubsub import RedisPubsub
from locks.redis.recipe import Taken
from tests.eventually import eventually
from tests.locks.fakes import Close, Late, Relay, closed_port
from tests.locks.test_redis_token import ACTIONS, NOSCRIPT, said

TTL_S = 1.0
LONG_S = 30.0  # so that no renewal comes between
PATIENT_S, SHORT_S = 10.0, 0.3  # to wait for a server that answers, and for one that will not

pytestmark = pytest.mark.docker

# The command that takes the lock, and for rows that begin otherwise, the one that is failed.
TAKES = {"redis-setnx": "SETNX", "redis-setnx-expire": "SETNX", "redis-fence-incr-first": "SET"}
TAKES |= dict.fromkeys(("redis-watchdog", "redis-renew-no-owner"), "SET")
SCRIPTS = ("redis-reentrant", "redis-fair", "redis-pubsub", "redis-fence")
OTHERS = {"between": "PEXPIRE", "drawing": "INCR"}
SYSTEMS = [registry.find(name) for name in (*TAKES, *SCRIPTS)]
ROWS = [(system, row) for system in SYSTEMS for row in system.outcomes]


@dataclass
class Bench:
    """A real server, keys that nobody else uses, and clients that are closed at the end."""

    server: Address
    open: ExitStack
    key: str

    def client(
        self,
        name: str,
        observer: Observer | None = None,
        *,
        at: Address | None = None,
        timeout_s: float = PATIENT_S,
        ttl_s: float = TTL_S,
    ) -> Lock:
        lock = registry.find(name).connect(
            [at or self.server],
            timeout_s=timeout_s,
            ttl_s=ttl_s,
            observer=observer or NoObserver(),
        )
        self.open.callback(lock.close)
        return lock

    def relay(self) -> Relay:
        relay = Relay(self.server)
        self.open.callback(relay.stop)
        return relay

    def ask(self, *command: str | int) -> object:
        link = Link(self.server, timeout_s=5)
        with closing(link):
            link.open()
            return link.call(*command)

    def take(self, lock: Lock, *, wait_s: float = 0.0, ttl_s: float = TTL_S) -> Acquired:
        return lock.acquire(self.key, hold_id=new_hold_id(), ttl_s=ttl_s, wait_s=wait_s)

    def granted(self, lock: Lock, *, wait_s: float = 0.0, ttl_s: float = TTL_S) -> Granted:
        answer = self.take(lock, wait_s=wait_s, ttl_s=ttl_s)
        assert isinstance(answer, Granted), answer
        return answer


@pytest.fixture
def bench(running: Callable[[str], Running]) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(running("redis").nodes[0], stack, f"recipe-{token_of(new_hold_id())}")


@pytest.mark.parametrize(("system", "row"), ROWS, ids=[f"{s.name}-{row}" for s, row in ROWS])
def test_every_error_means_what_the_table_says(bench: Bench, system: System, row: str) -> None:
    call, _, error = row.partition(": ")
    relay = bench.relay()
    timeout_s = SHORT_S if error == "TimeoutError" else PATIENT_S

    def client(at: Address) -> Lock:
        return bench.client(system.name, at=at, timeout_s=timeout_s, ttl_s=LONG_S)

    lock = client(closed_port() if error == "no connection" else relay.address)
    if call == "release":
        holder = client(relay.address)
        hold = bench.granted(holder, ttl_s=LONG_S).hold
        command = "DEL" if system.name in {"redis-setnx", "redis-setnx-expire"} else "EVALSHA"
        if error != "no connection":
            relay.on(command, ACTIONS[error])
            lock = holder
        answer: object = lock.release(hold)
    elif error == "granted too late":
        lock.release(bench.granted(lock).hold)  # so that the server knows the script
        starts = "PEXPIRE" if system.name == "redis-setnx-expire" else TAKES.get(system.name)
        relay.on(starts or "EVALSHA", Late(0.1))
        answer = bench.take(lock, ttl_s=0.05)
    else:
        command = OTHERS.get(call, TAKES.get(system.name, "EVALSHA"))
        if error != "no connection":
            relay.on(command, ACTIONS[error])
        answer = bench.take(lock, ttl_s=LONG_S)
    assert said(answer) == system.outcomes[row]


class Listener:
    """What an observer was told."""

    def __init__(self) -> None:
        self.extended_to: list[int] = []
        self.losses: list[Hold] = []

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self.extended_to.append(valid_until_ns)

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self.losses.append(hold)


def test_setnx_leaves_a_key_for_ever(bench: Bench) -> None:
    relay = bench.relay()
    relay.on("SETNX", Close())
    assert isinstance(bench.take(bench.client("redis-setnx", at=relay.address)), Unknown)
    assert bench.ask("PTTL", bench.key) == -1


def test_a_crash_between_the_two_commands_leaves_a_key_for_ever(bench: Bench) -> None:
    relay = bench.relay()
    lock = bench.client("redis-setnx-expire", at=relay.address)
    bench.granted(lock)
    assert bench.ask("PTTL", bench.key) != -1
    bench.ask("DEL", bench.key)
    relay.on("PEXPIRE", ACTIONS["BusyLoadingError"])  # refused, as if it had never been sent
    assert isinstance(bench.take(lock), Unknown)
    assert bench.ask("PTTL", bench.key) == -1


def test_a_watchdog_tells_of_a_loss_once_and_stops(bench: Bench) -> None:
    listener, relay = Listener(), bench.relay()
    lock = bench.client("redis-watchdog", listener, at=relay.address)
    grant = bench.granted(lock)
    eventually(lambda: listener.extended_to)
    assert grant.valid_until_ns is not None
    assert listener.extended_to[0] > grant.valid_until_ns
    bench.ask("SET", bench.key, "another's")
    eventually(lambda: listener.losses)
    asked = relay.names().count("EVALSHA")
    time.sleep(TTL_S)
    assert listener.losses == [grant.hold]
    assert relay.names().count("EVALSHA") == asked
    assert isinstance(lock.release(grant.hold), NotHeld)


def test_a_watchdog_outlives_a_lost_answer(bench: Bench) -> None:
    listener, relay = Listener(), bench.relay()
    lock = bench.client("redis-watchdog", listener, at=relay.address)
    relay.on("EVALSHA", Close())
    grant = bench.granted(lock)
    eventually(lambda: listener.extended_to)
    assert not listener.losses
    assert isinstance(lock.release(grant.hold), Released)


def test_a_released_hold_is_not_renewed(bench: Bench) -> None:
    listener, relay = Listener(), bench.relay()
    lock = bench.client("redis-watchdog", listener, at=relay.address)
    assert isinstance(lock.release(bench.granted(lock).hold), Released)
    asked = relay.names().count("EVALSHA")
    time.sleep(TTL_S)
    assert relay.names().count("EVALSHA") == asked
    assert not listener.losses


@pytest.mark.parametrize(
    ("name", "renewed"), [("redis-watchdog", False), ("redis-renew-no-owner", True)]
)
def test_only_the_control_renews_anothers_key(bench: Bench, name: str, renewed: bool) -> None:
    listener = Listener()
    bench.granted(bench.client(name, listener))
    bench.ask("SET", bench.key, "another's", "PX", 60_000)
    eventually(lambda: listener.losses or listener.extended_to)
    assert bool(listener.extended_to) is renewed
    assert bool(listener.losses) is not renewed


def test_the_owner_enters_again_and_leaves_as_often(bench: Bench) -> None:
    mine, other = bench.client("redis-reentrant"), bench.client("redis-reentrant")
    outer, inner = bench.granted(mine), bench.granted(mine)
    assert isinstance(bench.take(other), Denied)
    assert isinstance(mine.release(inner.hold), Released)
    assert isinstance(bench.take(other), Denied)
    assert isinstance(mine.release(outer.hold), Released)
    assert isinstance(mine.release(outer.hold), NotHeld)
    bench.granted(other)


def test_an_inner_grant_does_not_shorten_the_outer_one(bench: Bench) -> None:
    mine, other = bench.client("redis-reentrant"), bench.client("redis-reentrant")
    bench.granted(mine, ttl_s=LONG_S)
    inner = bench.granted(mine, ttl_s=10)
    assert isinstance(mine, Extendable)
    mine.extend(inner.hold, 10)
    assert bench.ask("PTTL", bench.key) > 10_000  # type: ignore[operator]
    assert isinstance(bench.take(other), Denied)


def test_after_an_unknown_outcome_the_owner_is_another(bench: Bench) -> None:
    relay = bench.relay()
    lock = bench.client("redis-reentrant", at=relay.address)
    bench.granted(lock)
    relay.on("EVALSHA", Close())
    assert isinstance(bench.take(lock), Unknown)
    assert isinstance(bench.take(lock), Denied)


def test_the_queue_is_served_in_order(bench: Bench) -> None:
    holder = bench.client("redis-fair")
    grant = bench.granted(holder)
    served: list[int] = []

    def wait(number: int) -> None:
        lock = bench.client("redis-fair")
        answer = bench.granted(lock, wait_s=20)
        served.append(number)
        lock.release(answer.hold)

    def queued(count: int) -> bool:
        return bench.ask("ZCARD", f"{bench.key}:queue") == count

    threads = []
    for number in range(4):
        threads.append(threading.Thread(target=wait, args=(number,)))
        threads[-1].start()
        eventually(partial(queued, number + 1))
    assert isinstance(bench.take(bench.client("redis-fair")), Denied)  # a try does not overtake
    assert bench.ask("ZCARD", f"{bench.key}:queue") == 4
    holder.release(grant.hold)
    for thread in threads:
        thread.join(20)
    assert served == [0, 1, 2, 3]
    assert bench.ask("EXISTS", f"{bench.key}:queue", f"{bench.key}:seen") == 0


def test_whoever_died_waiting_is_dropped(bench: Bench) -> None:
    bench.ask("ZADD", f"{bench.key}:queue", 1, "dead")
    bench.ask("ZADD", f"{bench.key}:seen", 1, "dead")
    bench.granted(bench.client("redis-fair"))


def test_a_wait_that_ran_out_leaves_the_queue(bench: Bench) -> None:
    bench.granted(bench.client("redis-fair"))
    assert isinstance(bench.take(bench.client("redis-fair"), wait_s=0.1), Denied)
    assert bench.ask("ZCARD", f"{bench.key}:queue") == 0


def test_a_waiter_sleeps_until_it_is_woken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, waiter = bench.client("redis-pubsub"), bench.client("redis-pubsub")
    tries = _counted(waiter, monkeypatch)
    grant = bench.granted(holder, ttl_s=30)
    waited: list[Granted] = []
    thread = threading.Thread(target=lambda: waited.append(bench.granted(waiter, wait_s=20)))
    thread.start()
    eventually(lambda: bench.ask("PUBSUB", "NUMSUB", f"{bench.key}:freed")[1] == 1)  # type: ignore[index]
    # It does not poll: pauses between polls are far shorter than the stretch that has to come.
    eventually(lambda: _rests(tries))
    holder.release(grant.hold)
    thread.join(20)
    assert waited
    assert bench.ask("PUBSUB", "NUMSUB", f"{bench.key}:freed")[1] == 0  # type: ignore[index]
    assert isinstance(waiter.release(waited[0].hold), Released)


def test_a_waiter_is_not_woken_by_the_dead_but_by_the_clock(bench: Bench) -> None:
    bench.granted(bench.client("redis-pubsub"), ttl_s=0.4)
    began = time.monotonic()
    bench.granted(bench.client("redis-pubsub"), wait_s=20)
    assert time.monotonic() - began < 20, "the end of its wait has woken it"


def test_fences_of_the_control_regress_under_contention(bench: Bench) -> None:
    """Who draws first waits, and is granted after one who drew later."""
    holder, late = (bench.client("redis-fence-incr-first") for _ in range(2))
    relay = bench.relay()
    patient = bench.client("redis-fence-incr-first", at=relay.address)
    grant = bench.granted(holder, ttl_s=30)
    waited: list[Granted] = []
    thread = threading.Thread(target=lambda: waited.append(bench.granted(patient, wait_s=20)))
    thread.start()
    eventually(lambda: relay.names().count("SET") >= 2)
    relay.freeze()
    holder.release(grant.hold)
    between = bench.granted(late)
    late.release(between.hold)
    relay.thaw()
    thread.join(20)
    assert between.fence is not None
    assert waited[0].fence == between.fence - 1


def _counted(client: Lock, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When this client tries to take the key, from now on."""
    tries: list[float] = []
    assert isinstance(client, RedisPubsub)
    take = client.take

    def counting(key: str, token: str, ttl_ms: int) -> Taken | None:
        tries.append(time.monotonic())
        return take(key, token, ttl_ms)

    monkeypatch.setattr(client, "take", counting)
    return tries


def _rests(tries: list[float]) -> bool:
    """Whether there were tries, and none within half a second."""
    before = len(tries)
    time.sleep(0.5)
    return 0 < before == len(tries)


def test_the_relay_can_fail_what_the_server_would_run(bench: Bench) -> None:
    """The tables above would be worthless if it could not."""
    relay = bench.relay()
    relay.on("GET", NOSCRIPT)
    link = Link(relay.address, timeout_s=5)
    with closing(link):
        link.open()
        with pytest.raises(Exception, match="No matching script"):
            link.call("GET", bench.key)
        assert link.call("GET", bench.key) is None
        relay.on("GET", Close())
        with pytest.raises(RedisConnectionError):
            link.call("GET", bench.key)
