"""The PostgreSQL locks against a scripted server: every error, and what it must mean.

What the server itself does (queues, rows, sequences) is held to by the conformance tests.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Literal

import pytest

from lockbench.locks.base import (
    Address,
    Denied,
    Granted,
    NoObserver,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
)
from lockbench.locks.postgres import advisory as postgres_advisory
from lockbench.locks.postgres import advisory_xact as postgres_advisory_xact
from lockbench.locks.postgres import for_update as postgres_for_update
from lockbench.locks.postgres.recipe import PostgresRecipe
from lockbench.locks.postgres.session import Broken, Session
from lockbench.locks.shared.sessions import Watch
from tests.eventually import eventually
from tests.locks.asking import PATIENT_S, Told, granted, said, take
from tests.locks.fakes import closed_port, hang_up

SHORT_S = 0.2  # to wait for a server that will not answer

SYSTEMS = [postgres_advisory.SYSTEM, postgres_for_update.SYSTEM, postgres_advisory_xact.SYSTEM]
each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
ROWS = [(system, row) for system in SYSTEMS for row in system.outcomes]

# What a client sends first when it takes the lock, and when it gives it back.
TAKES = r"pg_(try_)?advisory_(xact_)?lock|FOR UPDATE"
GIVES_BACK = r"pg_advisory_unlock|COMMIT"


@dataclass(frozen=True)
class Error:
    """An error reply; the session goes on unless it ends it."""

    code: str
    ends: bool = False


# No answer, ever; the connection breaks before the answer; bytes that are no message; no rows.
Failure = Literal["silent", "closes", "nonsense", "nothing"]
Action = Error | Failure

LOCKED = Error("55P03")
TERMINATED = Error("57P01", ends=True)
CRASHED = Error("08P01", ends=True)  # as PgBouncer says it
FULL = Error("53300", ends=True)
OUT_OF_MEMORY = Error("53200")

ACTIONS: dict[str, Action] = {
    "lock not available": LOCKED,
    "error reply": OUT_OF_MEMORY,
    "silent": "silent",
    "closes": "closes",
    "nonsense": "nonsense",
    "terminated": TERMINATED,
}


class FakePostgres:
    """It grants every lock. ``on(pattern, action)`` replaces the next answer to such a query."""

    def __init__(self) -> None:
        self.replays = False
        self.queries: list[str] = []
        self.connections: list[socket.socket] = []
        self._fence = 0
        self._planned: dict[str, deque[Action]] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, pattern: str, action: Action) -> None:
        self._planned.setdefault(pattern, deque()).append(action)

    def stop(self) -> None:
        self._listener.close()
        self.hang_up()

    def hang_up(self) -> None:
        for connection in self.connections:
            hang_up(connection)
        self.connections.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rb") as stream:
            (size,) = struct.unpack("!i", stream.read(4))
            stream.read(size - 4)
            if self._plan("startup") is not None:
                connection.sendall(_error(FULL))
                return
            connection.sendall(_message(b"R", struct.pack("!i", 0)) + _ready())
            while head := stream.read(5):
                kind, size = struct.unpack("!ci", head)
                text = stream.read(size - 4).rstrip(b"\0").decode()
                if kind != b"Q" or not self._answer(connection, text):
                    return

    def _plan(self, sql: str) -> Action | None:
        for pattern, actions in self._planned.items():
            if actions and re.search(pattern, sql):
                return actions.popleft()
        return None

    def _answer(self, connection: socket.socket, sql: str) -> bool:
        self.queries.append(sql)
        match self._plan(sql):
            case Error(ends=ends) as error:
                connection.sendall(_error(error) + (b"" if ends else _ready()))
                return not ends
            case "silent":
                while connection.recv(4096):
                    pass
                return False
            case "closes":
                return False
            case "nonsense":
                connection.sendall(b"\x00\x00\x00\x00\x00nonsense")
                return True
            case "nothing":
                connection.sendall(_message(b"C", b"UPDATE 0\0") + _ready())
                return True
        connection.sendall(self._rows(sql) + _message(b"C", b"SELECT 1\0") + _ready())
        return True

    def _rows(self, sql: str) -> bytes:
        if "nextval" in sql:
            self._fence += 1
            return _row(20, str(self._fence))
        if "pg_is_in_recovery" in sql:
            return _row(16, "t" if self.replays else "f")
        return _row(16, "t") if sql.startswith("SELECT") or "SELECT" in sql else b""


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", 4 + len(body)) + body


def _ready() -> bytes:
    return _message(b"Z", b"I")


def _error(error: Error) -> bytes:
    fields = {"S": "FATAL" if error.ends else "ERROR", "C": error.code, "M": "as planned"}
    return _message(b"E", "".join(f"{k}{v}\0" for k, v in fields.items()).encode() + b"\0")


def _row(oid: int, value: str) -> bytes:
    column = b"x\0" + struct.pack("!ihihih", 0, 0, oid, -1, -1, 0)
    data = struct.pack("!hi", 1, len(value)) + value.encode()
    return _message(b"T", struct.pack("!h", 1) + column) + _message(b"D", data)


@pytest.fixture
def server() -> Iterator[FakePostgres]:
    fake = FakePostgres()
    yield fake
    fake.stop()


def connect(system: System, *nodes: Address, observer: Observer | None = None) -> PostgresRecipe:
    lock = system.connect(nodes, timeout_s=PATIENT_S, ttl_s=3.0, observer=observer or NoObserver())
    assert isinstance(lock, PostgresRecipe)
    return lock


@pytest.mark.parametrize(("system", "row"), ROWS, ids=[f"{s.name}-{row}" for s, row in ROWS])
def test_every_error_means_what_the_table_says(
    server: FakePostgres, system: System, row: str
) -> None:
    call, _, error = row.partition(": ")
    at = closed_port() if error == "no server" else server.address
    with closing(connect(system, at)) as lock:
        if call == "acquire":
            answer = _acquire(server, lock, error)
        else:
            answer = _release(server, lock, error)
    assert said(answer) == system.outcomes[row]


def _acquire(server: FakePostgres, lock: PostgresRecipe, error: str) -> object:
    if error == "nobody takes writes":
        server.replays = True
    elif error == "session refused":
        server.on("startup", FULL)
    elif error != "no server":
        if error == "silent":
            hold = granted(lock).hold
            lock.release(hold)
            hold.handle._timeout_s = SHORT_S  # its session serves the next
        server.on(TAKES, ACTIONS[error])
    return take(lock)


def _release(server: FakePostgres, lock: PostgresRecipe, error: str) -> object:
    hold = granted(lock).hold
    if error == "session gone":
        server.hang_up()
        eventually(hold.handle.gone)
    else:
        if error == "silent":
            hold.handle._timeout_s = SHORT_S
        server.on(GIVES_BACK, ACTIONS[error])
    return lock.release(hold)


@pytest.mark.parametrize("by", ["the watch", "the release"])
def test_what_the_looking_takes_lengthens_no_promise(
    server: FakePostgres, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    """However late it looks, the loss is told from when the session was last seen alive: before the
    server hung up, and not before the grant was asked for."""
    looking = threading.Event()
    look = Session.gone

    def slow(session: Session) -> bool:
        if threading.current_thread().name == "watch":
            looking.wait()
        return look(session)

    told = Told()
    with closing(connect(postgres_advisory.SYSTEM, server.address, observer=told)) as lock:
        monkeypatch.setattr(Session, "gone", slow)
        grant = granted(lock)
        ended_ns = time.monotonic_ns()
        server.hang_up()
        eventually(lambda: look(grant.hold.handle))
        if by == "the watch":
            looking.set()
        else:
            assert isinstance(lock.release(grant.hold), NotHeld)
        eventually(lambda: told.losses == [grant.hold])
        looking.set()
    (alive_ns,) = told.alive_ns
    assert alive_ns is not None
    assert grant.sent_ns <= alive_ns <= ended_ns


@each_system
def test_a_lost_session_is_noticed_once_and_the_hold_is_over(
    server: FakePostgres, system: System
) -> None:
    told = Told()
    with closing(connect(system, server.address, observer=told)) as lock:
        first = granted(lock).hold
        server.hang_up()
        eventually(lambda: told.losses == [first])
        assert isinstance(lock.release(first), NotHeld)
        second = granted(lock).hold
        assert isinstance(lock.release(second), Released)
        assert isinstance(lock.release(second), NotHeld)
    assert told.losses == [first]


@each_system
def test_a_release_that_finds_the_session_gone_reports_the_loss(
    server: FakePostgres, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else nobody would have said why the hold is over."""
    monkeypatch.setattr(Watch, "_look", lambda _: None)
    told = Told()
    with closing(connect(system, server.address, observer=told)) as lock:
        hold = granted(lock).hold
        server.hang_up()
        eventually(hold.handle.gone)
        assert isinstance(lock.release(hold), NotHeld)
        assert told.losses == [hold]


def test_what_a_connection_did_that_broke_behind_a_pooler_is_not_known(
    server: FakePostgres,
) -> None:
    with closing(Session([server.address], timeout_s=PATIENT_S)) as session:
        server.on("SELECT 7", CRASHED)
        with pytest.raises(Broken):
            session.ask("SELECT 7")


@each_system
def test_a_session_that_ends_with_a_warning_is_gone(
    server: FakePostgres, system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a server that was stopped at once, or of which another process has crashed."""
    monkeypatch.setattr(Watch, "_look", lambda _: None)
    with closing(connect(system, server.address)) as lock:
        hold = granted(lock).hold
        warning = _message(b"N", b"SWARNING\0C57P02\0Mterminating connection\0\0")
        for connection in server.connections:
            connection.sendall(warning)
        server.hang_up()
        eventually(hold.handle.gone)


@each_system
def test_a_released_session_serves_the_next_hold(server: FakePostgres, system: System) -> None:
    with closing(connect(system, server.address)) as lock:
        first = granted(lock).hold
        assert isinstance(lock.release(first), Released)
        assert granted(lock).hold.handle is first.handle
        assert len(server.connections) == 1


@each_system
def test_each_hold_has_a_session_of_its_own(server: FakePostgres, system: System) -> None:
    with closing(connect(system, server.address)) as lock:
        assert granted(lock).hold.handle is not granted(lock).hold.handle


@each_system
def test_it_goes_to_the_first_node_that_takes_writes(server: FakePostgres, system: System) -> None:
    replica = FakePostgres()
    replica.replays = True
    with closing(connect(system, closed_port(), replica.address, server.address)) as lock:
        granted(lock)
    assert replica.queries == ["SELECT pg_is_in_recovery()"]
    replica.stop()


def test_a_wait_is_the_servers_with_its_limit(server: FakePostgres) -> None:
    limits = ("SET lock_timeout", "SET LOCAL lock_timeout", "SET LOCAL lock_timeout")
    for system, limit in zip(SYSTEMS, limits, strict=True):
        with closing(connect(system, server.address)) as lock:
            assert isinstance(take(lock, 60), Granted)
            (asked,) = [sql for sql in server.queries if limit in sql]
            limit_ms = int(re.findall(r"lock_timeout = (\d+)", asked)[0])
            assert 30_000 < limit_ms <= 60_000
            server.on(TAKES, LOCKED)
            assert take(lock, 60) == Denied("gave-up: held")
        server.queries.clear()


def test_waiting_outlives_a_server_that_is_away(server: FakePostgres) -> None:
    server.on("startup", FULL)
    with closing(connect(postgres_advisory.SYSTEM, server.address)) as lock:
        assert isinstance(take(lock, 20), Granted)


def test_a_full_primary_does_not_hide_behind_its_standby(server: FakePostgres) -> None:
    standby = FakePostgres()
    standby.replays = True
    server.on("startup", FULL)
    try:
        nodes = (server.address, standby.address)
        with closing(connect(postgres_advisory.SYSTEM, *nodes)) as lock:
            answer = take(lock)
    finally:
        standby.stop()
    assert isinstance(answer, Denied)
    assert "53300" in answer.reason
    assert answer.reason.endswith("; takes no writes")


@pytest.mark.parametrize("system", SYSTEMS[1:], ids=lambda system: system.name)
def test_a_refused_lock_leaves_no_transaction_open(server: FakePostgres, system: System) -> None:
    with closing(connect(system, server.address)) as lock:
        server.on(TAKES, LOCKED)
        assert take(lock) == Denied("held")
        assert server.queries[-1] == "ROLLBACK"


def test_a_broken_request_does_not_count_as_held(server: FakePostgres) -> None:
    told = Told()
    with closing(connect(postgres_advisory.SYSTEM, server.address, observer=told)) as lock:
        server.on(TAKES, "closes")
        assert isinstance(take(lock), Unknown)
        granted(lock)
    assert told.losses == []


def test_a_wait_that_ran_out_gives_back_what_it_may_have_taken(server: FakePostgres) -> None:
    """docs/track/postgres-advisory-timeout.md"""
    with closing(connect(postgres_advisory.SYSTEM, server.address)) as lock:
        server.on(TAKES, LOCKED)
        assert isinstance(take(lock, 60), Denied)
        assert re.search(GIVES_BACK, server.queries[-1])
        server.on(TAKES, LOCKED)
        server.on(GIVES_BACK, "closes")
        assert isinstance(take(lock, 60), Unknown), "it may be held until the session has ended"
