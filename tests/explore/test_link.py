"""The explorer's link by itself: what it counts, and that it strikes what it was told to alone."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from lockbench.explore.link import ANYWHERE, FITTING, Kind, Link, Order, Strike, Traffic, in_turn
from lockbench.locks.base import Address
from tests.eventually import eventually
from tests.locks.fakes import FakeRedis, closed_port
from tests.locks.test_delays import LIMIT_S, PING, PONG, Client

LATE_S = 0.3


@pytest.fixture
def server() -> Iterator[FakeRedis]:
    fake = FakeRedis()
    yield fake
    fake.stop()


@pytest.fixture
def link(server: FakeRedis) -> Iterator[Callable[..., Link]]:
    made: list[Link] = []

    def start(*orders: Order, at: Address = ANYWHERE) -> Link:
        made.append(Link(server.address, at, Traffic(orders)))
        return made[-1]

    yield start
    for one in made:
        one.close()


def pings(server: FakeRedis) -> int:
    return sum(entry == (b"PING",) for entry in server.log)


def is_silent(client: Client) -> bool:
    client.socket.settimeout(LATE_S)
    try:
        return not isinstance(client.socket.recv(4096), bytes)
    except TimeoutError:
        return True
    finally:
        client.socket.settimeout(LIMIT_S)


def test_what_came_before_it_was_armed_is_not_struck_and_not_counted(server: FakeRedis) -> None:
    struck: list[Order] = []
    second = Order("request", 2, "late", LATE_S)
    traffic = Traffic([second], lambda order, _: struck.append(order), armed=False)
    with Link(server.address, traffic=traffic) as made, Client(made.address) as one:
        for _ in range(3):
            one.ping()
        assert struck == []
        traffic.arm()
        one.ping()
        assert struck == []
        one.ping()
        assert struck == [second]
    assert [e.number for e in traffic.events if e.kind == "request"] == [1, 2, 3, 1, 2]


def test_what_comes_after_it_was_disarmed_is_not_struck(server: FakeRedis) -> None:
    struck: list[Order] = []
    orders = [Order("request", 1, "late", LATE_S), Order("request", 3, "late", LATE_S)]
    traffic = Traffic(orders, lambda order, _: struck.append(order))
    with Link(server.address, traffic=traffic) as made, Client(made.address) as one:
        for _ in range(2):
            one.ping()
        traffic.disarm()
        one.ping()
        one.ping()
    assert struck == orders[:1]
    assert traffic.struck.keys() == {orders[0]}


def test_events_are_counted_over_all_connections(link: Callable[..., Link]) -> None:
    begun_ns = time.monotonic_ns()
    made = link()
    with Client(made.address) as one:
        one.ping()
        with Client(made.address) as other:
            other.ping()
            one.ping(3)
    eventually(lambda: sum(e.kind == "end" for e in made.traffic.events) == 2)
    seen = [(e.kind, e.number, e.connection, e.size) for e in made.traffic.events]
    assert seen[:7] == [
        ("connect", 1, 1, 0),
        ("request", 1, 1, len(PING)),
        ("reply", 1, 1, len(PONG)),
        ("connect", 2, 2, 0),
        ("request", 2, 2, len(PING)),
        ("reply", 2, 2, len(PONG)),
        ("request", 3, 1, 3 * len(PING)),
    ]
    # The server answers thrice. Where it stands still in between, it is more than one event.
    replies = [(connection, size) for kind, _, connection, size in seen[7:] if kind == "reply"]
    assert {connection for connection, _ in replies} == {1}
    assert sum(size for _, size in replies) == 3 * len(PONG)
    ends = {(kind, number) for kind, number, *_ in seen[7:] if kind != "reply"}
    assert ends == {("end", 1), ("end", 2)}
    times = [begun_ns, *(e.time_ns for e in made.traffic.events), time.monotonic_ns()]
    assert times == sorted(times)
    assert made.traffic.struck == {}


def test_events_are_counted_over_all_links_of_a_client(server: FakeRedis) -> None:
    second = Order("request", 2, "reset-before")
    struck: list[tuple[Order, int]] = []
    traffic = Traffic([second], lambda order, event: struck.append((order, event.node)))
    with (
        Link(server.address, traffic=traffic, node=1) as one,
        Link(server.address, traffic=traffic, node=2) as two,
        Client(one.address) as first,
        Client(two.address) as other,
    ):
        first.ping()
        with pytest.raises(ConnectionError):
            other.ping()
        first.ping()
    requests = [(e.number, e.node) for e in traffic.events if e.kind == "request"]
    assert requests == [(1, 1), (2, 2), (3, 1)]
    assert struck == [(second, 2)]


def test_links_are_numbered_as_a_client_connects(server: FakeRedis) -> None:
    traffic = Traffic()
    with FakeRedis() as second:
        as_met = in_turn([server.address, second.address])
        with (
            Link(second.address, traffic=traffic, node=1, as_met=as_met) as one,
            Link(server.address, traffic=traffic, node=2, as_met=as_met) as two,
            Client(two.address) as first,
        ):
            first.ping()
            with Client(one.address) as other, Client(two.address) as third:
                other.ping()
                third.ping()
    requests = [e.node for e in traffic.events if e.kind == "request"]
    assert requests == [1, 2, 1]
    assert (pings(server), pings(second)) == (2, 1)


def test_an_order_for_a_node_strikes_the_first_there_from_its_number_on(
    server: FakeRedis,
) -> None:
    order = Order("request", 2, "held", node=2)
    struck: list[tuple[int, int]] = []
    traffic = Traffic([order], lambda _, event: struck.append((event.number, event.node)))
    with (
        Link(server.address, traffic=traffic, node=1) as one,
        Link(server.address, traffic=traffic, node=2) as two,
        Client(one.address) as first,
        Client(two.address) as other,
    ):
        other.ping()  # the first of all
        first.ping()  # the second, elsewhere
        other.socket.sendall(PING)
        assert traffic.held(order).reached.wait(LIMIT_S)
        traffic.let_go()
        other.hears(PONG)
        other.ping()  # once is enough
    assert struck == [(3, 2)]


def test_a_request_in_pieces_is_one_event(link: Callable[..., Link]) -> None:
    made = link()
    with Client(made.address) as client:
        client.socket.sendall(PING[:5])
        eventually(lambda: len(made.traffic.events) == 2)
        client.socket.sendall(PING[5:])
        client.hears(PONG)
    sizes = [(e.begins, e.size) for e in made.traffic.events if e.kind == "request"]
    assert sizes == [(5, len(PING))]


@pytest.mark.parametrize(("pause_s", "replies"), [(LATE_S / 10, 2), (60.0, 1)])
def test_what_a_server_says_unasked_is_another_reply(pause_s: float, replies: int) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    traffic = Traffic(pause_s=pause_s)
    with listener, Link(Address(*listener.getsockname()), traffic=traffic) as made:
        client = Client(made.address)
        server, _ = listener.accept()
        with client, server:
            client.socket.sendall(PING)
            assert server.recv(len(PING)) == PING
            server.sendall(PONG)
            client.hears(PONG)
            time.sleep(LATE_S)
            server.sendall(PONG)
            client.hears(PONG)
    assert sum(event.kind == "reply" for event in traffic.events) == replies


@pytest.mark.parametrize("strike", ["orphaned", "held", "late"])
def test_a_request_in_two_pieces_is_struck_as_one(
    server: FakeRedis, link: Callable[..., Link], strike: Strike
) -> None:
    """As HTTP clients send head and body."""
    order = Order("request", 1, strike, LATE_S)
    made = link(order)
    with suppress(ConnectionResetError), Client(made.address) as client:
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with made.traffic._mutex:  # nothing is noted before both are there
            client.socket.sendall(PING[:5])
            client.socket.sendall(PING[5:])
        if strike == "held":
            assert made.traffic.held(order).reached.wait(LIMIT_S)
            made.traffic.held(order).let_go.set()
        eventually(lambda: pings(server) == 1)
    assert [e.size for e in made.traffic.events if e.kind == "request"] == [len(PING)]


def test_what_comes_while_a_message_is_held_is_none_of_it(
    server: FakeRedis, link: Callable[..., Link]
) -> None:
    """As a heartbeat beside a request that is late."""
    order = Order("request", 1, "held")
    made = link(order)
    with Client(made.address) as client:
        client.socket.sendall(PING)
        assert made.traffic.held(order).reached.wait(LIMIT_S)
        client.socket.sendall(PING)
        made.traffic.held(order).let_go.set()
        eventually(lambda: pings(server) == 2)
    assert made.traffic.met(order).size == len(PING)


def test_no_reply_reaches_who_is_stilled(server: FakeRedis) -> None:
    """A client of several servers would go on with what the others answer."""
    order = Order("reply", 1, "held", stills=True)
    traffic = Traffic([order])
    with (
        Link(server.address, traffic=traffic, node=1) as one,
        Link(server.address, traffic=traffic, node=2) as two,
        Client(one.address) as first,
        Client(two.address) as other,
    ):
        first.socket.sendall(PING)
        assert traffic.held(order).reached.wait(LIMIT_S)
        other.socket.sendall(PING)
        eventually(lambda: pings(server) == 2)
        assert is_silent(other)
        traffic.held(order).let_go.set()
        first.hears(PONG)
        traffic.let_replies_go()
        other.hears(PONG)


def test_requests_wait_until_they_may_go_and_who_is_struck_passes(
    server: FakeRedis, link: Callable[..., Link]
) -> None:
    order = Order("request", 1, "held")
    made = link(order)
    with Client(made.address) as client, Client(made.address) as other:
        client.socket.sendall(PING)
        assert made.traffic.held(order).reached.wait(LIMIT_S)
        made.traffic.stop_requests()
        made.traffic.held(order).let_go.set()
        client.hears(PONG)
        other.socket.sendall(PING)
        assert is_silent(other)
        assert pings(server) == 1
        made.traffic.let_requests_go()
        other.hears(PONG)


def test_what_comes_where_something_was_lost_is_no_event(link: Callable[..., Link]) -> None:
    order = Order("request", 1, "lost")
    made = link(order)
    with Client(made.address) as client:
        client.socket.sendall(PING)
        eventually(lambda: order in made.traffic.struck)
        client.socket.sendall(PING)
        assert is_silent(client)
    assert [e.number for e in made.traffic.events if e.kind == "request"] == [1]


def test_what_does_not_fit_is_refused() -> None:
    for kind, strike in (("connect", "orphaned"), ("reply", "orphaned"), ("end", "held")):
        with pytest.raises(ValueError, match="can be"):
            Order(kind, 1, strike)  # type: ignore[arg-type]


@pytest.mark.parametrize(("kind", "arrives"), [("request", 1), ("reply", 2)])
def test_what_is_lost_hangs_until_the_link_is_healed(
    server: FakeRedis, link: Callable[..., Link], kind: Kind, arrives: int
) -> None:
    order = Order(kind, 2, "lost")
    made = link(order)
    with Client(made.address) as client, Client(made.address) as other:
        client.ping()
        client.socket.sendall(PING)
        eventually(lambda: order in made.traffic.struck)
        client.socket.sendall(PING)
        assert is_silent(client)
        other.ping()
        assert pings(server) == arrives + 1
        made.heal()
        with pytest.raises(ConnectionResetError):
            client.socket.recv(4096)


@pytest.mark.parametrize(("kind", "arrives"), [("request", 1), ("reply", 2)])
def test_a_reset_comes_before_what_it_strikes(
    server: FakeRedis, link: Callable[..., Link], kind: Kind, arrives: int
) -> None:
    made = link(Order(kind, 2, "reset-before"))
    with Client(made.address) as client, Client(made.address) as other:
        client.ping()
        client.socket.sendall(PING)
        with pytest.raises(ConnectionResetError):
            client.socket.recv(4096)
        other.ping()
    assert pings(server) == arrives + 1


def test_a_reply_arrives_before_the_reset(server: FakeRedis, link: Callable[..., Link]) -> None:
    made = link(Order("reply", 2, "reset-after"))
    with Client(made.address) as client:
        client.ping()
        client.ping()
        assert client.socket.recv(4096) == b""
    assert pings(server) == 2


@pytest.mark.parametrize("kind", ["request", "reply"])
def test_only_the_chosen_event_is_late(link: Callable[..., Link], kind: Kind) -> None:
    order = Order(kind, 2, "late", LATE_S)
    made = link(order)
    with Client(made.address) as client, Client(made.address) as other:
        client.ping()
        client.socket.sendall(PING)
        eventually(lambda: order in made.traffic.struck)
        other.ping()
        client.hears(PONG)
        assert time.monotonic_ns() - made.traffic.struck[order] >= LATE_S * 1e9
        client.ping()


def test_an_orphan_arrives_beside_what_comes_on_a_new_connection(
    server: FakeRedis, link: Callable[..., Link]
) -> None:
    order = Order("request", 2, "orphaned", LATE_S)
    made = link(order)
    with Client(made.address) as client:
        client.ping()
        client.socket.sendall(PING)
        with pytest.raises(ConnectionResetError):
            client.socket.recv(4096)
    with Client(made.address) as again:
        again.ping()
        seen = pings(server)
        if time.monotonic_ns() < made.traffic.struck[order] + LATE_S * 1e9:
            assert seen == 2, "before the orphan"
        eventually(lambda: pings(server) == 3)
        again.ping()


@pytest.mark.parametrize("kind", ["connect", "request", "reply"])
def test_what_is_held_waits_until_it_is_let_go(link: Callable[..., Link], kind: Kind) -> None:
    order = Order(kind, 1, "held")
    made = link(order)
    with Client(made.address) as client:
        client.socket.sendall(PING)
        assert made.traffic.held(order).reached.wait(LIMIT_S)
        assert is_silent(client)
        made.traffic.held(order).let_go.set()
        client.hears(PONG)


def test_a_connection_that_is_lost_is_neither_refused_nor_served(
    server: FakeRedis, link: Callable[..., Link]
) -> None:
    made = link(Order("connect", 1, "lost"))
    with Client(made.address) as client, Client(made.address) as other:
        client.socket.sendall(PING)
        assert is_silent(client)
        other.ping()
        made.heal()
        with pytest.raises(ConnectionResetError):
            client.socket.recv(4096)
    assert pings(server) == 1


def test_a_server_does_not_hear_of_an_end_that_is_lost() -> None:
    order = Order("end", 1, "lost")
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, Link(Address(*listener.getsockname()), traffic=Traffic([order])) as made:
        client = socket.create_connection(made.address)
        heard, _ = listener.accept()
        with heard:
            client.close()
            eventually(lambda: order in made.traffic.struck)
            heard.settimeout(LATE_S)
            with pytest.raises(TimeoutError):
                heard.recv(1)
            heard.settimeout(LIMIT_S)
            made.heal()
            with pytest.raises(ConnectionResetError):
                heard.recv(1)


def test_the_end_of_a_server_ends_the_connection(
    server: FakeRedis, link: Callable[..., Link]
) -> None:
    made = link()
    with Client(made.address) as client:
        client.ping()
        server.drop_connections()
        assert client.socket.recv(4096) == b""


def test_a_server_that_is_away_is_a_connection_that_ends() -> None:
    with Link(closed_port()) as made, Client(made.address) as client:
        assert client.socket.recv(4096) == b""


@pytest.mark.parametrize(
    ("kind", "strike"),
    [(kind, strike) for kind, strikes in FITTING.items() for strike in strikes],
)
def test_closing_waits_for_nothing(
    server: FakeRedis, link: Callable[..., Link], kind: Kind, strike: Strike
) -> None:
    before = threading.active_count()
    order = Order(kind, 1, strike, 60.0)
    made = link(order)
    with suppress(ConnectionResetError), Client(made.address) as client:
        client.socket.sendall(PING)
        if kind == "end":
            client.hears(PONG)
            client.socket.shutdown(socket.SHUT_WR)
        eventually(lambda: order in made.traffic.struck)
        made.close()
    eventually(lambda: order in made.traffic.struck)
    made.close()
    server.stop()
    eventually(lambda: threading.active_count() <= before)


def test_it_can_stand_at_the_port_of_its_server(
    server: FakeRedis, link: Callable[..., Link]
) -> None:
    made = link(at=Address("127.0.0.99", server.address.port))
    assert made.address == Address("127.0.0.99", server.address.port)
    with Client(made.address) as client:
        client.ping()
