"""MariaDB's protocol for probes: one session, text queries, one time limit.

https://mariadb.com/docs/server/reference/clientserver-protocol. Without passwords; see
``lockbench.clusters.wire`` for why no client library.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from lockbench.clusters.wire import Address, Closing, Line, ProbeFailed

USER = "lockbench"
DATABASE = "lockbench"
# CLIENT_PROTOCOL_41, CLIENT_CONNECT_WITH_DB, CLIENT_SECURE_CONNECTION, CLIENT_PLUGIN_AUTH
CAPABILITIES = 0x200 | 0x8 | 0x8000 | 0x80000
PLUGIN = "mysql_native_password"
PACKET_MAX = 1 << 24
UTF8 = 45
COM_QUERY, COM_PING = b"\x03", b"\x0e"
OK, EOF, ERR = 0x00, 0xFE, 0xFF
NULL = 0xFB
EOF_MAX = 9  # a longer packet that begins so is a row

Row = Sequence[str | None]


class Session(Closing):
    """A session that has been accepted; after ``limit_s`` every use of it raises TimeoutError."""

    def __init__(self, address: Address, limit_s: float) -> None:
        self._line = Line(address, limit_s)
        self._number = 0
        try:
            self._receive()  # the server's greeting; an empty password needs nothing of it
            head = struct.pack("<IIB23x", CAPABILITIES, PACKET_MAX, UTF8)
            self._send(head + f"{USER}\0\0{DATABASE}\0{PLUGIN}\0".encode())
            self._receive()
        except BaseException:
            self._line.close()
            raise

    def query(self, sql: str) -> list[Row]:
        """The rows of one statement. What the server refuses raises ProbeFailed."""
        self._ask(COM_QUERY + sql.encode())
        first = self._receive()
        if first[0] == OK:
            return []
        for _ in range(first[0] + 1):  # what the columns are, and an end
            self._receive()
        rows = []
        while not _is_end(packet := self._receive()):
            rows.append(_row(packet, first[0]))
        return rows

    def ping(self) -> None:
        """The cheapest question."""
        self._ask(COM_PING)
        self._receive()

    def close(self) -> None:
        self._line.close()

    def _ask(self, command: bytes) -> None:
        self._number = 0
        self._send(command)

    def _send(self, body: bytes) -> None:
        self._line.send(struct.pack("<I", len(body) | self._number << 24) + body)

    def _receive(self) -> bytes:
        head = struct.unpack("<I", self._line.exactly(4))[0]
        self._number = (head >> 24) + 1 & 0xFF
        body = self._line.exactly(head & 0xFFFFFF)
        if not body:
            raise ProbeFailed("an empty packet")
        if body[0] == ERR:
            raise ProbeFailed(message(body))
        return body


def _is_end(packet: bytes) -> bool:
    return packet[0] == EOF and len(packet) < EOF_MAX


def _row(body: bytes, columns: int) -> Row:
    at, row = 0, list[str | None]()
    for _ in range(columns):
        size, at = body[at], at + 1
        if size == NULL:
            row.append(None)
            continue
        if size > NULL:
            width = size - NULL + 1 if size < EOF else 8  # 2, 3 or 8 bytes have the size
            size, at = int.from_bytes(body[at : at + width], "little"), at + width
        row.append(body[at : at + size].decode())
        at += size
    return row


def message(body: bytes) -> str:
    """What an error packet says, in one line: its number, its state, its words."""
    (number,) = struct.unpack_from("<H", body, 1)
    return f"{number} {body[3:].decode(errors='replace').removeprefix('#')}"
