"""ZooKeeper's recipe against a scripted session: every error, and what it must mean.

kazoo and its private parts run against real servers in test_conformance.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import pytest
from kazoo.exceptions import ConnectionLoss, NoNodeError, SessionExpiredError

from lockbench.locks.base import Address, Denied, NotHeld, Observer, Released, Unknown
from lockbench.locks.zookeeper.mutex import SYSTEM, ZooKeeper
from lockbench.locks.zookeeper.session import NoAnswerError, Session
from tests.eventually import eventually
from tests.locks import asking
from tests.locks.asking import Told, meanwhile, said

TIMEOUT_S = 0.05
LOST, RUN_AND_LOST = ConnectionLoss(), "run, then the connection breaks"
Outcome = Exception | str


class Stat(NamedTuple):
    czxid: int


@dataclass
class Result:
    """kazoo's asynchronous result, ready or never to be."""

    value: Any = None
    exception: Exception | None = None
    answered: bool = True

    def ready(self) -> bool:
        return self.answered

    def wait(self, timeout: float) -> None:
        if not self.answered:
            time.sleep(timeout)


class Handler:
    def event_object(self) -> threading.Event:
        return threading.Event()

    def spawn(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, daemon=True).start()


@dataclass
class FakeClient:
    """One tree for all. ``on(request, *outcomes)`` replaces the next answers."""

    nodes: dict[str, int] = field(default_factory=dict)
    planned: dict[str, deque[Outcome]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    watches: dict[str, list[Callable[[Any], None]]] = field(default_factory=dict)
    zxid: int = 0
    handler: Handler = field(default_factory=Handler)

    def on(self, request: str, *outcomes: Outcome) -> None:
        self.planned.setdefault(request, deque()).extend(outcomes)

    def _do(self, request: str, effect: Callable[[], Any]) -> Result:
        self.asked.append(request)
        planned = self.planned.get(request)
        outcome = planned.popleft() if planned else None
        if isinstance(outcome, NoAnswerError):
            return Result(answered=False)
        if isinstance(outcome, Exception):
            return Result(exception=outcome)
        try:
            value = effect()
        except NoNodeError as error:
            return Result(exception=error)
        return Result(exception=LOST) if outcome == RUN_AND_LOST else Result(value)

    def create_async(self, path: str, **_: Any) -> Result:
        def effect() -> tuple[str, Stat]:
            if path.rpartition("/")[0] not in self.nodes:
                raise NoNodeError
            self.zxid += 1
            made = f"{path}{self.zxid:010d}"
            self.nodes[made] = self.zxid
            return made, Stat(self.zxid)

        return self._do("create", effect)

    def ensure_path_async(self, path: str) -> Result:
        return self._do("ensure", lambda: self.nodes.setdefault(path, 0))

    def get_children_async(self, path: str) -> Result:
        def effect() -> list[str]:
            return [n.rpartition("/")[2] for n in list(self.nodes) if n.startswith(f"{path}/")]

        return self._do("children", effect)

    def sync_async(self, path: str) -> Result:
        return self._do("sync", lambda: path)

    def exists_async(self, path: str, watch: Callable[[Any], None] | None = None) -> Result:
        def effect() -> Stat | None:
            if path not in self.nodes:
                return None
            if watch is not None:
                self.watches.setdefault(path, []).append(watch)
            return Stat(self.nodes[path])

        return self._do("exists", effect)

    def delete_async(self, path: str) -> Result:
        def effect() -> None:
            if path not in self.nodes:
                raise NoNodeError
            self.remove(path)

        return self._do("delete", effect)

    def remove(self, path: str) -> None:
        del self.nodes[path]
        for watch in self.watches.pop(path, []):
            watch("deleted")


class FakeSession:
    """A session as the recipe sees it."""

    answers = staticmethod(Session.answers)
    made: list[FakeSession]
    client: FakeClient
    up: bool

    def __init__(self, *_: Any, on_heartbeat: Any, on_lost: Any) -> None:
        self.id = len(self.made) + 1
        self.on_heartbeat, self.on_lost = on_heartbeat, on_lost
        self.sent_ns = time.monotonic_ns()
        self.valid_until_ns = self.sent_ns + 10_000_000_000
        self.made.append(self)

    def connected(self, limit_s: float) -> bool:
        return self.up

    def dispose(self) -> threading.Thread:
        thread = threading.Thread(target=lambda: None)
        thread.start()
        return thread


@pytest.fixture
def zk(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeClient]:
    client = FakeClient()
    FakeSession.made = []
    FakeSession.client = client
    FakeSession.up = True
    monkeypatch.setattr("lockbench.locks.zookeeper.mutex.session.Session", FakeSession)
    return client  # type: ignore[return-value]


def connect(observer: Observer | None = None) -> ZooKeeper:
    nodes = [Address("127.0.0.1", 1)]
    return ZooKeeper(nodes, timeout_s=TIMEOUT_S, ttl_s=4, observer=observer or Told())


take = partial(asking.take, ttl_s=4, key="k/1")
granted = partial(asking.granted, ttl_s=4, key="k/1")


def queue(zk: FakeClient) -> list[str]:
    return [node for node in list(zk.nodes) if "-lock-" in node]


ERRORS: dict[str, Outcome] = {
    "NoAnswerError": NoAnswerError("scripted"),
    "ConnectionLoss": LOST,
    "SessionExpiredError": SessionExpiredError(),
    "NoNodeError": NoNodeError(),
}


def _acquire_disconnected(zk: FakeClient) -> object:
    FakeSession.up = False
    return take(connect())


def _acquire_and_vanish(zk: FakeClient) -> object:
    lock, waiter = connect(), connect()
    granted(lock)
    with meanwhile(lambda: take(waiter, 20)) as waiting:
        eventually(lambda: any(zk.watches.values()))
        for node in reversed(queue(zk)):  # the watched one last, so that its watcher finds none
            zk.remove(node)
    return waiting.result()


def _release_disconnected(zk: FakeClient) -> object:
    lock = connect()
    hold = granted(lock).hold
    FakeSession.up = False
    return lock.release(hold)


SPECIAL: dict[str, Callable[[FakeClient], object]] = {
    "acquire: not connected": _acquire_disconnected,
    "acquire: own node gone": _acquire_and_vanish,
    "release: not connected": _release_disconnected,
}


@pytest.mark.parametrize("row", SYSTEM.outcomes)
def test_every_error_means_what_the_table_says(zk: FakeClient, row: str) -> None:
    if row in SPECIAL:
        answer: object = SPECIAL[row](zk)
    else:
        call, _, case = row.partition(": ")
        error, _, then = case.partition(", ")
        answer = _with_error(zk, call, ERRORS[error], cleaned=then != "not deleted")
    assert said(answer) == SYSTEM.outcomes[row]


def _with_error(zk: FakeClient, call: str, error: Outcome, *, cleaned: bool) -> object:
    lock = connect()
    hold = granted(lock).hold
    if call == "release":
        zk.on("delete", error)
        return lock.release(hold)
    lock.release(hold)
    zk.on("create", RUN_AND_LOST if error is LOST else error)
    if not cleaned:
        zk.on("sync", LOST)
    return take(lock)


def test_a_lost_create_reply_is_found_by_its_guid(zk: FakeClient) -> None:
    """ZOOKEEPER-1262: otherwise the first node would block the second for ever."""
    lock = connect()
    zk.nodes["/lockbench/k%2F1"] = 0
    zk.on("create", RUN_AND_LOST)
    answer = granted(lock, 20)
    assert answer.fence == 1
    assert len(queue(zk)) == 1


def test_a_create_that_never_ran_is_sent_again(zk: FakeClient) -> None:
    zk.on("create", LOST)
    granted(connect(), 20)
    assert len(queue(zk)) == 1


def test_nobody_before_it_takes_one_round_trip(zk: FakeClient) -> None:
    lock = connect()
    lock.release(granted(lock).hold)
    zk.asked.clear()
    granted(lock)
    assert zk.asked == ["create", "children"]


def test_every_look_but_the_first_is_behind_a_sync(zk: FakeClient) -> None:
    holder, waiter = connect(), connect()
    hold = granted(holder).hold
    zk.asked.clear()
    with meanwhile(lambda: granted(waiter, 20)):
        eventually(lambda: any(zk.watches.values()))
        holder.release(hold)
    assert zk.asked == ["create", "children", "exists", "delete", "sync", "children"]


def test_only_the_next_lower_node_is_watched(zk: FakeClient) -> None:
    def take_turn(lock: ZooKeeper) -> None:
        lock.release(granted(lock, 20).hold)

    def watches() -> list[int]:
        return [len(watches) for watches in list(zk.watches.values())]

    holder = connect()
    hold = granted(holder).hold
    threads = []
    for _ in range(2):
        threads.append(threading.Thread(target=take_turn, args=(connect(),)))
        threads[-1].start()
        eventually(lambda: sum(watches()) == len(threads))
    assert watches() == [1, 1]
    holder.release(hold)
    for thread in threads:
        thread.join()
    assert not queue(zk)


def test_a_wait_that_ran_out_leaves_nothing(zk: FakeClient) -> None:
    granted(connect())
    assert take(connect(), 0.1) == Denied("gave-up: others were before it")
    assert len(queue(zk)) == 1


def test_a_refused_try_leaves_nothing(zk: FakeClient) -> None:
    lock = connect()
    granted(lock)
    assert take(lock) == Denied("held")
    assert len(queue(zk)) == 1


def test_a_turn_after_the_session_is_no_grant(zk: FakeClient) -> None:
    lock = connect()
    FakeSession.made[0].valid_until_ns = time.monotonic_ns() - 1
    assert said(take(lock)) == "Denied: gave-up"
    assert not queue(zk)


def test_heartbeats_lengthen_the_holds_of_their_session(zk: FakeClient) -> None:
    told = Told()
    lock = connect(told)
    grant = granted(lock)
    session = FakeSession.made[0]
    session.on_heartbeat(session.id, 5, 77)
    session.on_heartbeat(session.id + 1, 6, 88)
    assert told.until_ns == [77]
    lock.release(grant.hold)
    session.on_heartbeat(session.id, 7, 99)
    assert told.until_ns == [77]


def test_an_expired_session_is_announced_once(zk: FakeClient) -> None:
    told = Told()
    lock = connect(told)
    grant = granted(lock)
    FakeSession.made[0].on_lost()
    FakeSession.made[0].on_lost()
    assert told.losses == [grant.hold]
    zk.remove(queue(zk)[0])
    assert isinstance(lock.release(grant.hold), NotHeld)


def test_a_node_of_unknown_fate_is_deleted_in_the_background(zk: FakeClient) -> None:
    lock = connect()
    hold = granted(lock).hold
    zk.on("delete", LOST, LOST)
    assert isinstance(lock.release(hold), Unknown)
    eventually(lambda: not queue(zk))
    zk.on("create", RUN_AND_LOST)
    zk.on("sync", LOST)
    assert isinstance(take(lock), Unknown)
    eventually(lambda: not queue(zk))


def test_release_deletes_the_own_node_only(zk: FakeClient) -> None:
    lock = connect()
    grant = granted(lock)
    assert isinstance(lock.release(grant.hold), Released)
    assert not queue(zk)
    assert isinstance(lock.release(grant.hold), NotHeld)
