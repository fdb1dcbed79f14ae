"""A ZooKeeper session that knows what it may promise: kazoo, and beside it the send time of the
last request or heartbeat that counts (``locks/libraries/shared/zookeeper_touches.py``).

kazoo sends heartbeats by itself but tells nobody when one was answered. So its connection handler
is extended at the three places where a message is sent, a header is read and a session begins.
These are private to kazoo; the version is pinned, and a test runs them against a real server.

kazoo is given no retries for requests. Reconnecting is its own affair: it goes through the other
servers at once and pauses RECONNECT_S, more or less, between rounds.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, SessionExpiredError, SessionMovedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import PING_XID, ConnectionHandler
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry

from locks.base import Address, Deadline
from locks.libraries.shared.zookeeper_touches import Touches

RECONNECT_S = 0.05

# kazoo warns of every lost connection. Under faults that is the news of the day, and not its own.
log = logging.getLogger("lockbench.zookeeper")
log.setLevel(logging.ERROR)

_NOT_ALIVE = (SessionExpiredError.code, SessionMovedError.code)


class NoAnswerError(Exception):
    """The request was handed to kazoo and not answered in time; it may still be carried out."""


class Session:
    """One kazoo client. Its session may end and be followed by another; ``id`` tells which."""

    def __init__(
        self,
        nodes: Sequence[Address],
        session_s: float,
        *,
        on_heartbeat: Callable[[int, int, int], None],
        on_lost: Callable[[], None],
    ) -> None:
        """``session_s`` is asked for, and the lease that the cluster was made for.
        ``on_heartbeat`` is told after every heartbeat: the session's id, when the message that the
        promise runs from was sent, and its end; ``on_lost`` when a session expired. Both run in
        kazoo's connection routine and must not block."""
        self.id = 0
        self.timeout_ns = 0  # as negotiated
        self._touches = Touches(session_s)
        self._on_heartbeat = on_heartbeat
        self._on_lost = on_lost
        self._disposed = False
        self.client: Any = _Client(nodes, session_s, self)
        self.client.add_listener(self._changed)
        self.client.start_async()

    @property
    def sent_ns(self) -> int:
        """When the message that the promise runs from was sent."""
        return self._touches.sent_ns

    @property
    def valid_until_ns(self) -> int:
        """Until when the service keeps the session, should nothing more be heard."""
        return self.sent_ns + self.timeout_ns

    def connected(self, limit_s: float) -> bool:
        """Whether there is a connection, waiting up to ``limit_s`` for one. Without one kazoo would
        keep a request and send it at some later time."""
        return bool(self.client.connected or self.client._live.wait(limit_s))  # noqa: SLF001

    @staticmethod
    def answers(timeout_s: float, *requests: Any) -> list[Any]:
        """The answers to requests that were sent together; the first error is raised."""
        deadline = Deadline(timeout_s)
        for request in requests:
            request.wait(max(0.0, deadline.left_s()))
            if not request.ready():
                raise NoAnswerError(f"no answer in {timeout_s:g} s")
            if isinstance(request.exception, RuntimeError):  # see _read_response
                raise NoAnswerError(str(request.exception))
            if request.exception is not None:
                raise request.exception
        return [request.value for request in requests]

    def dispose(self) -> Any:
        """Ends the session in the background: at once if the server can be told, else when it
        expires. Returns what can be joined."""
        self._disposed = True
        return self.client.handler.spawn(self._end)

    # Called by the connection routine.

    def began(self, session_id: int, sent_ns: int, timeout_ns: int) -> None:
        """The server accepted the session, new or old."""
        self.id = session_id
        self.timeout_ns = timeout_ns
        self._touches.connected(sent_ns)
        self._tell()

    def acknowledged(self, sent_ns: int, *, heartbeat: bool) -> None:
        """A message sent then was answered."""
        self._touches.answered(sent_ns, time.monotonic_ns())
        if heartbeat:
            self._tell()

    def _tell(self) -> None:
        if not self._disposed:
            self._on_heartbeat(self.id, self.sent_ns, self.valid_until_ns)

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST and not self._disposed:
            self._on_lost()

    def _end(self) -> None:
        try:
            self.client.stop()
            self.client.close()
        except Exception as error:  # noqa: BLE001  kazoo raises bare Exceptions here
            log.info("a session did not end in order: %s", error)


class _Client(KazooClient):  # type: ignore[misc]
    """A client with our connection handler and neither retries nor shared state."""

    def __init__(self, nodes: Sequence[Address], session_s: float, session: Session) -> None:
        handler = _handler()
        super().__init__(
            hosts=",".join(f"{node.host}:{node.port}" for node in nodes),
            timeout=session_s,
            handler=handler,
            connection_retry=KazooRetry(
                max_tries=-1,
                delay=RECONNECT_S,
                backoff=1,
                max_delay=RECONNECT_S,
                sleep_func=handler.sleep_func,
            ),
            command_retry=KazooRetry(max_tries=1, sleep_func=handler.sleep_func),
            logger=log,
        )
        self._connection = _Connection(self, self._conn_retry.copy(), session)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Remembers when each message was sent, until its answer is read. Answers to requests come in
    the order of the requests, and so do answers to heartbeats; the two may overtake each other."""

    def __init__(self, client: KazooClient, retry: KazooRetry, session: Session) -> None:
        super().__init__(client, retry, logger=log)
        self._session = session
        self._requests: deque[tuple[int, int]] = deque()  # (xid, sent_ns)
        self._heartbeats: deque[int] = deque()

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._requests.clear()
        self._heartbeats.clear()
        sent_ns = time.monotonic_ns()
        read_ms, connect_ms = super()._connect(host, hostip, port)
        timeout_ms = round(read_ms * 1.5)  # kazoo reads for two thirds of what was negotiated
        self._session.began(self.client._session_id, sent_ns, timeout_ms * 1_000_000)  # noqa: SLF001
        return read_ms, connect_ms

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        sent_ns = time.monotonic_ns()
        super()._submit(request, timeout, xid)
        if xid == PING_XID:
            self._heartbeats.append(sent_ns)
        elif xid is not None and xid > 0:
            self._requests.append((xid, sent_ns))

    def _read_response(self, header: Any, buffer: Any, offset: int) -> Any:
        """kazoo's connection routine ends for good when an answer is not the one that is due, and
        the client with it: requests are kept for ever. A soak found it, after servers had been
        killed. The connection is of no more use; the next one may be."""
        try:
            return super()._read_response(header, buffer, offset)
        except RuntimeError as error:
            raise ConnectionDropped(str(error)) from error

    def _read_header(self, timeout: float) -> Any:
        header, buffer, offset = super()._read_header(timeout)
        if header.xid == PING_XID and self._heartbeats:
            self._session.acknowledged(self._heartbeats.popleft(), heartbeat=True)
        elif self._requests and header.xid == self._requests[0][0]:
            _, sent_ns = self._requests.popleft()
            if header.err not in _NOT_ALIVE:
                self._session.acknowledged(sent_ns, heartbeat=False)
        return header, buffer, offset


def _handler() -> Any:
    """Greenlets where the socket module is gevent's, else threads. kazoo's threads on gevent's
    sockets work too and cost more."""
    try:
        from gevent.monkey import is_module_patched
    except ImportError:
        return SequentialThreadingHandler()
    if not is_module_patched("socket"):
        return SequentialThreadingHandler()
    from kazoo.handlers.gevent import SequentialGeventHandler

    return SequentialGeventHandler()
