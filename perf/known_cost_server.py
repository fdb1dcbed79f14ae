"""A lock service of known cost, so that what is measured of it can be compared with what is true.

An acquire of a free key takes one of so many equal servers, in the order of arrival. It is answered
after a fixed time, and occupies its server for another, as long or longer; so cost and capacity are
set apart. A release costs nothing. A held key is waited for without a server. A request arrives
when the kernel has it, and every answer is sent at the time that follows from the arrivals alone,
as near as the machine allows: what this process takes for itself is not on top of the cost.

    acquire KEY HOLD  →  granted
    release KEY HOLD  →  released, or not-held

A hold ends with its connection. Listens at 127.0.0.1, prints the port, ends with its standard
input, and then writes what it did: hold, arrival, departure (0: this one is lost, it is never
answered) and when the answer was sent, in nanoseconds of the monotonic clock, four 64-bit numbers
for each acquire.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import select
import socket
import struct
import sys
from array import array
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from time import monotonic_ns, time_ns
from typing import Final

# A sleeping process is woken this long before an answer is due, and then looks at the clock.
SPIN_NS: Final = 80_000
PR_SET_TIMERSLACK: Final = 29  # prctl(2): how much later than asked a sleep may end, in ns
SO_TIMESTAMPNS: Final = 35  # socket(7): the kernel says when it received; on x86-64
TIME: Final = struct.Struct("@2q")
ROOM: Final = socket.CMSG_SPACE(TIME.size)


@dataclass(slots=True, eq=False)
class Connection:
    """Of one client, who waits for each answer before it asks again."""

    socket: socket.socket
    open: bool = True


@dataclass(slots=True, eq=False)
class Request:
    """What was asked for, and when."""

    connection: Connection
    word: str
    key: str
    hold: int
    arrival_ns: int
    departure_ns: int = 0


class Service:
    """See above. Of the acquires every ``lost_every``-th is lost; 0: none."""

    def __init__(self, service_ns: int, occupied_ns: int, servers: int, lost_every: int) -> None:
        self._service_ns = service_ns
        self._occupied_ns = occupied_ns
        self._lost_every = lost_every
        self._acquires = 0
        self._free_ns = deque([0] * servers, maxlen=servers)  # when the servers are, in order
        self._serving: deque[Request] = deque()  # in the order of departure
        self._holder: dict[str, Request] = {}
        self._waiting: dict[str, deque[Request]] = {}
        self._connections: dict[int, Connection] = {}
        self.log = array("q")
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        self._poll = select.epoll()
        self._poll.register(self._listener, select.EPOLLIN)
        self._poll.register(sys.stdin, select.EPOLLIN)

    def run(self) -> None:
        """Serves until the standard input ends."""
        while True:
            left_ns = self._serving[0].departure_ns - monotonic_ns() if self._serving else None
            if left_ns is not None and left_ns <= 0:
                self._answer(self._serving.popleft())
                continue
            if left_ns is None or left_ns > SPIN_NS:
                limit_s = None if left_ns is None else (left_ns - SPIN_NS) / 1e9
                select.select([self._poll], [], [], limit_s)
            asked = []
            for file, _ in self._poll.poll(0):
                if file == sys.stdin.fileno():
                    return
                if file == self._listener.fileno():
                    self._accept()
                elif (request := self._read(self._connections[file])) is not None:
                    asked.append(request)
            for request in sorted(asked, key=attrgetter("arrival_ns")):
                self._take(request) if request.word == "acquire" else self._give_back(request)

    def _accept(self) -> None:
        made, _ = self._listener.accept()
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        self._connections[made.fileno()] = Connection(made)
        self._poll.register(made, select.EPOLLIN)

    def _read(self, connection: Connection) -> Request | None:
        try:
            said, beside, _, _ = connection.socket.recvmsg(256, ROOM)
        except ConnectionError:
            said, beside = b"", []
        if not said:
            self._forget(connection)
            return None
        word, key, hold = said.decode("ascii").split()
        arrival_ns = monotonic_ns()
        for _, _, stamp in beside:  # none where it came before the connection was accepted
            seconds, ns = TIME.unpack(stamp)
            arrival_ns += seconds * 1_000_000_000 + ns - time_ns()
        return Request(connection, word, key, int(hold), arrival_ns)

    def _forget(self, connection: Connection) -> None:
        connection.open = False
        del self._connections[connection.socket.fileno()]
        connection.socket.close()
        for key, request in list(self._holder.items()):
            if request.connection is connection:
                self._free(key, monotonic_ns())

    def _take(self, request: Request) -> None:
        self._acquires += 1
        if self._lost_every and self._acquires % self._lost_every == 0:
            self.log.extend((request.hold, request.arrival_ns, 0, 0))
        elif request.key in self._holder:
            self._waiting.setdefault(request.key, deque()).append(request)
        else:
            self._serve(request, request.arrival_ns)

    def _serve(self, request: Request, from_ns: int) -> None:
        self._holder[request.key] = request
        begin_ns = max(from_ns, self._free_ns[0])
        self._free_ns.append(begin_ns + self._occupied_ns)
        request.departure_ns = begin_ns + self._service_ns
        self._serving.append(request)

    def _give_back(self, request: Request) -> None:
        holder = self._holder.get(request.key)
        held = holder is not None and holder.hold == request.hold
        self._say(request.connection, b"released\n" if held else b"not-held\n")
        if held:
            self._free(request.key, request.arrival_ns)

    def _free(self, key: str, at_ns: int) -> None:
        del self._holder[key]
        waiting = self._waiting.get(key)
        while waiting:
            request = waiting.popleft()
            if request.connection.open:
                self._serve(request, at_ns)
                return
        self._waiting.pop(key, None)

    def _answer(self, request: Request) -> None:
        sent_ns = monotonic_ns()
        self._say(request.connection, b"granted\n")
        times = (request.arrival_ns, request.departure_ns, sent_ns)
        self.log.extend((request.hold, *times))

    @staticmethod
    def _say(connection: Connection, answer: bytes) -> None:
        with suppress(OSError):  # whoever is gone is not told
            connection.socket.send(answer)


def main() -> None:
    """The whole life of the process."""
    parser = argparse.ArgumentParser()
    for name in ("service_ns", "occupied_ns", "servers", "lost_every"):
        parser.add_argument(name, type=int)
    parser.add_argument("log", type=Path)
    asked = parser.parse_args()
    gc.disable()
    ctypes.CDLL(None).prctl(PR_SET_TIMERSLACK, 1, 0, 0, 0)
    service = Service(asked.service_ns, asked.occupied_ns, asked.servers, asked.lost_every)
    print(service.port, flush=True)
    service.run()
    asked.log.write_bytes(service.log.tobytes())


if __name__ == "__main__":
    main()
