"""PostgreSQL's protocol for probes: one session, simple queries, one time limit.

https://www.postgresql.org/docs/17/protocol-flow.html. Without passwords; see
``lockbench.clusters.wire`` for why no client library.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lockbench.clusters.wire import Address, Closing, Line, ProbeFailed

USER = "lockbench"
DATABASE = "postgres"
PROTOCOL = 196608  # 3.0

Row = Sequence[str | None]


class Session(Closing):
    """A session that has been accepted; after ``limit_s`` every use of it raises TimeoutError."""

    def __init__(self, address: Address, limit_s: float) -> None:
        self._line = Line(address, limit_s)
        try:
            words = f"user\0{USER}\0database\0{DATABASE}\0\0".encode()
            self._line.send(struct.pack("!ii", 8 + len(words), PROTOCOL) + words)
            self._until_ready()
        except BaseException:
            self._line.close()
            raise

    def query(self, sql: str) -> list[Row]:
        """The rows of the last statement. What the server refuses raises ProbeFailed."""
        text = sql.encode() + b"\0"
        self._line.send(b"Q" + struct.pack("!i", 4 + len(text)) + text)
        return self._until_ready()

    def close(self) -> None:
        self._line.close()

    def _until_ready(self) -> list[Row]:
        rows: list[Row] = []
        while True:
            kind, size = struct.unpack("!ci", self._line.exactly(5))
            body = self._line.exactly(size - 4)
            if kind == b"E":
                raise ProbeFailed(message(body))
            if kind == b"T":
                rows = []
            elif kind == b"D":
                rows.append(_row(body))
            elif kind == b"Z":
                return rows


def _row(body: bytes) -> Row:
    (count,) = struct.unpack_from("!h", body)
    at, row = 2, list[str | None]()
    for _ in range(count):
        (size,) = struct.unpack_from("!i", body, at)
        at += 4
        row.append(None if size < 0 else body[at : at + size].decode())
        at += max(size, 0)
    return row


def message(body: bytes) -> str:
    """What an error reply says, in one line."""
    fields = {part[:1]: part[1:].decode(errors="replace") for part in body.split(b"\0") if part}
    return f"{fields.get(b'S')} {fields.get(b'C')}: {fields.get(b'M')}"
