"""The MariaDB locks against a scripted server: every error, and what it must mean.

What the server itself does (queues, rows) is held to by the conformance tests.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from lockbench.clusters.mariadb import protocol
from lockbench.clusters.wire import ProbeFailed
from lockbench.locks.base import (
    Address,
    Denied,
    Granted,
    NoObserver,
    NotHeld,
    Released,
    System,
    Unknown,
)
from lockbench.locks.mariadb import for_update, get_lock
from lockbench.locks.mariadb.recipe import MariadbRecipe
from lockbench.locks.mariadb.session import literal
from tests.eventually import eventually
from tests.locks.asking import PATIENT_S, Told, granted, said, take
from tests.locks.fakes import closed_port, hang_up

SHORT_S = 0.2  # to wait for a server that will not answer
LIMIT_S = 10.0
SYSTEMS = [get_lock.SYSTEMS[0], for_update.SYSTEMS[0]]
each_system = pytest.mark.parametrize("system", SYSTEMS, ids=lambda system: system.name)
ROWS = [(system, row) for system in SYSTEMS for row in system.outcomes]
TAKES, GIVES_BACK = r"SELECT GET_LOCK|FOR UPDATE", r"RELEASE_LOCK|^COMMIT"
# An error's number; "silent": no answer; "closes": the connection ends before it; "0": not held.
ACTIONS = {
    "held": "1205",
    "error reply": "1226",
    "silent": "silent",
    "closes": "closes",
    "killed": "1927",
    "deadlock": "1213",
}


class FakeMariadb:
    """It grants every lock. ``on(pattern, action)`` replaces the next answer to such a query."""

    def __init__(self) -> None:
        self.queries: list[str] = []
        self.connections: list[socket.socket] = []
        self.accepts = True
        self._planned: dict[str, deque[str]] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Address(*self._listener.getsockname())
        threading.Thread(target=self._accept, daemon=True).start()

    def on(self, pattern: str, action: str) -> None:
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
            if not self.accepts:
                connection.sendall(_packet(0, _error("1040")))
                return
            connection.sendall(_packet(0, GREETING))
            _receive(stream)
            connection.sendall(_packet(2, OK))
            while (body := _receive(stream)) is not None:
                if not self._answer(connection, body[1:].decode()):
                    return

    def _answer(self, connection: socket.socket, sql: str) -> bool:
        self.queries.append(sql)
        planned = (actions for at, actions in self._planned.items() if re.search(at, sql))
        action = next((actions.popleft() for actions in planned if actions), "")
        if action == "silent":
            while connection.recv(4096):
                pass
            return False
        if action == "closes":
            return False
        if action == "1205" and "GET_LOCK" in sql:
            connection.sendall(_row("0"))
        elif action == "nothing":
            connection.sendall(_row())
        elif action:
            connection.sendall(_packet(1, _error(action)))
        else:
            connection.sendall(_row("1") if "SELECT" in sql or "SHOW" in sql else _packet(1, OK))
        return True


GREETING = (
    b"\x0a11.8.9-MariaDB\0"
    + struct.pack("<I8sxHBHHB10x", 1, b"12345678", 0xF7FF, 45, 2, 0x8008, 21)
    + b"123456789012\0mysql_native_password\0"
)
OK = b"\0\0\0\x02\0\0\0"


def _packet(number: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body) | number << 24) + body


def _error(number: str) -> bytes:
    return b"\xff" + struct.pack("<H", int(number)) + b"#HY000as planned"


def _row(*values: str) -> bytes:
    """One column of a number, and a row for each."""
    names = b"\x03def" + 3 * b"\0" + b"\x01x\0"
    column = names + b"\x0c" + struct.pack("<HIBHBxx", 63, 20, 8, 0, 0)
    end = b"\xfe\0\0\x02\0"
    rows = (bytes([len(value)]) + value.encode() for value in values)
    parts = (b"\x01", column, end, *rows, end)
    return b"".join(_packet(number, part) for number, part in enumerate(parts, 1))


def _receive(stream: object) -> bytes | None:
    head = stream.read(4)  # type: ignore[attr-defined]
    if len(head) < 4:
        return None
    body: bytes = stream.read(struct.unpack("<I", head)[0] & 0xFFFFFF)  # type: ignore[attr-defined]
    return body


@pytest.fixture
def server() -> Iterator[FakeMariadb]:
    fake = FakeMariadb()
    yield fake
    fake.stop()


def connect(system: System, *nodes: Address, observer: Told | None = None) -> MariadbRecipe:
    lock = system.connect(nodes, timeout_s=PATIENT_S, ttl_s=3.0, observer=observer or NoObserver())
    assert isinstance(lock, MariadbRecipe)
    return lock


@pytest.mark.parametrize(("system", "row"), ROWS, ids=[f"{s.name}-{row}" for s, row in ROWS])
def test_every_error_means_what_the_table_says(
    server: FakeMariadb, system: System, row: str
) -> None:
    call, _, error = row.partition(": ")
    at = closed_port() if error == "no server" else server.address
    with closing(connect(system, at)) as lock:
        if call == "acquire":
            answer = _acquire(server, lock, error)
        else:
            answer = _release(server, lock, error)
    assert said(answer) == system.outcomes[row]


def _acquire(server: FakeMariadb, lock: MariadbRecipe, error: str) -> object:
    if error == "session refused":
        server.accepts = False
    elif error != "no server":
        if error == "silent":
            hold = granted(lock).hold
            lock.release(hold)
            hold.handle._timeout_s = SHORT_S  # its session serves the next
        server.on(TAKES, ACTIONS[error])
    return take(lock)


def _release(server: FakeMariadb, lock: MariadbRecipe, error: str) -> object:
    hold = granted(lock).hold
    if error == "session gone":
        server.hang_up()
        eventually(hold.handle.gone)
    else:
        if error == "silent":
            hold.handle._timeout_s = SHORT_S
        server.on(GIVES_BACK, ACTIONS[error])
    return lock.release(hold)


@each_system
def test_a_lost_session_is_noticed_once_and_the_hold_is_over(
    server: FakeMariadb, system: System
) -> None:
    told = Told()
    with closing(connect(system, server.address, observer=told)) as lock:
        first = granted(lock).hold
        server.hang_up()
        eventually(lambda: told.losses == [first])
        assert isinstance(lock.release(first), NotHeld)
        second = granted(lock).hold
        assert isinstance(lock.release(second), Released)
    assert told.losses == [first]


def test_a_wait_is_the_servers_with_its_limit(server: FakeMariadb) -> None:
    for system, limit in zip(SYSTEMS, (r", (5\d\.\d+|60\.000)\)", r"WAIT (5\d|60)$"), strict=True):
        with closing(connect(system, server.address)) as lock:
            assert isinstance(take(lock, 60), Granted)
            assert any(re.search(limit, sql) for sql in server.queries), server.queries
            server.on(TAKES, "1205")
            assert take(lock, 60) == Denied("gave-up: held")
        server.queries.clear()


def test_a_refused_row_lock_leaves_no_transaction_open(server: FakeMariadb) -> None:
    with closing(connect(for_update.SYSTEMS[0], server.address)) as lock:
        server.on(TAKES, "1205")
        assert take(lock) == Denied("held")
        assert server.queries[-1] == "ROLLBACK"


@pytest.mark.parametrize("made", ["by somebody who holds it", "by nobody else"])
def test_a_row_that_is_not_there_is_made_without_a_wait(server: FakeMariadb, made: str) -> None:
    """Whoever made it meanwhile may hold it; the select says so, or waits."""
    with closing(connect(for_update.SYSTEMS[0], server.address)) as lock:
        server.on(TAKES, "nothing")
        if made == "by somebody who holds it":
            server.on("INSERT", "1205")
            server.on(TAKES, "1205")
            assert take(lock) == Denied("held")
        else:
            assert isinstance(take(lock), Granted)
        (insert,) = (sql for sql in server.queries if "INSERT IGNORE" in sql)
        assert insert.startswith("SET STATEMENT innodb_lock_wait_timeout = 0 FOR INSERT IGNORE")


@each_system
def test_nobody_says_of_an_unanswered_release_that_it_was_not_held(
    server: FakeMariadb, system: System
) -> None:
    with closing(connect(system, server.address)) as lock:
        hold = granted(lock).hold
        hold.handle._timeout_s = SHORT_S
        server.on(GIVES_BACK, ACTIONS["silent"])
        assert isinstance(lock.release(hold), Unknown)
        assert isinstance(lock.release(hold), Unknown)


def test_clients_take_the_nodes_in_orders_of_their_own(server: FakeMariadb) -> None:
    other = FakeMariadb()
    try:
        for _ in range(30):
            with closing(connect(SYSTEMS[0], server.address, other.address)) as lock:
                granted(lock)
    finally:
        other.stop()
    assert server.queries
    assert other.queries


def test_a_literal_says_what_it_is_made_of() -> None:
    assert literal(r"a'b\c") == r"'a''b\\c'"


def test_a_probe_reads_rows_and_errors(server: FakeMariadb) -> None:
    with protocol.Session(server.address, LIMIT_S) as session:
        assert session.query("SELECT 1") == [["1"]]
        assert session.query("INSERT") == []
        session.ping()
        server.on("DROP", "1044")
        with pytest.raises(ProbeFailed, match=r"1044 HY000as planned"):
            session.query("DROP")
    server.accepts = False
    with pytest.raises(ProbeFailed, match="1040"):
        protocol.Session(server.address, LIMIT_S)
