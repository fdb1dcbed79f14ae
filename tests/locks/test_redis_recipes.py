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
from typing import Any
from unittest import mock

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from lockbench.bench.duties import Running
from lockbench.locks import registry
from lockbench.locks.base import (
    Address,
    Denied,
    Extendable,
    Lock,
    NoObserver,
    NotHeld,
    Released,
    System,
    Unknown,
)
from lockbench.locks.redis import watchdog
from lockbench.locks.redis.link import Link
from lockbench.locks.redis.pubsub import RedisPubsub
from lockbench.locks.redis.recipe import Taken
from tests.eventually import eventually
from tests.locks.asking import LONG_S, PATIENT_S, Room, Told, meanwhile, said
from tests.locks.fakes import Close, Late, Relay, closed_port
from tests.locks.test_redis_token import ACTIONS, NOSCRIPT

TTL_S = 1.0
SHORT_S = 0.3  # to wait for a server that will not answer
OFTEN = LONG_S / 0.2  # renewals within a lease that does not end
SELDOM = LONG_S / 3  # the first of them comes after what a test does before it

pytestmark = pytest.mark.docker

# The command that takes the lock, and for rows that begin otherwise, the one that is failed.
TAKES = {"redis-setnx": "SETNX", "redis-setnx-expire": "SETNX", "redis-fence-incr-first": "SET"}
TAKES |= dict.fromkeys(("redis-watchdog", "redis-renew-no-owner"), "SET")
SCRIPTS = ("redis-reentrant", "redis-fair", "redis-pubsub", "redis-fence")
OTHERS = {"between": "PEXPIRE", "drawing": "INCR"}
SYSTEMS = [registry.find(name) for name in (*TAKES, *SCRIPTS)]
ROWS = [(system, row) for system in SYSTEMS for row in system.outcomes]


@dataclass
class Bench(Room):
    """One real server. ``relay`` stands in front of it."""

    ttl_s: float = LONG_S

    def relay(self) -> Relay:
        relay = Relay(self.running.nodes[0])
        self.open.callback(relay.stop)
        return relay

    def ask(self, *command: str | int) -> Any:
        with closing(Link(self.running.nodes[0], timeout_s=5)) as link:
            link.open()
            return link.call(*command)


@pytest.fixture
def bench(running: Callable[[str], Running]) -> Iterator[Bench]:
    with ExitStack() as stack:
        yield Bench(running("redis"), stack)


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


def test_a_watchdog_tells_of_a_loss_once_and_stops(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "RENEWALS_PER_TTL", OFTEN)
    listener, relay = Told(), bench.relay()
    lock = bench.client("redis-watchdog", listener, at=relay.address)
    grant = bench.granted(lock)
    eventually(lambda: listener.until_ns)
    assert grant.valid_until_ns is not None
    assert listener.until_ns[0] > grant.valid_until_ns
    bench.ask("SET", bench.key, "another's")
    eventually(lambda: listener.losses)
    asked = relay.names().count("EVALSHA")
    time.sleep(TTL_S)
    assert listener.losses == [grant.hold]
    assert relay.names().count("EVALSHA") == asked
    assert isinstance(lock.release(grant.hold), NotHeld)


def test_a_watchdog_outlives_a_lost_answer(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "RENEWALS_PER_TTL", OFTEN)
    listener, relay = Told(), bench.relay()
    lock = bench.client("redis-watchdog", listener, at=relay.address)
    relay.on("EVALSHA", Close())
    grant = bench.granted(lock)
    eventually(lambda: listener.until_ns)
    assert not listener.losses
    assert isinstance(lock.release(grant.hold), Released)


def test_a_released_hold_is_not_renewed(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    listener, relay = Told(), bench.relay()
    monkeypatch.setattr(watchdog, "RENEWALS_PER_TTL", OFTEN)
    lock = bench.client("redis-watchdog", listener, at=relay.address)
    assert isinstance(lock.release(bench.granted(lock).hold), Released)
    asked = relay.names().count("EVALSHA")
    time.sleep(TTL_S)
    assert relay.names().count("EVALSHA") == asked
    assert not listener.losses


@pytest.mark.parametrize(
    ("name", "renewed"), [("redis-watchdog", False), ("redis-renew-no-owner", True)]
)
def test_only_the_control_renews_anothers_key(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, name: str, renewed: bool
) -> None:
    monkeypatch.setattr(watchdog, "RENEWALS_PER_TTL", SELDOM)
    listener = Told()
    bench.granted(bench.client(name, listener))
    bench.ask("SET", bench.key, "another's", "PX", 60_000)
    eventually(lambda: listener.losses or listener.until_ns)
    assert bool(listener.until_ns) is renewed
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
    assert bench.ask("PTTL", bench.key) > 10_000
    assert isinstance(bench.take(other), Denied)


def test_after_an_unknown_outcome_the_owner_is_another(bench: Bench) -> None:
    relay = bench.relay()
    lock = bench.client("redis-reentrant", at=relay.address)
    bench.granted(lock)
    relay.on("EVALSHA", Close())
    assert isinstance(bench.take(lock), Unknown)
    assert isinstance(bench.take(lock), Denied)


def test_after_an_extend_of_unknown_outcome_the_owner_is_another(bench: Bench) -> None:
    relay = bench.relay()
    lock = bench.client("redis-reentrant", at=relay.address)
    assert isinstance(lock, Extendable)
    hold = bench.granted(lock).hold
    relay.on("EVALSHA", Close())
    assert isinstance(lock.extend(hold, 5.0), Unknown)
    assert isinstance(bench.take(lock), Denied)


def test_the_queue_is_served_in_order(bench: Bench) -> None:
    holder = bench.client("redis-fair")
    grant = bench.granted(holder)
    served: list[int] = []

    def wait(number: int) -> None:
        lock = bench.client("redis-fair")
        answer = bench.granted(lock, 20)
        served.append(number)
        lock.release(answer.hold)

    def queued(count: int) -> bool:
        return bool(bench.ask("ZCARD", f"{bench.key}:queue") == count)

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
    assert isinstance(bench.take(bench.client("redis-fair"), 0.1), Denied)
    assert bench.ask("ZCARD", f"{bench.key}:queue") == 0


def test_a_waiter_sleeps_until_it_is_woken(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    holder, waiter = bench.client("redis-pubsub"), bench.client("redis-pubsub")
    tries = _counted(waiter, monkeypatch)
    grant = bench.granted(holder, ttl_s=30)
    with meanwhile(lambda: bench.granted(waiter, 20)) as waited:
        eventually(lambda: bench.ask("PUBSUB", "NUMSUB", f"{bench.key}:freed")[1] == 1)
        # It does not poll: pauses between polls are far shorter than the stretch that has to come.
        eventually(lambda: _rests(tries))
        holder.release(grant.hold)
    assert bench.ask("PUBSUB", "NUMSUB", f"{bench.key}:freed")[1] == 0
    assert isinstance(waiter.release(waited.result().hold), Released)


def test_a_waiter_is_not_woken_by_the_dead_but_by_the_clock(bench: Bench) -> None:
    bench.granted(bench.client("redis-pubsub"), ttl_s=4)
    began = time.monotonic()
    bench.granted(bench.client("redis-pubsub"), 20)
    assert time.monotonic() - began < 20, "the end of its wait has woken it"


@pytest.mark.parametrize(("ttl_s", "answer"), [(0.3, "Denied: gave-up"), (LONG_S, "Granted")])
def test_a_waiter_whose_last_message_is_late_hands_out_no_dead_grant(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, ttl_s: float, answer: str
) -> None:
    """It stops listening after it was granted, which may take longer than the grant lasts."""
    holder, waiter = bench.client("redis-pubsub"), bench.client("redis-pubsub")
    assert isinstance(waiter, RedisPubsub)
    stop = waiter._stop_listening

    def slowly() -> None:
        stop()
        time.sleep(0.5)

    monkeypatch.setattr(waiter, "_stop_listening", slowly)
    grant = bench.granted(holder, ttl_s=LONG_S)
    with meanwhile(lambda: bench.take(waiter, 20, ttl_s=ttl_s)) as waited:
        eventually(lambda: bench.ask("PUBSUB", "NUMSUB", f"{bench.key}:freed")[1] == 1)
        holder.release(grant.hold)
    assert said(waited.result()) == answer


def test_fences_of_the_control_regress_under_contention(bench: Bench) -> None:
    """Who draws first waits, and is granted after one who drew later."""
    holder, late = (bench.client("redis-fence-incr-first") for _ in range(2))
    relay = bench.relay()
    patient = bench.client("redis-fence-incr-first", at=relay.address)
    grant = bench.granted(holder, ttl_s=30)
    with meanwhile(lambda: bench.granted(patient, 20)) as waited:
        eventually(lambda: relay.names().count("SET") >= 2)
        relay.freeze()
        holder.release(grant.hold)
        between = bench.granted(late)
        late.release(between.hold)
        relay.thaw()
    assert between.fence is not None
    assert waited.result().fence == between.fence - 1


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
    with closing(Link(relay.address, timeout_s=5)) as link:
        link.open()
        with pytest.raises(Exception, match="No matching script"):
            link.call("GET", bench.key)
        assert link.call("GET", bench.key) is None
        relay.on("GET", Close())
        with pytest.raises(RedisConnectionError):
            link.call("GET", bench.key)


def test_a_queue_that_cannot_be_asked_is_asked_as_seldom_as_any_lock() -> None:
    """Where nobody said how near its turn is."""
    tried = {}
    for name in ("redis-token", "redis-fair"):
        lock: Any = registry.find(name).connect(
            [closed_port()], timeout_s=0.5, ttl_s=3.0, observer=NoObserver()
        )
        with closing(lock), mock.patch.object(lock._link, "open", wraps=lock._link.open) as opens:
            denied = lock.acquire("k", hold_id=1, ttl_s=3.0, wait_s=1.0)
            assert isinstance(denied, Denied)
            tried[name] = opens.call_count
    assert tried["redis-fair"] <= 3 * tried["redis-token"]
