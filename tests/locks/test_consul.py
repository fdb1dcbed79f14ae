"""Consul's recipe against a scripted server: every error, and what it must mean."""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Granted,
    NoObserver,
    NotHeld,
    Released,
    Unknown,
)
from lockbench.locks.consul.lock_index_of_deleted import LockIndexOfDeleted
from lockbench.locks.consul.session import RENEW_AFTER, SYSTEM, ConsulSession
from lockbench.locks.consul.session_delete import ConsulSessionDelete
from lockbench.locks.consul.session_no_delay import ConsulSessionNoDelay
from lockbench.locks.registry import find
from lockbench.locks.shared.expectations import SLOW_LINKS
from tests.eventually import eventually, one_of
from tests.locks import asking
from tests.locks.asking import PATIENT_S, meanwhile, said

SHORT_S: Final = 0.5  # to wait for a server that will not answer
SILENT: Final = (0, "silent")
CLOSE: Final = (0, "close")
Action = tuple[int, str]

ACTIONS: dict[str, Action] = {
    "ReadTimeout": SILENT,
    "ConnectionError": CLOSE,
    "ConsulException": (500, "rpc error making call: No cluster leader"),
    "nonsense": (200, "<html>"),
    "invalid session": (500, 'rpc error making call: invalid session "0"'),
    "another session": (200, '[{"Session": "another", "LockIndex": 9, "ModifyIndex": 9}]'),
    "refused": (200, "false"),
}


class FakeConsul(ThreadingHTTPServer):
    """Enough of Consul for sessions and keys. ``on(path, *actions)`` replaces the next answers."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.planned: dict[str, deque[Action]] = {}
        self.asked: list[tuple[str, Any]] = []  # path and body, or parameters where it has none
        self.sessions: dict[str, dict[str, Any]] = {}
        self.keys: dict[str, dict[str, Any]] = {}
        self.delayed: set[str] = set()  # keys that a lock-delay keeps
        self.index = 1
        self.mutex = threading.Lock()
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    @property
    def address(self) -> Address:
        return Address("127.0.0.1", self.server_port)

    @property
    def paths(self) -> list[str]:
        return [path for path, _ in self.asked]

    def on(self, path: str, *actions: Action) -> None:
        self.planned.setdefault(path, deque()).extend(actions)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Broken connections are what these tests are about."""

    def effect(self, path: str, name: str, body: bytes, words: dict[str, str]) -> Action:
        with self.mutex:
            match path:
                case "session/create":
                    self.index += 1
                    self.sessions[str(self.index)] = json.loads(body)
                    return 200, json.dumps({"ID": str(self.index)})
                case "session/renew" if name not in self.sessions:
                    return 404, "Session id not found"
                case "session/renew":
                    return 200, json.dumps([{"ID": name, **self.sessions[name]}])
                case "session/destroy":
                    self.end(name)
                    return 200, "true"
                case "kv?acquire":
                    return self._acquire(name, words["acquire"])
                case "kv?release":
                    return self._release(name, words["release"])
                case _:
                    return self._get(name)

    def end(self, session: str) -> None:
        """As when it is destroyed, or its TTL has run out."""
        settings = self.sessions.pop(session, {})
        for key in [key for key, entry in self.keys.items() if entry["Session"] == session]:
            self.index += 1
            self.keys[key] |= {"Session": "", "ModifyIndex": self.index}
            if settings["Behavior"] == "delete":
                del self.keys[key]
            if settings["LockDelay"] != "0.0s":
                self.delayed.add(key)

    def _acquire(self, key: str, session: str) -> Action:
        if session not in self.sessions:
            return ACTIONS["invalid session"]
        entry = self.keys.get(key, {"Session": "", "LockIndex": 0})
        if entry["Session"] not in {"", session} or key in self.delayed:
            return 200, "false"
        self.index += 1
        count = entry["LockIndex"] + (entry["Session"] != session)
        self.keys[key] = {"Session": session, "LockIndex": count, "ModifyIndex": self.index}
        return 200, "true"

    def _release(self, key: str, session: str) -> Action:
        entry = self.keys.get(key, {"Session": ""})
        if entry["Session"] != session:
            return 200, "false"
        self.index += 1
        self.keys[key] |= {"Session": "", "ModifyIndex": self.index}
        return 200, "true"

    def _get(self, key: str) -> Action:
        return (200, json.dumps([self.keys[key]])) if key in self.keys else (404, "")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeConsul

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self._serve(b"")

    def do_PUT(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    def _serve(self, body: bytes) -> None:
        address = urlsplit(self.path)
        words = {key: value for key, (value,) in parse_qs(address.query).items()}
        kind, _, name = address.path.removeprefix("/v1/").partition("/")
        if kind == "session":
            do, _, name = name.partition("/")
            path = f"session/{do}"
        else:
            path = next((f"kv?{word}" for word in ("acquire", "release") if word in words), "kv")
        self.server.asked.append((path, body.decode() if body else words))
        planned = self.server.planned.get(path)
        status, text = planned.popleft() if planned else (200, "")
        if (status, text) == SILENT:
            time.sleep(3 * SHORT_S)
        if status == 0:
            self.close_connection = True
            return
        name = unquote(name)
        if not text:
            if "wait" in words:
                self._hold(name, words)
            status, text = self.server.effect(path, name, body, words)
        said = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.send_header("X-Consul-Index", str(self._index(name)))
        self.end_headers()
        self.wfile.write(said)

    def _index(self, key: str) -> int:
        return int(self.server.keys.get(key, {}).get("ModifyIndex", 1))

    def _hold(self, key: str, words: dict[str, str]) -> None:
        """Until the key changes, or for as long as is asked."""
        until = time.monotonic() + int(words["wait"].removesuffix("ms")) / 1000
        while time.monotonic() < until and str(self._index(key)) == words["index"]:
            time.sleep(0.002)


@contextmanager
def serving() -> Iterator[FakeConsul]:
    server = FakeConsul()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def consul() -> Iterator[FakeConsul]:
    with serving() as server:
        yield server


def connect(
    consul: FakeConsul, kind: type[ConsulSession] = ConsulSession, *, silent: bool = False
) -> ConsulSession:
    timeout_s = SHORT_S if silent else PATIENT_S
    return kind([consul.address], timeout_s=timeout_s, ttl_s=2, observer=NoObserver())


take = partial(asking.take, ttl_s=60.0)  # long enough that no renewal comes between
granted = partial(asking.granted, ttl_s=60.0)
KEY = "lockbench/k"


@pytest.mark.parametrize("row", SYSTEM.outcomes)
def test_every_error_means_what_the_table_says(row: str) -> None:
    path, _, case = row.partition(": ")
    error, _, then = case.partition(", ")
    silent = ACTIONS[error] == SILENT

    def play(_: int) -> tuple[str, bool]:
        """What is said, and whether a session is left where none may be."""
        with serving() as consul:
            with closing(connect(consul)) as holder:
                hold = granted(holder).hold if path == "kv?release" else None
            with closing(connect(consul, silent=silent)) as lock:
                consul.on(path, ACTIONS[error])
                if then == "not destroyed":
                    consul.on("session/destroy", CLOSE)
                answer: object = lock.release(hold) if hold else take(lock)
            gave_up = said(answer) == "Denied: gave-up" and error != "invalid session"
            return said(answer), gave_up and bool(consul.sessions)

    wanted = (SYSTEM.outcomes[row], False)
    assert one_of(play, wanted.__eq__, 5 if silent else 1) == wanted


def test_a_free_key_takes_three_requests_and_two_to_give_back(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        hold = granted(lock).hold
        assert consul.paths == ["session/create", "kv?acquire", "kv"]
        assert isinstance(lock.release(hold), Released)
        assert consul.paths[3:] == ["kv?release", "session/destroy"]
        assert not consul.sessions
        assert not consul.delayed
        assert isinstance(lock.release(hold), NotHeld)


@pytest.mark.parametrize(
    ("kind", "behavior", "delay"),
    [
        (ConsulSession, "release", "60.0s"),
        (ConsulSessionDelete, "delete", "60.0s"),
        (ConsulSessionNoDelay, "release", "0.0s"),
    ],
)
def test_a_session_is_bound_to_its_ttl_and_to_no_check(
    consul: FakeConsul, kind: type[ConsulSession], behavior: str, delay: str
) -> None:
    with closing(connect(consul, kind)) as lock:
        grant = granted(lock)
    assert grant.valid_until_ns == grant.sent_ns + 60_000_000_000
    (settings,) = consul.sessions.values()
    assert settings == {
        "NodeChecks": [],
        "TTL": "60.0s",
        "LockDelay": delay,
        "Behavior": behavior,
    }


def test_a_lock_delay_is_no_longer_than_consul_allows(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        granted(lock, ttl_s=600)
    (settings,) = consul.sessions.values()
    assert settings["LockDelay"] == "60.0s"


def test_keys_with_slashes_are_one_key(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        granted(lock, key="a//b/../c")
    assert list(consul.keys) == ["lockbench/a%2F%2Fb%2F..%2Fc"]


def test_a_refused_try_leaves_nothing(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        granted(lock)
        assert take(lock) == Denied("held")
        assert len(consul.sessions) == 1
        assert not consul.delayed


def test_a_refused_try_is_refused_though_its_session_stays(consul: FakeConsul) -> None:
    """It holds nothing, so it is in nobody's way."""
    with closing(connect(consul)) as lock:
        granted(lock)
        consul.on("session/destroy", CLOSE)
        assert take(lock) == Denied("held")


def test_an_acquire_that_was_lost_may_still_arrive_after_a_refusal(consul: FakeConsul) -> None:
    with closing(connect(consul)) as holder, closing(connect(consul)) as lock:
        granted(holder)
        consul.on("kv?acquire", CLOSE)
        consul.on("session/destroy", CLOSE)
        assert isinstance(take(lock, 0.3), Unknown)


def test_a_lost_answer_is_made_good_at_the_next_server(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        effect = FakeConsul.effect

        def run_and_lose(
            self: FakeConsul, path: str, name: str, body: bytes, words: dict[str, str]
        ) -> Action:
            answer = effect(self, path, name, body, words)
            if path == "kv?acquire" and self.paths.count(path) == 1:
                raise ConnectionError  # the connection ends without an answer
            return answer

        consul.effect = run_and_lose.__get__(consul)  # type: ignore[method-assign]
        grant = granted(lock, 20)
        assert grant.fence == 1
        assert len(consul.sessions) == 1


def test_waiting_goes_on_at_the_next_server(consul: FakeConsul) -> None:
    no_leader = ACTIONS["ConsulException"]
    consul.on("session/create", CLOSE, no_leader)
    consul.on("kv?acquire", CLOSE, no_leader)
    consul.on("kv", CLOSE, no_leader)
    with closing(connect(consul)) as lock:
        granted(lock, 20)


def test_a_waiter_is_told_when_the_key_changes(consul: FakeConsul) -> None:
    with closing(connect(consul)) as holder, closing(connect(consul)) as waiter:
        first = granted(holder)
        with meanwhile(lambda: granted(waiter, 20)) as waiting:
            eventually(lambda: any("wait" in words for _, words in consul.asked))
            holder.release(first.hold)
        assert (first.fence, waiting.result().fence) == (1, 2)
        assert consul.paths.count("kv?acquire") == 3


def test_a_wait_that_ran_out_leaves_nothing(consul: FakeConsul) -> None:
    with closing(connect(consul)) as holder, closing(connect(consul)) as waiter:
        granted(holder)
        began = time.monotonic()
        answer = take(waiter, 0.2)
        assert said(answer) == "Denied: gave-up"
        # What would end it, if nothing did, is that its session has to be renewed.
        assert 0.2 <= time.monotonic() - began < RENEW_AFTER * 60
        assert len(consul.sessions) == 1


def test_what_a_lock_delay_keeps_is_asked_for_until_it_is_over(consul: FakeConsul) -> None:
    with closing(connect(consul)) as holder, closing(connect(consul)) as waiter:
        granted(holder)
        consul.end(*consul.sessions)
        assert take(waiter) == Denied("held")
        with meanwhile(lambda: granted(waiter, 20)) as waiting:
            eventually(lambda: consul.paths.count("kv?acquire") >= 4)
            consul.delayed.clear()
        assert waiting.result().fence == 2


def test_a_long_wait_renews_the_session() -> None:
    def play(_: int) -> tuple[int, Acquired]:
        with serving() as consul, closing(connect(consul)) as holder:
            first = granted(holder)
            began_ns = time.monotonic_ns()
            with (
                closing(connect(consul)) as waiter,
                meanwhile(lambda: take(waiter, 20, ttl_s=1.0)) as waiting,
            ):
                eventually(lambda: consul.paths.count("session/renew") >= 2)
                holder.release(first.hold)
            return began_ns, waiting.result()

    began_ns, answer = one_of(play, lambda played: isinstance(played[1], Granted))
    assert isinstance(answer, Granted), answer
    assert answer.sent_ns > began_ns + int(2 * RENEW_AFTER * 1e9)
    assert answer.valid_until_ns == answer.sent_ns + 1_000_000_000


def test_a_session_that_ended_while_waiting_is_no_grant(consul: FakeConsul) -> None:
    with closing(connect(consul)) as holder, closing(connect(consul)) as waiter:
        first = granted(holder)
        with meanwhile(lambda: take(waiter, 20)) as waiting:
            eventually(lambda: any("wait" in words for _, words in consul.asked))
            with consul.mutex:
                for session in list(consul.sessions):
                    consul.end(session)
        assert waiting.result() == Denied("gave-up: the session ended while waiting")
        assert isinstance(holder.release(first.hold), NotHeld)


def test_a_grant_that_comes_after_the_promise_is_none(consul: FakeConsul) -> None:
    """Consul keeps a session for twice its TTL, so it grants to one that promises nothing more."""
    with closing(connect(consul)) as lock:
        effect = FakeConsul.effect

        def late(
            self: FakeConsul, path: str, name: str, body: bytes, words: dict[str, str]
        ) -> Action:
            if path == "kv?acquire":
                time.sleep(0.1)
            return effect(self, path, name, body, words)

        consul.effect = late.__get__(consul)  # type: ignore[method-assign]
        answer = take(lock, ttl_s=0.1)
        assert answer == Denied("gave-up: its turn came after its session's TTL")
        assert not consul.sessions


def test_a_session_of_unknown_fate_is_destroyed_before_the_next_acquire(
    consul: FakeConsul,
) -> None:
    with closing(connect(consul)) as lock:
        hold = granted(lock).hold
        consul.on("kv?release", CLOSE)
        assert isinstance(lock.release(hold), Unknown)
        granted(lock, key="other")
        assert len(consul.sessions) == 1
        assert consul.delayed == {KEY}


def test_a_release_is_one_though_its_session_stays(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        hold = granted(lock).hold
        consul.on("session/destroy", CLOSE)
        assert isinstance(lock.release(hold), Released)
        granted(lock)
        assert len(consul.sessions) == 1


def test_extending_renews_the_session(consul: FakeConsul) -> None:
    with closing(connect(consul)) as lock:
        hold = granted(lock).hold
        again = lock.extend(hold, 60)
        assert isinstance(again, Granted)
        assert again.valid_until_ns == again.sent_ns + 60_000_000_000
        consul.on("session/renew", CLOSE)
        assert isinstance(lock.extend(hold, 60), Unknown)
        assert isinstance(lock.release(hold), Released)
        assert isinstance(lock.extend(hold, 60), NotHeld)


@pytest.mark.parametrize(
    ("kind", "grows"),
    [(ConsulSession, True), (ConsulSessionDelete, True), (LockIndexOfDeleted, False)],
)
def test_a_fence_grows_over_the_end_of_a_session_where_it_should(
    consul: FakeConsul, kind: type[ConsulSession], grows: bool
) -> None:
    with closing(connect(consul, kind)) as lock:
        fences = [granted(lock).fence]
        consul.end(*consul.sessions)
        consul.delayed.clear()
        fences.append(granted(lock).fence)
    first, second = fences
    assert first is not None
    assert second is not None
    assert (second > first) == grows


def test_a_slow_link_may_end_a_session_and_with_it_the_key() -> None:
    under = find("consul-lock-index-of-deleted").expectations
    assert {under[fault]["fence-order"].expected for fault in SLOW_LINKS} == {"may-break"}
