"""A session of PostgreSQL, for ``lockbench.locks.shared.sessions``.

Sessions go to the first node that takes writes, as libpq does with
``target_session_attrs=read-write`` (https://www.postgresql.org/docs/17/libpq-connect.html).

pg8000 is given a socket made here, because its own time limit cannot be changed for a request that
may wait. It is plain Python: under gevent other greenlets run while it waits.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from lockbench.clusters.postgres.protocol import DATABASE, USER
from lockbench.declarations.lazy import lazy
from lockbench.locks.base import Address
from lockbench.locks.shared.sessions import Broken, NotSent, Refused

__all__ = ["LOCK_NOT_AVAILABLE", "Broken", "NotSent", "Refused", "Session", "literal"]

if TYPE_CHECKING:
    from pg8000 import exceptions, native
else:
    exceptions = lazy("pg8000.exceptions")
    native = lazy("pg8000.native")

LOCK_NOT_AVAILABLE = "55P03"
# Errors with which the server, or a pooler before it, ends the session: shutdown, crash, a
# connection that broke, too slow in a transaction.
SESSION_ENDS = ("57P", "08", "25P03")


class Session:
    """One session on the node that takes writes."""

    def __init__(self, nodes: Sequence[Address], *, timeout_s: float) -> None:
        """Raises NotSent."""
        self._socket = self._peek = socket.socket()
        self._connection: Any = None
        self._timeout_s = timeout_s
        self.alive_ns = time.monotonic_ns()  # when the last look that found it alive began
        failed: list[str] = []  # by node: a full primary must not hide behind its standby
        for node in nodes:
            try:
                self._open(node)
                if self.ask("SELECT pg_is_in_recovery()") == [[False]]:
                    return
                failed.append("takes no writes")
            except (OSError, Refused, Broken) as error:
                failed.append(f"{type(error).__name__}: {error}")
            self.close()
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
            # Unless told so, it asks for TLS.
            self._connection = native.Connection(
                USER, database=DATABASE, sock=self._socket, ssl_context=False
            )
        except exceptions.DatabaseError as error:
            raise Broken(" ".join(_said(error)).strip()) from error
        except Exception as error:
            # It raises whatever it stumbles over: DatabaseError, InterfaceError, KeyError …
            raise Broken(f"{type(error).__name__}: {error}") from error

    def ask(self, sql: str, *, wait_s: float = 0.0) -> list[list[Any]]:
        """The rows of the last statement, which may wait for a lock up to ``wait_s``. Raises
        Refused and Broken; the latter closes the session."""
        try:
            self._socket.settimeout(self._timeout_s + wait_s)
            rows: list[list[Any]] | None = self._connection.run(sql)
        except exceptions.DatabaseError as error:
            code, message = _said(error)
            if not code or code.startswith(SESSION_ENDS):
                self.close()
                raise Broken(f"{code} {message}") from error
            raise Refused(code, message, held=code == LOCK_NOT_AVAILABLE) from error
        except Exception as error:
            # As above. The conversation is out of step.
            self.close()
            raise Broken(f"{type(error).__name__}: {error}") from error
        return rows or []

    def gone(self) -> bool:
        """Whether the connection is closed, here or by the other side. Looks, and never waits."""
        if self._socket.fileno() < 0:
            return True
        now_ns = time.monotonic_ns()
        try:
            # The last words of a server that ends a session are an error (E), or a warning (N, as
            # after a crash: quickdie in postgres.c); the end comes next. No other is sent to a
            # session that asks nothing.
            if self._peek.recv(1, socket.MSG_PEEK) in {b"", b"E", b"N"}:
                return True
        except BlockingIOError:  # it has said nothing
            pass
        except OSError:
            return True
        self.alive_ns = now_ns
        return False

    def close(self) -> None:
        """Hangs up. Never raises, never waits."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        # pg8000 keeps a file of the socket, without whose end the descriptor stays open.
        with suppress(Exception):
            self._connection.close()
        self._socket.close()
        self._peek.close()


def _said(error: Exception) -> tuple[str, str]:
    """The code and the message of an error reply."""
    fields = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    return str(fields.get("C", "")), str(fields.get("M", error))


def literal(text: str) -> str:
    """A text as it stands in a statement."""
    return str(native.literal(text))
