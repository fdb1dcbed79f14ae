"""Redis servers tell clients where other servers are. This puts our own ways in the place of these
addresses, so that a client which follows them stays behind the relay and its near links.

Read are versions 2 and 3 of https://redis.io/docs/latest/develop/reference/protocol-spec/.
Addresses are found where they stand in answers: behind MOVED and ASK, as a host with its port
behind it, under the names ``ip`` and ``port``, and in the lines of CLUSTER NODES.

Guarantees: who is sent to an address that no node of the file has is not sent there, the connection
ends. Does not guarantee: that nothing else names an address (INFO does).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from lockbench.clusters.elsewhere.place import Refused, Talk
from lockbench.clusters.wire import Address

BULKS: Final = b"$=!"
LISTS: Final = b"*~>"
MAPS: Final = b"%|"
ERROR: Final = b"-"
NUMBER: Final = b":"
BULK_BYTES_MAX: Final = 64 << 20
DEPTH_MAX: Final = 16
REDIRECTED: Final = re.compile(rb"(MOVED|ASK) (\d+) (\S*):(\d+)")
LISTED: Final = re.compile(rb"(?m)(^| )(\S+):(\d+)@(\d+)(,\S*)?")


@dataclass
class Said:
    """One value of the protocol: its sign, and what is behind it (None: nothing)."""

    sign: bytes
    value: bytes | list[Said] | None

    @property
    def text(self) -> bytes:
        """Empty for a list."""
        return self.value if isinstance(self.value, bytes) else b""

    def written(self) -> bytes:
        """As it is sent."""
        if self.value is None:
            return self.sign + b"-1\r\n"
        if isinstance(self.value, bytes):
            if self.sign in BULKS:
                return b"%b%d\r\n%b\r\n" % (self.sign, len(self.value), self.value)
            return self.sign + self.value + b"\r\n"
        count = len(self.value) // (2 if self.sign in MAPS else 1)
        return b"%b%d\r\n" % (self.sign, count) + b"".join(one.written() for one in self.value)


async def read(reader: asyncio.StreamReader, depth: int = 0) -> Said | None:
    """The next value, or None at the end. Raises ValueError for what is none, OSError."""
    line = await reader.readline()
    if not line.endswith(b"\r\n"):
        return None
    sign, rest = line[:1], line[1:-2]
    if sign in BULKS:
        size = int(rest)
        if size > BULK_BYTES_MAX:
            raise ValueError(f"a value of {size} bytes")
        return Said(sign, None if size < 0 else (await reader.readexactly(size + 2))[:-2])
    if sign not in LISTS + MAPS:
        return Said(sign, rest)
    if depth > DEPTH_MAX:
        raise ValueError("lists in lists without end")
    count = int(rest) * (2 if sign in MAPS else 1)
    if count < 0:
        return Said(sign, None)
    found = []
    for _ in range(count):
        if (one := await read(reader, depth + 1)) is None:
            return None
        found.append(one)
    return Said(sign, found)


@dataclass(frozen=True)
class Announced(Talk):
    """Passes on what is said, with other addresses. ``nodes``: the announced addresses of the
    file's nodes, empty for as long as they are not known; ``ways``: where this client reaches each
    of them. ``names``: words that are called otherwise here, in requests; back in answers."""

    nodes: Mapping[Address, int]
    ways: Mapping[int, Address]
    names: Mapping[bytes, bytes]

    async def requests(self) -> None:
        if not self.names:
            await super().requests()
            return
        while (said := await read(self.client.reader)) is not None:
            _each(said, lambda one: _renamed(one, self.names))
            self.server.writer.write(said.written())
            await self.server.writer.drain()

    async def answers(self) -> None:
        back = {there: here for here, there in self.names.items()}
        while (said := await read(self.server.reader)) is not None:
            if self.nodes:
                _each(said, self._moved)
            if back:
                _each(said, lambda one: _renamed(one, back))
            self.client.writer.write(said.written())
            await self.client.writer.drain()

    def _moved(self, said: Said) -> None:
        if isinstance(said.value, list):
            _pairs(said.value, self._way)
        elif said.sign == ERROR and (found := REDIRECTED.match(said.text)):
            how, slot, host, port = found.groups()
            way = self._way(host, port)
            if way is None:
                raise Refused(
                    f"sends to {host.decode()}:{port.decode()}, which is none of the nodes named"
                )
            said.value = b"%b %b %b:%d" % (how, slot, way[0].encode(), way[1])
        elif said.sign in BULKS and b"@" in said.text:
            said.value = LISTED.sub(self._line, said.text)

    def _line(self, found: re.Match[bytes]) -> bytes:
        way = self._way(found[2], found[3])
        if way is None:
            return found[0]
        return b"%b%b:%d@%b" % (found[1], way[0].encode(), way[1], found[4])

    def _way(self, host: bytes, port: bytes) -> Address | None:
        node = self.nodes.get((host.decode(errors="replace"), int(port) if port.isdigit() else 0))
        return None if node is None else self.ways[node]


def _each(said: Said, change: Callable[[Said], None]) -> None:
    change(said)
    if isinstance(said.value, list):
        for one in said.value:
            _each(one, change)


def _renamed(said: Said, names: Mapping[bytes, bytes]) -> None:
    if said.sign in BULKS and said.text in names:
        said.value = names[said.text]


def _pairs(said: list[Said], way: Callable[[bytes, bytes], Address | None]) -> None:
    """Hosts with their ports behind them, and what stands under ``ip`` and ``port``."""
    named = {one.text: said[at + 1] for at, one in enumerate(said[:-1]) if at % 2 == 0}
    apart = [(named[b"ip"], named[b"port"])] if {b"ip", b"port"} <= named.keys() else []
    for host, port in [*pairwise(said), *apart]:
        if host.sign not in BULKS or not (found := way(host.text, port.text)):
            continue
        for one in [other for other in said if other.text == host.text]:
            one.value = found[0].encode()
        port.value = str(found[1]).encode()
