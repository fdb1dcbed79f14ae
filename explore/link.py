"""The victim's links to its servers: they count what passes, and strike where they are told to.

What passes are *events*: a connection that opens, a request, a reply, a connection that the client
ends. A request or a reply is a burst: all bytes that pass one way on one connection until something
passes the other way, however they were cut into segments. What a server says when it said nothing
for ``PAUSE_S`` is another reply: nobody asked for it.
Events are numbered from 1, for each kind over all links of the client, in the order in which their
first byte came here. What comes on a connection on which something was lost is none.

Guarantees: an order strikes the event that it means and nothing else, and ``struck``
says when, in the machine's monotonic clock; what was never struck is not there. What is behind a
burst that is kept back, on its connection and in its direction, waits with it; everything else
passes. What is struck is the whole burst: it has come when nothing came for ``GATHERS_S``.

Does not guarantee that a burst is one message: what is sent without waiting for an answer is
counted with what is beside it, and so is what a server says unasked within ``PAUSE_S`` of an
answer.
"""

from __future__ import annotations

import contextlib
import itertools
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Final, Literal, Self

from lockbench.locks.base import Address

Kind = Literal["connect", "request", "reply", "end"]
# lost: it does not arrive, and nor does anything after it on its connection, either way, until the
#   link is healed, which ends the connection. Other connections work.
# reset-before: both sides are sent RST, and it does not arrive. reset-after: it arrives, then they
#   are. Of a request that would be the same as a reply that is reset before it arrives.
# late: it arrives so many seconds later. orphaned: the client is sent RST at once, and its request
#   arrives so many seconds later, beside whatever the client sends on a new connection. The server
#   keeps its side until the link is healed.
# held: it waits until it is let go.
Strike = Literal["lost", "reset-before", "reset-after", "late", "orphaned", "held"]
FITTING: Final[dict[Kind, tuple[Strike, ...]]] = {
    "connect": ("lost", "reset-before", "late", "held"),
    "request": ("lost", "reset-before", "late", "orphaned", "held"),
    "reply": ("lost", "reset-before", "reset-after", "late", "held"),
    "end": ("lost", "late"),
}
ANYWHERE: Final = Address("127.0.0.1", 0)
READ_BYTES: Final = 1 << 16
DIAL_S: Final = 5.0
# A client may send the head and the body of one request apart.
GATHERS_S: Final = 0.02
GATHERS_MAX_S: Final = 0.2
PAUSE_S: Final = 0.1
# Off at once, and what was not sent is thrown away: the other side is sent RST.
NO_LINGER: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Event:
    """``time_ns``: when its first byte came here. ``size``: its bytes so far; 0 of what has none.
    ``begins``: those of them that came at once, at first. Connections of a link are numbered from
    1; ``node`` is the number of the link."""

    kind: Kind
    number: int
    node: int
    connection: int
    time_ns: int
    size: int = 0
    begins: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to happen to an event. ``seconds``: how late it is. ``node``: where it has to be;
    then the first one there with this number or a higher one is meant. ``stills``: from then on no
    reply reaches the client, on any link, until replies are let go. Raises ValueError for a strike
    that does not fit."""

    kind: Kind
    number: int
    strike: Strike
    seconds: float = 0.0
    node: int | None = None
    stills: bool = False

    def __post_init__(self) -> None:
        if self.strike not in FITTING[self.kind]:
            raise ValueError(f"no {self.kind} can be {self.strike}")


@dataclass
class Held:
    """An order that holds: ``reached`` when the event is there; ``let_go`` lets it pass."""

    reached: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)
    connection: _Connection | None = None

    def drop(self) -> None:
        """Ends its connection: it never arrives. Only what was reached."""
        assert self.connection is not None
        self.connection.hang_up()
        self.let_go.set()


class Traffic:
    """What passes between one client and its servers, over all its links, and what is to happen to
    it. ``on_strike`` is called with an order and the event that it strikes, before anything is done
    to that; it must not wait."""

    def __init__(
        self,
        orders: Iterable[Order] = (),
        on_strike: Callable[[Order, Event], None] = lambda *_: None,
        *,
        armed: bool = True,
        pause_s: float = PAUSE_S,
    ) -> None:
        """``armed``: orders are for the events from now on, not from ``arm`` on. ``pause_s``: what
        a server says after such a silence is another event."""
        self._pause_ns = int(1e9 * pause_s)
        self._on_strike = on_strike
        self._armed = armed
        self._mutex = threading.Lock()
        self._events: list[Event] = []
        self._counts: dict[Kind, int] = dict.fromkeys(FITTING, 0)
        self._orders = list(orders)
        self._places: dict[Order, int] = {}  # among the events
        self._met: dict[Order, Event] = {}
        self._struck: dict[Order, int] = {}
        self._held = {one: Held() for one in self._orders if one.strike == "held"}
        self.requests_go = threading.Event()
        """Set while requests pass that are not struck themselves."""
        self.requests_go.set()
        self.replies_go = threading.Event()
        """Set while replies pass that are not struck themselves."""
        self.replies_go.set()

    @property
    def events(self) -> list[Event]:
        """What has come so far, in its order."""
        with self._mutex:
            return list(self._events)

    @property
    def struck(self) -> dict[Order, int]:
        """Order → when its event came."""
        with self._mutex:
            return dict(self._struck)

    def met(self, order: Order) -> Event:
        """The event that an order is for, as it was when it was struck: what the client sends while
        it is held is none of it."""
        with self._mutex:
            return self._met[order]

    def arm(self) -> None:
        """Events are numbered from 1 again, and orders are for those that come from now on."""
        with self._mutex:
            self._counts = dict.fromkeys(FITTING, 0)
            self._armed = True

    def disarm(self) -> None:
        """Orders that have not met their event by now are for none."""
        with self._mutex:
            self._armed = False

    def held(self, order: Order) -> Held:
        """The hold of an order that holds."""
        return self._held[order]

    def stop_requests(self) -> None:
        """Those that come from now on wait."""
        self.requests_go.clear()

    def let_requests_go(self) -> None:
        """Those that wait, and all after them."""
        self.requests_go.set()

    def let_replies_go(self) -> None:
        """Those that wait, and all after them."""
        self.replies_go.set()

    def let_go(self) -> None:
        """Everything that is held."""
        self.let_requests_go()
        self.let_replies_go()
        for held in self._held.values():
            held.let_go.set()

    def note(self, node: int, connection: _Connection, kind: Kind, size: int) -> Order | None:
        """Writes down what came; the order for it where it is new. For links, which then call
        ``strike``."""
        now_ns = time.monotonic_ns()
        with self._mutex:
            same = connection.kind == kind
            if kind == "reply":
                same = same and now_ns - connection.latest_ns < self._pause_ns
            connection.latest_ns = now_ns
            if kind in {"request", "reply"} and same:
                known = self._events[connection.newest]
                self._events[connection.newest] = replace(known, size=known.size + size)
                return None
            self._counts[kind] += 1
            connection.kind, connection.newest = kind, len(self._events)
            event = Event(
                kind, self._counts[kind], node, connection.number, now_ns, size, begins=size
            )
            self._events.append(event)
            order = self._for(event)
            if order is None:
                return None
            self._places[order] = connection.newest
            self._met[order] = event
            if order in self._held:
                self._held[order].connection = connection
            if order.stills:
                self.replies_go.clear()
        return order

    def _for(self, event: Event) -> Order | None:
        """The order that is meant for it."""
        for one in self._orders if self._armed else ():
            if one.kind != event.kind or one in self._places:
                continue
            if one.node is None and one.number == event.number:
                return one
            if one.node == event.node and one.number <= event.number:
                return one
        return None

    def note_more(self, order: Order, size: int) -> None:
        """More came of the event that is to be struck. For links."""
        with self._mutex:
            known = self._events[self._places[order]]
            self._events[self._places[order]] = replace(known, size=known.size + size)
            self._met[order] = replace(self._met[order], size=self._met[order].size + size)

    def strike(self, order: Order) -> None:
        """All has come of the event that is to be struck, or its first byte, where that stills the
        client. For links."""
        with self._mutex:
            event = self._events[self._places[order]]
            self._struck[order] = event.time_ns
        self._on_strike(order, event)


def in_turn(servers: Iterable[Address]) -> SimpleQueue[tuple[int, Address]]:
    """``as_met`` of the links of a client."""
    queue: SimpleQueue[tuple[int, Address]] = SimpleQueue()
    for numbered in enumerate(servers, 1):
        queue.put(numbered)
    return queue


class Link:
    """Listens at ``at`` until it is closed. Clients that tell nodes by their ports need the port of
    the server, on a loopback address of its own."""

    def __init__(
        self,
        server: Address,
        at: Address = ANYWHERE,
        traffic: Traffic | None = None,
        *,
        node: int = 1,
        as_met: SimpleQueue[tuple[int, Address]] | None = None,
    ) -> None:
        """``as_met``: what several links share; each takes its number and its server from it when a
        client connects to it for the first time."""
        self._server = server
        self.traffic = traffic or Traffic()
        self._node = node
        self._as_met = as_met
        self._closed = False
        self._connections: list[_Connection] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(at)
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    @property
    def address(self) -> Address:
        """Where clients connect to."""
        return Address(*self._listener.getsockname())

    def heal(self) -> None:
        """Ends the connections on which something was lost or orphaned."""
        for one in self._connections:
            if one.deaf:
                one.hang_up()

    def close(self) -> None:
        """Ends every connection at once, and what is kept back with it."""
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for one in self._connections:
            one.hang_up()
        # What is held does not arrive any more.
        self.traffic.let_go()
        for thread in self._threads:
            thread.join()

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
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._as_met is not None:
                self._node, self._server = self._as_met.get_nowait()
                self._as_met = None
            connection = _Connection(number, client)
            self._connections.append(connection)
            # Others connect meanwhile.
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: _Connection) -> None:
        """Passes on what comes on a connection until it has ended on both sides."""
        try:
            if self._opened(connection):
                back = threading.Thread(target=self._pump, args=(connection, "reply"), daemon=True)
                back.start()
                self._pump(connection, "request")
                back.join()
            elif connection.deaf:
                connection.over.wait()
        finally:
            connection.close()

    def _opened(self, connection: _Connection) -> bool:
        """Whether it leads to the server."""
        order = self.traffic.note(self._node, connection, "connect", 0)
        if order is not None and not self._strike(connection, order):
            return False
        try:
            connection.server = socket.create_connection(self._server, timeout=DIAL_S)
        except OSError:
            return False
        connection.server.settimeout(None)
        connection.server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return not connection.over.is_set()

    def _pump(self, connection: _Connection, kind: Literal["request", "reply"]) -> None:
        """Passes on what comes one way until its source has no more to say."""
        source, sink = connection.ends(kind)
        try:
            while data := source.recv(READ_BYTES):
                if not connection.deaf and not self._pass_on(connection, kind, data):
                    return
            if kind == "request" and not connection.over.is_set():
                order = self.traffic.note(self._node, connection, "end", 0)
                if order is not None and not self._strike(connection, order):
                    return
            if connection.deaf:
                connection.over.wait()
            if not connection.over.is_set():
                sink.shutdown(socket.SHUT_WR)
        except OSError:
            if connection.deaf:
                connection.over.wait()
            connection.hang_up()

    def _pass_on(
        self, connection: _Connection, kind: Literal["request", "reply"], data: bytes
    ) -> bool:
        """What came, or does what was ordered. Returns whether more is to be passed on."""
        source, sink = connection.ends(kind)
        order = self.traffic.note(self._node, connection, kind, len(data))
        if order is None:
            go = self.traffic.requests_go if kind == "request" else self.traffic.replies_go
            go.wait()
            sink.sendall(data)
            return True
        if order.stills:  # at once: who waits for the rest of it may have gone on
            self.traffic.strike(order)
        data += self._rest(source, order)
        if not order.stills:
            self.traffic.strike(order)
        if not self._carry_out(connection, order):
            return False
        if order.strike == "orphaned":
            sink.sendall(data)
            connection.over.wait()
            return False
        if order.strike == "reset-after":
            # The end comes with it: what is reset may be thrown away unread.
            sink.sendall(data, socket.MSG_MORE)
            sink.shutdown(socket.SHUT_WR)
            connection.hang_up(gently=sink)
            return False
        if not connection.deaf:
            sink.sendall(data)
        return True

    def _rest(self, source: socket.socket, order: Order) -> bytes:
        """What else comes of the burst that is struck."""
        found = b""
        poller = select.poll()
        poller.register(source, select.POLLIN)
        end = time.monotonic() + GATHERS_MAX_S
        while time.monotonic() < end and poller.poll(1000 * GATHERS_S):
            more = source.recv(READ_BYTES)
            if not more:  # its end is found again by who reads on
                break
            self.traffic.note_more(order, len(more))
            found += more
        return found

    def _strike(self, connection: _Connection, order: Order) -> bool:
        """Does what was ordered. Returns whether the connection goes on."""
        self.traffic.strike(order)
        return self._carry_out(connection, order)

    def _carry_out(self, connection: _Connection, order: Order) -> bool:
        """When the strike was told. Returns whether the connection goes on."""
        match order.strike:
            case "lost":
                connection.deaf = True
            case "reset-before":
                connection.hang_up()
            case "late":
                connection.over.wait(order.seconds)
            case "orphaned":
                connection.deaf = True
                connection.let_client_go()
                connection.over.wait(order.seconds)
            case "held":
                held = self.traffic.held(order)
                held.reached.set()
                held.let_go.wait()
        return not connection.over.is_set()


class _Connection:
    """``deaf``: nothing passes any more. ``over``: set when it ends. ``newest``: the place of its
    last event among all; ``latest_ns``: when it, or more of it, came."""

    def __init__(self, number: int, client: socket.socket) -> None:
        self.number = number
        self.client = client
        self.server: socket.socket | None = None
        self.kind: Kind | None = None
        self.newest = -1
        self.latest_ns = 0
        self.deaf = False
        self.over = threading.Event()

    def ends(self, kind: Literal["request", "reply"]) -> tuple[socket.socket, socket.socket]:
        """Where it comes from, and where it goes to."""
        assert self.server is not None
        return (self.client, self.server) if kind == "request" else (self.server, self.client)

    def hang_up(self, gently: socket.socket | None = None) -> None:
        """Both sides, or the other one, are sent RST when the threads have ended, which this
        wakes."""
        self.over.set()
        for one in (self.client, self.server):
            if one is not None:
                with contextlib.suppress(OSError):
                    if one is not gently:
                        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
                    one.shutdown(socket.SHUT_RD)

    def let_client_go(self) -> None:
        """The client is sent RST at once; nobody else reads from it."""
        self.client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
        self.client.close()

    def close(self) -> None:
        """Frees both sockets."""
        for one in (self.client, self.server):
            if one is not None:
                one.close()
