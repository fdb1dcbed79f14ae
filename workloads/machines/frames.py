"""What the two ends of a machine's streams tell each other: frames, forwards and messages.

A frame is a kind, a channel, a length and that many bytes. ``SAY`` is a JSON object. ``PAGE`` is
the control page, as far as the other end needs it. ``PART`` is a part of a file of the recording:
its name, where it belongs, its bytes. The others carry connections (``Forwards``): whoever connects
to an address here is connected to the same address there. So addresses that servers tell their
clients are right on every machine, and nothing has to be opened but the way of the agent.

A connection that is reset at one end is reset at the other.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import re
import socket
import struct
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from enum import IntEnum
from typing import Any, Final

HEAD: Final = struct.Struct("<BII")
# Of the files of which parts are sent: what belongs to one worker.
OF_A_WORKER: Final = re.compile(
    r"history/(?P<recorder>[0-9]{1,4})(\.[0-9]{1,9})?\.(ops|strings)"
    r"|logs/worker-(?P<worker>[0-9]{1,4})[a-z0-9-]*\.(log|jsonl)"
)
LENGTH_MAX: Final = 1 << 22
CHUNK: Final = 1 << 16
# What somebody who does not read may leave here until his connection is reset.
WAITING_MAX: Final = 1 << 24
LINGER_NOT: Final = struct.pack("ii", 1, 0)

Address = tuple[str, int]


class Kind(IntEnum):
    """What a frame is, see the module."""

    SAY = 0
    PAGE = 1
    PART = 2
    OPEN = 3
    DATA = 4
    END = 5
    RESET = 6


class BadFrame(Exception):
    """What came is no frame."""


class Streams:
    """Frames over a pair of streams."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def frames(self) -> AsyncIterator[tuple[Kind, int, bytes]]:
        """Until the other end is gone. Raises BadFrame."""
        with suppress(asyncio.IncompleteReadError, OSError):
            while True:
                kind, channel, length = HEAD.unpack(await self._reader.readexactly(HEAD.size))
                if length > LENGTH_MAX or kind > max(Kind):
                    raise BadFrame(f"a frame of kind {kind} with {length} bytes")
                yield Kind(kind), channel, await self._reader.readexactly(length)

    def send(self, kind: Kind, channel: int = 0, data: bytes = b"") -> None:
        """Never waits. What is sent when the other end is gone is lost."""
        self._writer.write(HEAD.pack(kind, channel, len(data)) + data)

    def say(self, message: dict[str, Any]) -> None:
        self.send(Kind.SAY, 0, json.dumps(message).encode())

    async def drain(self) -> None:
        """Waits while too much is on its way."""
        with suppress(OSError):
            await self._writer.drain()

    def close(self) -> None:
        self._writer.close()


class Forwards:
    """The connections that the streams carry. ``listen`` on one side, on the other the addresses
    that may be ``allowed``."""

    def __init__(self, streams: Streams, allowed: Iterable[Address] = ()) -> None:
        self.allowed = set(allowed)
        self._streams = streams
        self._numbers = itertools.count()
        self._writers: dict[int, asyncio.StreamWriter] = {}
        self._early: dict[int, bytearray] = {}
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def listen(self, address: Address) -> None:
        """Raises OSError where somebody else listens there."""

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            channel = next(self._numbers)
            self._streams.send(Kind.OPEN, channel, json.dumps(address).encode())
            await self._carry(channel, reader, writer)

        host, port = address
        self._servers.append(await asyncio.start_server(accept, host, port, backlog=1024))

    def take(self, kind: Kind, channel: int, data: bytes) -> None:
        """A frame that is about a connection."""
        if kind == Kind.OPEN:
            host, port = json.loads(data)
            self._early[channel] = bytearray()
            task = asyncio.create_task(self._connect(channel, (str(host), int(port))))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        elif kind == Kind.DATA:
            self._pass_on(channel, data)
        elif (writer := self._writers.pop(channel, None)) is not None:
            _shut(writer, reset=kind == Kind.RESET)
        else:
            self._early.pop(channel, None)

    def close(self) -> None:
        for server in self._servers:
            server.close()
        for writer in self._writers.values():
            _shut(writer, reset=True)
        self._writers.clear()

    def _pass_on(self, channel: int, data: bytes) -> None:
        if (early := self._early.get(channel)) is not None:
            early += data
        elif (writer := self._writers.get(channel)) is not None:
            writer.write(data)
            if writer.transport.get_write_buffer_size() > WAITING_MAX:
                self._forget(channel, reset=True)

    async def _connect(self, channel: int, address: Address) -> None:
        try:
            # The other machine reaches nothing but what its load needs.
            opened = await asyncio.open_connection(*address) if address in self.allowed else None
        except OSError:
            opened = None
        if opened is None:
            self._early.pop(channel, None)
            self._streams.send(Kind.RESET, channel)
            return
        reader, writer = opened
        early = self._early.pop(channel, None)
        if early is None:  # it was given up meanwhile
            _shut(writer, reset=True)
            return
        writer.write(early)
        await self._carry(channel, reader, writer)

    async def _carry(
        self, channel: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        with suppress(OSError):
            own: socket.socket = writer.get_extra_info("socket")
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._writers[channel] = writer
        reset = False
        try:
            while data := await reader.read(CHUNK):
                self._streams.send(Kind.DATA, channel, data)
                await self._streams.drain()
        except OSError:
            reset = True
        self._forget(channel, reset=reset)

    def _forget(self, channel: int, *, reset: bool) -> None:
        writer = self._writers.pop(channel, None)
        if writer is not None:
            self._streams.send(Kind.RESET if reset else Kind.END, channel)
            _shut(writer, reset=reset)


def _shut(writer: asyncio.StreamWriter, *, reset: bool) -> None:
    if not reset:
        writer.close()
        return
    with suppress(OSError):
        own: socket.socket = writer.get_extra_info("socket")
        own.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_NOT)
    writer.transport.abort()
