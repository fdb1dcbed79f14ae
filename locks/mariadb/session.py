"""A session of MariaDB, for ``lockbench.locks.shared.sessions``.

Each client takes the nodes in an order of its own, as behind a load balancer: one server has all of
them, those of Galera have some each.

PyMySQL is given a socket made here, because its own time limit cannot be changed for a request that
may wait. It leaves the socket's limit alone as long as its limits for reading and writing are the
same. It is plain Python: under gevent other greenlets run while it waits.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lockbench.clusters.mariadb.protocol import DATABASE, USER
from lockbench.declarations.lazy import lazy
from lockbench.locks.base import Address
from lockbench.locks.shared.sessions import Broken, NotSent, Refused

if TYPE_CHECKING:
    from pymysql import connections, err
else:
    connections = lazy("pymysql.connections")
    err = lazy("pymysql.err")

LOCK_WAIT_TIMEOUT, DEADLOCK = "1205", "1213"
# Errors with which the server ends the session: shutdown, killed, killed in a statement.
SESSION_ENDS = ("1053", "1927", "1317")
# Numbers from here on are PyMySQL's own, of a connection that is of no use any more.
CLIENT_ERRORS = range(2000, 3000)


class Session:
    """One session, outside of which nothing is committed by itself."""

    def __init__(self, nodes: Sequence[Address], *, timeout_s: float) -> None:
        """Raises NotSent."""
        self._socket = self._peek = socket.socket()
        self._connection: Any = None
        self._timeout_s = timeout_s
        self.alive_ns = time.monotonic_ns()  # when the last look that found it alive began
        failed: list[str] = []
        for node in random.sample(list(nodes), len(nodes)):
            try:
                self._open(node)
            except (OSError, Broken) as error:
                failed.append(f"{type(error).__name__}: {error}")
                self.close()
            else:
                return
        raise NotSent("; ".join(failed) or "no node was asked")

    def _open(self, node: Address) -> None:
        """Raises OSError and Broken."""
        self._socket.close()
        self._socket = socket.create_connection(node, timeout=self._timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._peek.close()
        self._peek = self._socket.dup()
        self._peek.setblocking(False)  # both share the descriptor's flag; a time limit sets it too
        try:
            self._connection = connections.Connection(
                user=USER,
                database=DATABASE,
                autocommit=False,
                ssl_disabled=True,  # where the server offers TLS, it takes another socket
                read_timeout=self._timeout_s,
                write_timeout=self._timeout_s,
                defer_connect=True,
            )
            self._connection.connect(self._socket)
        except Exception as error:
            # It raises whatever it stumbles over, too.
            raise Broken(" ".join(_said(error)).strip()) from error

    def ask(self, sql: str, *, wait_s: float = 0.0) -> list[list[Any]]:
        """The rows of a statement, which may wait for a lock up to ``wait_s``. Raises Refused and
        Broken; the latter closes the session."""
        try:
            self._socket.settimeout(self._timeout_s + wait_s)
            with self._connection.cursor() as cursor:
                cursor.execute(sql)
                return [list(row) for row in cursor.fetchall()]
        except Exception as error:
            # As above. Unless the server has answered, the conversation is out of step.
            number, message = _said(error)
            if not number or number in SESSION_ENDS or int(number) in CLIENT_ERRORS:
                self.close()
                raise Broken(f"{number} {message}".strip()) from error
            raise Refused(number, message, held=number == LOCK_WAIT_TIMEOUT) from error

    def gone(self) -> bool:
        """Whether the connection is closed, here or by the other side. Looks, and never waits."""
        if self._socket.fileno() < 0:
            return True
        now_ns = time.monotonic_ns()
        try:
            # A server says nothing unasked but that it ends the session.
            self._peek.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # it has said nothing
            self.alive_ns = now_ns
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        """Hangs up. Never raises, never waits."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # PyMySQL keeps a file of the socket, without whose end the descriptor stays open.
        with suppress(Exception):
            self._connection._force_close()  # noqa: SLF001 - `close` sends, and may wait
        self._socket.close()
        self._peek.close()


def _said(error: Exception) -> tuple[str, str]:
    """The number, where the server or PyMySQL has one for it, and the message of an error."""
    if isinstance(error, err.MySQLError) and error.args and isinstance(error.args[0], int):
        number, *rest = error.args
        return (str(number) if number else ""), " ".join(map(str, rest))
    return "", f"{type(error).__name__}: {error}"


def literal(text: str) -> str:
    """A text as it stands in a statement."""
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"
