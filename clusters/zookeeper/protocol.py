"""As much of ZooKeeper's wire protocol as a probe needs.

kazoo starts threads and reconnects by itself; a probe must be one attempt on one connection.
"""

from __future__ import annotations

import struct
from typing import Final

from lockbench.clusters.wire import Address, Closing, Line, ProbeFailed

CREATE, DELETE, GET_DATA, GET_CHILDREN, PING, AUTH, CLOSE = 1, 2, 4, 8, 11, 100, -11
PING_XID = -2
ANY_VERSION = -1
EPHEMERAL = 1
ALL_PERMISSIONS = 31
NO_PASSWORD = bytes(16)


class Refused(ProbeFailed):
    """A request was answered with an error."""


class NoNode(Refused):
    """There is no such node."""


class NoAuth(Refused):
    """Not for whom one is."""


class NodeExists(Refused):
    """There is one already."""


class NotEmpty(Refused):
    """Something is below it."""


# https://github.com/apache/zookeeper, KeeperException.Code
REFUSALS: Final = {-101: NoNode, -102: NoAuth, -110: NodeExists, -111: NotEmpty}


class Session(Closing):
    """A session on one server.

    Opening it is a write that a quorum has agreed to: the server answers when the transaction that
    creates the session is committed.
    """

    def __init__(self, address: Address, limit_s: float, *, session_ms: int) -> None:
        self._xid = 0
        self.id = 0
        self._line = Line(address, limit_s)
        try:
            self._open(session_ms)
        except BaseException:
            self._line.close()
            raise

    def create_ephemeral(self, path: str, data: bytes) -> None:
        """Make a node that ends with the session."""
        self.create(path, data, EPHEMERAL)

    def create(self, path: str, data: bytes, flags: int = 0) -> None:
        """Make a node; it stays unless ``flags`` say otherwise."""
        acl = struct.pack(">ii", 1, ALL_PERMISSIONS) + _buffer(b"world") + _buffer(b"anyone")
        body = _buffer(path.encode()) + _buffer(data) + acl + struct.pack(">i", flags)
        self._request(CREATE, body)

    def get(self, path: str) -> bytes:
        """Read a node, as this server knows it."""
        answer = self._request(GET_DATA, _buffer(path.encode()) + b"\0")
        (size,) = struct.unpack_from(">i", answer)
        return answer[4 : 4 + max(size, 0)]

    def children(self, path: str) -> list[str]:
        """The paths below a node, as this server knows them."""
        answer = self._request(GET_CHILDREN, _buffer(path.encode()) + b"\0")
        (count,) = struct.unpack_from(">i", answer)
        at, found = 4, []
        for _ in range(count):
            (size,) = struct.unpack_from(">i", answer, at)
            found.append(f"{path.rstrip('/')}/{answer[at + 4 : at + 4 + size].decode()}")
            at += 4 + size
        return found

    def delete(self, path: str) -> None:
        """Remove a node that has nothing below it."""
        self._request(DELETE, _buffer(path.encode()) + struct.pack(">i", ANY_VERSION))

    def ping(self) -> None:
        """The heartbeat, which the server answers by itself."""
        self._line.send(_buffer(struct.pack(">ii", PING_XID, PING)))
        self._frame()

    def end(self) -> None:
        """End the session on the server, which is a write too."""
        self._request(CLOSE, b"")

    def close(self) -> None:
        """Drop the connection; a session that was not ended expires."""
        self._line.close()

    def _open(self, session_ms: int) -> None:
        # Protocol 0, no zxid seen, the timeout, no earlier session, its password, no read-only.
        ask = struct.pack(">iqiq", 0, 0, session_ms, 0) + _buffer(NO_PASSWORD) + b"\0"
        self._line.send(_buffer(ask))
        _, agreed_ms, self.id = struct.unpack_from(">iiq", self._frame())
        if agreed_ms <= 0:
            raise ProbeFailed("the server refused the session")

    def _request(self, operation: int, body: bytes) -> bytes:
        self._xid += 1
        self._line.send(_buffer(struct.pack(">ii", self._xid, operation) + body))
        answer = self._frame()
        _, _, error = struct.unpack_from(">iqi", answer)
        if error:
            refused = REFUSALS.get(error, Refused)
            raise refused(f"ZooKeeper answered error {error} to operation {operation}")
        return answer[16:]

    def _frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._line.exactly(4))
        return self._line.exactly(size)


def four_letters(address: Address, word: str, limit_s: float) -> str:
    """The answer to a four letter word."""
    with Line(address, limit_s) as line:
        line.send(word.encode())
        return line.all().decode(errors="replace")


def _buffer(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data
