"""What the session of a kazoo client promises: the send time of the last message that counts
(``zookeeper_touches``), plus the timeout that was negotiated.

kazoo sends heartbeats by itself but tells nobody when one was answered. So its connection handler
is extended where a message is sent, a header is read and a session begins. These are private to
kazoo; its version is pinned, and tests run them against real servers. Both ``locks/zookeeper`` and
the adapters of libraries that stand on kazoo use this file.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError, SessionMovedError
from kazoo.protocol.connection import PING_XID, ConnectionHandler

_NOT_ALIVE = (SessionExpiredError.code, SessionMovedError.code)


class Noted(Protocol):
    """``zookeeper_touches.Touches``, which is found under one name here and another there."""

    sent_ns: int

    def connected(self, sent_ns: int) -> None:
        """A server accepted the session."""

    def answered(self, sent_ns: int, read_ns: int) -> None:
        """A message was answered."""


class Promise(ABC):
    """Of the current session of one client, which may end and be followed by another."""

    def __init__(self, touches: Noted) -> None:
        self.id = 0
        self.timeout_ns = 0  # as negotiated
        self._touches = touches

    @property
    def sent_ns(self) -> int:
        """When the message that the promise runs from was sent."""
        return self._touches.sent_ns

    @property
    def valid_until_ns(self) -> int:
        """Until when the service keeps the session, should nothing more be heard."""
        return self.sent_ns + self.timeout_ns

    @abstractmethod
    def renewed(self) -> None:
        """A session began or a heartbeat was answered. Called by kazoo's connection routine; must
        not block."""

    def began(self, session_id: int, sent_ns: int, timeout_ns: int) -> None:
        """The server accepted the session, new or old."""
        self.id = session_id
        self.timeout_ns = timeout_ns
        self._touches.connected(sent_ns)
        self.renewed()

    def acknowledged(self, sent_ns: int, *, heartbeat: bool) -> None:
        """A message sent then was answered."""
        self._touches.answered(sent_ns, time.monotonic_ns())
        if heartbeat:
            self.renewed()


class Connection(ConnectionHandler):  # type: ignore[misc]
    """Remembers when each message was sent, until its answer is read. Answers to requests come in
    the order of the requests, and so do answers to heartbeats; the two may overtake each other."""

    def __init__(self, client: KazooClient, promise: Promise) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)  # noqa: SLF001
        self._promise = promise
        self._requests: deque[tuple[int, int]] = deque()  # (xid, sent_ns)
        self._heartbeats: deque[int] = deque()

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._requests.clear()
        self._heartbeats.clear()
        sent_ns = time.monotonic_ns()
        read_ms, connect_ms = super()._connect(host, hostip, port)
        timeout_ms = round(read_ms * 1.5)  # kazoo reads for two thirds of what was negotiated
        self._promise.began(self.client._session_id, sent_ns, timeout_ms * 1_000_000)  # noqa: SLF001
        return read_ms, connect_ms

    def _submit(self, request: Any, timeout: float, xid: int | None = None) -> None:
        sent_ns = time.monotonic_ns()
        super()._submit(request, timeout, xid)
        if xid == PING_XID:
            self._heartbeats.append(sent_ns)
        elif xid is not None and xid > 0:
            self._requests.append((xid, sent_ns))

    def _read_header(self, timeout: float) -> Any:
        header, buffer, offset = super()._read_header(timeout)
        if header.xid == PING_XID and self._heartbeats:
            self._promise.acknowledged(self._heartbeats.popleft(), heartbeat=True)
        elif self._requests and header.xid == self._requests[0][0]:
            _, sent_ns = self._requests.popleft()
            if header.err not in _NOT_ALIVE:
                self._promise.acknowledged(sent_ns, heartbeat=False)
        return header, buffer, offset
