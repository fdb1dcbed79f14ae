"""A TCP proxy before one real server that counts what passes, and delays or cuts what a test chose.

A burst is what passes one way on one connection until something passes the other way: for protocols
of questions and answers, one request or one reply, however it was cut into segments. Bursts are
numbered from 1, for each direction, over all connections of the proxy, in the order in which their
first byte came here. What is behind a delayed burst on its connection and in its direction waits
with it; everything else passes.

Runs in threads of its own and is reached by TCP, so a client in another process is seen as well.
Does not guarantee that a burst is one message: what is sent without waiting for an answer, and what
a server says unasked, is counted with what is beside it.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import time
from dataclasses import dataclass, replace
from typing import Final, Literal, Self

from lockbench.locks.base import Address

Direction = Literal["request", "reply"]

ANYWHERE: Final = Address("127.0.0.1", 0)
READ_BYTES: Final = 1 << 16
DIAL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Burst:
    """``time_ns``: when its first byte came here, in the machine's monotonic clock. ``size``: its
    bytes so far. Connections are numbered from 1."""

    number: int
    direction: Direction
    connection: int
    time_ns: int
    size: int


class DelayingProxy:
    """Listens at ``at`` until it is closed. Clients that tell nodes by their ports need the port of
    the server, on a loopback address of its own."""

    def __init__(self, server: Address, at: Address = ANYWHERE) -> None:
        self._server = server
        self._mutex = threading.Lock()
        self._bursts: list[Burst] = []
        self._counts: dict[Direction, int] = {"request": 0, "reply": 0}
        self._delays_s: dict[tuple[Direction, int], float] = {}
        self._drops: set[tuple[Direction, int]] = set()
        self._lasts: set[tuple[Direction, int]] = set()
        self._closed = threading.Event()
        self._sockets: list[socket.socket] = []
        self._pumps: list[threading.Thread] = []
        self._listener = socket.create_server(at)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def address(self) -> Address:
        """Where clients connect to."""
        return Address(*self._listener.getsockname())

    def bursts(self, direction: Direction | None = None) -> list[Burst]:
        """What has come so far, in its order; of one direction or of both."""
        with self._mutex:
            return [burst for burst in self._bursts if direction in {None, burst.direction}]

    def count(self, direction: Direction) -> int:
        """The number of the last burst; 0 before the first."""
        with self._mutex:
            return self._counts[direction]

    def delay(self, direction: Direction, number: int, seconds: float) -> None:
        """That burst will be passed on so much later."""
        with self._mutex:
            self._delays_s[direction, number] = seconds

    def drop(self, direction: Direction, number: int) -> None:
        """That burst will not be passed on, and its connection ends on both sides."""
        with self._mutex:
            self._drops.add((direction, number))

    def last(self, direction: Direction, number: int) -> None:
        """That burst will be passed on together with the end of its connection, which ends on both
        sides."""
        with self._mutex:
            self._lasts.add((direction, number))

    def refuse(self) -> None:
        """No new connections; those that are there go on."""
        _shut(self._listener)
        self._accepting.join()
        self._listener.close()

    def close(self) -> None:
        """Ends every connection at once, and what is delayed with it."""
        self._closed.set()
        _shut(self._listener)
        self._accepting.join()
        for one in self._sockets:
            _shut(one)
        for thread in self._pumps:
            thread.join()
        for one in (self._listener, *self._sockets):
            one.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        for number in itertools.count(1):
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            try:
                server = socket.create_connection(self._server, timeout=DIAL_S)
            except OSError:
                _shut(client)
                continue
            self._sockets.append(server)
            server.settimeout(None)
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            state = _Connection(number)
            for ends in ((state, "request", client, server), (state, "reply", server, client)):
                pump = threading.Thread(target=self._pump, args=ends, daemon=True)
                self._pumps.append(pump)
                pump.start()

    def _pump(
        self, state: _Connection, direction: Direction, source: socket.socket, sink: socket.socket
    ) -> None:
        """Passes on what comes one way until its source has no more to say."""
        try:
            while data := source.recv(READ_BYTES):
                delay_s = self._note(state, direction, len(data))
                if delay_s is None:
                    break
                self._closed.wait(delay_s)
                if self._is_last(state):
                    sink.sendall(data, socket.MSG_MORE)
                    break
                sink.sendall(data)
            else:
                sink.shutdown(socket.SHUT_WR)
                return
        except OSError:
            pass
        _shut(source)
        _shut(sink)

    def _note(self, state: _Connection, direction: Direction, size: int) -> float | None:
        """For how long what has just come is kept here; None: it is lost."""
        now_ns = time.monotonic_ns()
        with self._mutex:
            if state.direction == direction:
                burst = self._bursts[state.newest]
                self._bursts[state.newest] = replace(burst, size=burst.size + size)
                return 0.0
            self._counts[direction] += 1
            number = self._counts[direction]
            state.direction, state.newest = direction, len(self._bursts)
            self._bursts.append(Burst(number, direction, state.number, now_ns, size))
            if (direction, number) in self._drops:
                return None
            return self._delays_s.get((direction, number), 0.0)

    def _is_last(self, state: _Connection) -> bool:
        with self._mutex:
            burst = self._bursts[state.newest]
            return (burst.direction, burst.number) in self._lasts


@dataclass(slots=True)
class _Connection:
    """``newest``: the place of its last burst among all."""

    number: int
    direction: Direction | None = None
    newest: int = -1


def _shut(one: socket.socket) -> None:
    """Wakes whoever waits for it."""
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
