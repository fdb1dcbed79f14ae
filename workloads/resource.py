"""The guarded resource: a register per key, on a server of its own, outside every fault's reach.

It checks nothing and applies everything in the order of arrival, as a resource without fencing
does. It keeps a log of what it applied (a recording of its own). A write names the version that was
read; versions of a key grow by one with every applied write, so that the checker can work out what
a fence would have refused.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import sys
from collections import defaultdict
from pathlib import Path
from time import monotonic_ns
from typing import Final

from history.op import NULL, F, Type
from history.recorder import Recorder

REQUEST: Final = struct.Struct("<BBxxxxxxqqq")  # f, length of key, hold, version read, fence
REPLY: Final = struct.Struct("<qq")  # version, applied_ns
RESOURCE_WORKER: Final = 2000  # its number as a recorder


class _Connection(asyncio.Protocol):
    def __init__(self, versions: dict[bytes, int], log: Recorder) -> None:
        self._versions = versions
        self._log = log
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= REQUEST.size:
            f, key_length, hold, version, fence = REQUEST.unpack_from(self._buffer)
            end = REQUEST.size + key_length
            if len(self._buffer) < end:
                return
            key = self._buffer[REQUEST.size : end]
            self._buffer = self._buffer[end:]
            now = monotonic_ns()
            if f == F.WRITE:
                self._versions[key] += 1
            found = self._versions[key]
            entry = self._log.invoke(
                0, F(f), key.decode(), hold=hold, version=version, invoke_ns=now
            )
            self._log.complete(
                entry, Type.OK, value=found, fence=fence, applied_ns=now, complete_ns=now
            )
            self._transport.write(REPLY.pack(found, now))


async def serve(port_file: Path, log_folder: Path) -> None:
    """Serves until SIGTERM; writes the port it listens on into ``port_file``."""
    log = Recorder(log_folder, RESOURCE_WORKER)
    versions: dict[bytes, int] = defaultdict(int)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, done.set)
    server = await loop.create_server(lambda: _Connection(versions, log), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    ready = port_file.with_suffix(".new")
    ready.write_text(str(port), encoding="ascii")
    ready.rename(port_file)
    await done.wait()
    server.close()
    log.close()


class Resource:
    """A client's connection. Not reached by any fault, so an error here is the bench's own."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, key: str, hold: int) -> tuple[int, int]:
        """Returns (version, applied_ns)."""
        return self._ask(F.READ, key, hold, NULL, NULL)

    def write(self, key: str, hold: int, version: int, fence: int | None) -> tuple[int, int]:
        """Writes on top of the version that had been read. Returns (version made, applied_ns)."""
        return self._ask(F.WRITE, key, hold, version, NULL if fence is None else fence)

    def _ask(self, f: F, key: str, hold: int, version: int, fence: int) -> tuple[int, int]:
        name = key.encode()
        self._socket.sendall(REQUEST.pack(f, len(name), hold, version, fence) + name)
        reply = self._socket.recv(REPLY.size)
        while len(reply) < REPLY.size:
            more = self._socket.recv(REPLY.size - len(reply))
            if not more:
                raise ConnectionError("the guarded resource went away")
            reply += more
        found, applied_ns = REPLY.unpack(reply)
        return found, applied_ns

    def close(self) -> None:
        self._socket.close()


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
