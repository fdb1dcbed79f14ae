"""The guarded resource: a register per key, on a server of its own, outside every fault's reach.

It checks nothing and applies everything in the order of arrival, as a resource without fencing
does. It keeps a log of what it applied (a recording of its own). A write names the version that was
read; versions of a key grow by one with every applied write, so that the checker can work out what
a fence would have refused.

What jobs need beyond that: an *effect* does one numbered thing (a charge, a run, a call) as often
as it is asked for, unless it is asked for *once* (an idempotency key); a write may *mark* a number
as done; a read may ask for a mark, or how many effects there were lately. And it delivers messages:
numbered ones per key, each as often as is asked for, and again when they are handed back.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import struct
import sys
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Final

from history.op import NULL, F, Type
from history.recorder import Recorder

# What is asked, length of key, how, hold, version read, fence, number.
REQUEST: Final = struct.Struct("<BBBxxxxxqqqq")
REPLY: Final = struct.Struct("<qqq")  # version, applied_ns, what was asked for beside them
RESOURCE_WORKER: Final = 2000  # its number as a recorder
# Asked beside READ, WRITE and EFFECT, and not logged: they are no part of what is guarded.
DELIVER: Final = 100
HAND_BACK: Final = 101
# How it is asked.
PLAINLY: Final = 0
ONCE: Final = 1  # an effect that was done already is refused
LATELY: Final = 2  # a read counts the effects of the last so many nanoseconds


@dataclass
class _State:
    """Of one key."""

    version: int = 0
    marks: set[int] = field(default_factory=set)
    done: set[int] = field(default_factory=set)
    at_ns: deque[int] = field(default_factory=lambda: deque(maxlen=EFFECTS_KEPT))
    messages: int = 0
    queue: deque[int] = field(default_factory=deque)

    def lately(self, now_ns: int, window_ns: int) -> int:
        return sum(at > now_ns - window_ns for at in self.at_ns)

    def deliver(self, copies: int) -> int:
        if not self.queue:
            self.queue.extend([self.messages] * copies)
            self.messages += 1
        return self.queue.popleft()


EFFECTS_KEPT: Final = 1000


class _Connection(asyncio.Protocol):
    def __init__(self, states: dict[bytes, _State], log: Recorder) -> None:
        self._states = states
        self._log = log
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= REQUEST.size:
            asked, key_length, how, hold, version, fence, number = REQUEST.unpack_from(self._buffer)
            end = REQUEST.size + key_length
            if len(self._buffer) < end:
                return
            key = self._buffer[REQUEST.size : end]
            self._buffer = self._buffer[end:]
            state, now = self._states[key], monotonic_ns()
            if asked == DELIVER:
                answer = state.deliver(number)
            elif asked == HAND_BACK:
                state.queue.appendleft(number)
                answer = 0
            else:
                answer = _apply(state, F(asked), how, number, now)
                if answer >= 0:
                    self._write_down(F(asked), key.decode(), (hold, version, fence), state, now)
            self._transport.write(REPLY.pack(state.version, now, answer))

    def _write_down(
        self, f: F, key: str, named: tuple[int, int, int], state: _State, now: int
    ) -> None:
        hold, version, fence = named
        entry = self._log.invoke(0, f, key, hold=hold, version=version, invoke_ns=now)
        self._log.complete(
            entry, Type.OK, value=state.version, fence=fence, applied_ns=now, complete_ns=now
        )


def _apply(state: _State, f: F, how: int, number: int, now: int) -> int:
    """The answer; negative where it was refused."""
    if f is F.WRITE:
        state.version += 1
        if number != NULL:
            state.marks.add(number)
    elif f is F.EFFECT:
        if how == ONCE and number in state.done:
            return -1
        state.done.add(number)
        state.at_ns.append(now)
    elif how == LATELY:
        return state.lately(now, number)
    return int(number in state.marks)


async def serve(port_file: Path, log_folder: Path) -> None:
    """Serves until SIGTERM; writes the port it listens on into ``port_file``."""
    log = Recorder(log_folder, RESOURCE_WORKER)
    states: dict[bytes, _State] = defaultdict(_State)
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, done.set)
    server = await loop.create_server(lambda: _Connection(states, log), "127.0.0.1", 0)
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

    def read(
        self, key: str, hold: int, number: int = NULL, *, how: int = PLAINLY
    ) -> tuple[int, int, int]:
        """Returns (version, applied_ns, whether ``number`` was marked or, LATELY, how many effects
        the last ``number`` nanoseconds saw)."""
        return self._ask(F.READ, key, hold, number=number, how=how)

    def write(
        self, key: str, hold: int, version: int, fence: int | None, number: int = NULL
    ) -> tuple[int, int]:
        """Writes on top of the version that had been read, and marks ``number``. Returns (version
        made, applied_ns)."""
        return self._ask(F.WRITE, key, hold, version=version, fence=_or_null(fence), number=number)[
            :2
        ]

    def effect(
        self, key: str, hold: int, number: int, fence: int | None, *, once: bool
    ) -> tuple[bool, int, int]:
        """Does the thing ``number``. Returns (whether it was done, the version that it met,
        applied_ns)."""
        version, at_ns, answer = self._ask(
            F.EFFECT,
            key,
            hold,
            version=number,
            fence=_or_null(fence),
            number=number,
            how=ONCE if once else PLAINLY,
        )
        return answer >= 0, version, at_ns

    def deliver(self, key: str, copies: int) -> int:
        """The next message of a key; every message is delivered ``copies`` times."""
        return self._ask(DELIVER, key, NULL, number=copies)[2]

    def hand_back(self, key: str, message: int) -> None:
        """A message that was not worked on is delivered again."""
        self._ask(HAND_BACK, key, NULL, number=message)

    def _ask(
        self,
        asked: int,
        key: str,
        hold: int,
        *,
        version: int = NULL,
        fence: int = NULL,
        number: int = NULL,
        how: int = PLAINLY,
    ) -> tuple[int, int, int]:
        name = key.encode()
        head = REQUEST.pack(asked, len(name), how, hold, version, fence, number)
        self._socket.sendall(head + name)
        reply = self._socket.recv(REPLY.size)
        while len(reply) < REPLY.size:
            more = self._socket.recv(REPLY.size - len(reply))
            if not more:
                raise ConnectionError("the guarded resource went away")
            reply += more
        found: tuple[int, int, int] = REPLY.unpack(reply)
        return found

    def close(self) -> None:
        self._socket.close()


def _or_null(fence: int | None) -> int:
    return NULL if fence is None else fence


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
