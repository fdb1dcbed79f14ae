"""What the session of a kazoo client may promise: the send time of the last request or heartbeat
that counts (``zookeeper_touches``), plus the time that was negotiated.

kazoo sends heartbeats by itself but tells nobody when one was answered. So its connection handler
is extended where a message is sent, a header is read and a session begins, as
``locks/zookeeper/session.py`` does. These are private to kazoo; its version is pinned.
"""

from __future__ import annotations

import time
from collections import deque
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import SessionExpiredError, SessionMovedError
from kazoo.protocol.connection import PING_XID, ConnectionHandler
from lockbench_sidecar import Granted, Setup
from zookeeper_touches import Touches

_NOT_ALIVE = (SessionExpiredError.code, SessionMovedError.code)


class Session:
    """What is known of the current session, and which holds it carries."""

    def __init__(self, setup: Setup) -> None:
        self.id: int | None = None
        self.timeout_ns = 0
        self._touches = Touches(setup.ttl_s)
        self._tell = setup.tell
        self._holds: dict[str, int | None] = {}  # hold → the session it was granted in

    @property
    def valid_until_ns(self) -> int:
        """Until when the server keeps the session, should nothing more be heard."""
        until: int = self._touches.sent_ns + self.timeout_ns
        return until

    def granted(self, hold: str, lock: Any) -> Granted:
        """It was granted just now; from now on heartbeats are told for it."""
        self._holds[hold] = self.id
        return Granted(self._touches.sent_ns, self.valid_until_ns, lock=lock)

    def drop(self, hold: str) -> None:
        """It was given back."""
        self._holds.pop(hold, None)

    def began(self, session_id: int | None, sent_ns: int, timeout_ns: int) -> None:
        """The server accepted the session, new or old."""
        self.id = session_id
        self.timeout_ns = timeout_ns
        self._touches.connected(sent_ns)
        self._tell_all()

    def acknowledged(self, sent_ns: int, *, heartbeat: bool) -> None:
        """A message sent then was answered."""
        self._touches.answered(sent_ns, time.monotonic_ns())
        if heartbeat:
            self._tell_all()

    def _tell_all(self) -> None:
        sent_ns, until_ns = self._touches.sent_ns, self.valid_until_ns
        for hold, session_id in list(self._holds.items()):
            if session_id == self.id:
                self._tell.extended(hold, sent_ns=sent_ns, valid_until_ns=until_ns)

    def lost(self) -> None:
        """The client announced that the session is over."""
        for hold in list(self._holds):
            self._holds.pop(hold, None)
            self._tell.lost(hold)


def watched(client: KazooClient, session: Session) -> KazooClient:
    """The client itself, not yet started, with a connection handler that remembers when it sent
    what."""
    client._connection = _Connection(client, client._conn_retry.copy(), session)  # noqa: SLF001
    return client


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """Answers to requests come in the order of the requests, and so do answers to heartbeats; the
    two may overtake each other."""

    def __init__(self, client: KazooClient, retry: Any, session: Session) -> None:
        super().__init__(client, retry, logger=client.logger)
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

    def _read_header(self, timeout: float) -> Any:
        header, buffer, offset = super()._read_header(timeout)
        if header.xid == PING_XID and self._heartbeats:
            self._session.acknowledged(self._heartbeats.popleft(), heartbeat=True)
        elif self._requests and header.xid == self._requests[0][0]:
            _, sent_ns = self._requests.popleft()
            if header.err not in _NOT_ALIVE:
                self._session.acknowledged(sent_ns, heartbeat=False)
        return header, buffer, offset
