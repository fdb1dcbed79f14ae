"""The delaying proxy by itself: what it counts, what it keeps back and what it cuts."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from lockbench.locks.base import Address
from tests.eventually import eventually
from tests.locks.delays import DelayingProxy, Direction
from tests.locks.fakes import FakeRedis, closed_port

DELAY_S = 0.2
LIMIT_S = 10.0
PING, PONG = b"*1\r\n$4\r\nPING\r\n", b"+PONG\r\n"


@pytest.fixture
def proxy(server: FakeRedis) -> Iterator[DelayingProxy]:
    with DelayingProxy(server.address) as made:
        yield made


class Client:
    """A socket that sends and waits."""

    def __init__(self, at: Address) -> None:
        self.socket = socket.create_connection(at, timeout=LIMIT_S)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ping(self, count: int = 1) -> None:
        self.socket.sendall(count * PING)
        self.hears(count * PONG)

    def hears(self, expected: bytes) -> None:
        heard = b""
        while len(heard) < len(expected):
            data = self.socket.recv(4096)
            assert data, "the connection has ended"
            heard += data
        assert heard == expected


def test_bursts_are_counted_over_all_connections(proxy: DelayingProxy) -> None:
    begun_ns = time.monotonic_ns()
    with Client(proxy.address) as one, Client(proxy.address) as other:
        one.ping()
        other.ping()
        one.ping(3)
    assert (proxy.count("request"), proxy.count("reply")) == (3, 3)
    requests = proxy.bursts("request")
    assert [(b.number, b.connection, b.size) for b in requests] == [
        (1, 1, len(PING)),
        (2, 2, len(PING)),
        (3, 1, 3 * len(PING)),
    ]
    assert [b.direction for b in proxy.bursts()] == ["request", "reply"] * 3
    times = [begun_ns, *(b.time_ns for b in proxy.bursts()), time.monotonic_ns()]
    assert times == sorted(times)


def test_a_request_in_pieces_is_one_burst(proxy: DelayingProxy) -> None:
    with Client(proxy.address) as client:
        client.socket.sendall(PING[:5])
        eventually(lambda: proxy.count("request"))
        client.socket.sendall(PING[5:])
        client.hears(PONG)
    assert [b.size for b in proxy.bursts("request")] == [len(PING)]


@pytest.mark.parametrize("direction", ["request", "reply"])
def test_only_the_chosen_burst_is_late(proxy: DelayingProxy, direction: Direction) -> None:
    proxy.delay(direction, 2, DELAY_S)
    with Client(proxy.address) as client:
        client.ping()
        client.ping()
        request, reply, heard_ns = (
            proxy.bursts("request")[1].time_ns,
            proxy.bursts("reply")[1].time_ns,
            time.monotonic_ns(),
        )
        late_ns = reply - request if direction == "request" else heard_ns - reply
        assert late_ns >= DELAY_S * 1e9
        client.ping()
    assert proxy.count("reply") == 3


def test_what_is_delayed_delays_no_other_connection(proxy: DelayingProxy) -> None:
    proxy.delay("request", 1, LIMIT_S)
    with Client(proxy.address) as late, Client(proxy.address) as other:
        late.socket.sendall(PING)
        eventually(lambda: proxy.count("request"))
        other.ping()
        assert proxy.count("reply") == 1


@pytest.mark.parametrize("direction", ["request", "reply"])
def test_a_dropped_burst_ends_its_connection(
    server: FakeRedis, proxy: DelayingProxy, direction: Direction
) -> None:
    proxy.drop(direction, 2)
    with Client(proxy.address) as client, Client(proxy.address) as other:
        client.ping()
        client.socket.sendall(PING)
        assert client.socket.recv(4096) == b""
        assert sum(entry == (b"PING",) for entry in server.log) == 1 + (direction == "reply")
        other.ping()


def test_the_last_burst_is_passed_on_and_ends_its_connection(
    server: FakeRedis, proxy: DelayingProxy
) -> None:
    proxy.last("reply", 2)
    with Client(proxy.address) as client, Client(proxy.address) as other:
        client.ping()
        client.ping()
        assert client.socket.recv(4096) == b""
        other.ping()


def test_the_end_of_a_server_ends_the_connection(server: FakeRedis, proxy: DelayingProxy) -> None:
    with Client(proxy.address) as client:
        client.ping()
        server.drop_connections()
        assert client.socket.recv(4096) == b""


def test_a_server_that_is_away_is_a_connection_that_ends() -> None:
    with DelayingProxy(closed_port()) as proxy, Client(proxy.address) as client:
        assert client.socket.recv(4096) == b""


def test_closing_waits_for_no_delay(server: FakeRedis) -> None:
    before = threading.active_count()
    proxy = DelayingProxy(server.address)
    proxy.delay("reply", 1, 60.0)
    with Client(proxy.address) as client:
        client.socket.sendall(PING)
        eventually(lambda: proxy.count("reply"))
        proxy.close()
        assert client.socket.recv(4096) in {b"", PONG}
    server.stop()
    eventually(lambda: threading.active_count() <= before)


def test_it_can_stand_at_the_port_of_its_server(server: FakeRedis) -> None:
    at = Address("127.0.0.99", server.address.port)
    with DelayingProxy(server.address, at) as proxy, Client(at) as client:
        assert proxy.address == at
        client.ping()
    assert proxy.count("request") == 1
