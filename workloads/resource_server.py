"""The server of the guarded resource (``lockbench.workloads.resource`` says what it does).

``python -m lockbench.workloads.resource_server PORT_FILE LOG_FOLDER``
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import defaultdict, deque
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic_ns
from typing import Final

from lockbench.history.op import NULL, F, Type
from lockbench.history.recorder import Recorder
from lockbench.workloads.resource import (
    DELIVER,
    EFFECTS_KEPT,
    HAND_BACK,
    LATELY,
    ONCE,
    REPLY,
    REQUEST,
)

RESOURCE_WORKER: Final = 2000  # its number as a recorder


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


if __name__ == "__main__":
    asyncio.run(serve(Path(sys.argv[1]), Path(sys.argv[2])))
