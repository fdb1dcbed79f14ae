"""What crosses the links of real clusters: both ways or one, slowly, late, or never. A Redis is
behind the links of client groups that are looked at, etcd where nodes talk to each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from lockbench.clusters.base import ClusterError, ClusterPlan, Cut, Edge, Shape
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.nodes import RedisNodes
from lockbench.clusters.wire import Line, ProbeFailed
from tests.clusters.waiting import (
    PROBE_S,
    SURE_S,
    cut,
    frozen,
    leader_and_others,
    leader_of,
    serve,
)
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]

PING = b"*1\r\n$4\r\nPING\r\n"
SET_LATE = b"*3\r\n$3\r\nSET\r\n$4\r\nlate\r\n$1\r\n1\r\n"
REQUESTS, REPLIES = Edge(-1, 1), Edge(1, -1)
ENDED = (ProbeFailed, ConnectionError)


@pytest.fixture
def one(one_redis: PodCluster) -> Iterator[PodCluster]:
    """A Redis whose links are whole before and after the test."""
    ask(one_redis, 2, "DEL", "late")
    yield one_redis
    one_redis.heal()
    assert [pod.links.broken() for pod in one_redis._pods.values()] == [[]]
    assert ask(one_redis, 1, "PING") == "PONG"


@pytest.fixture
def line(one: PodCluster) -> Iterator[Line]:
    """A connection of the first client group that has been used."""
    with Line(one.address(1, 1), SURE_S) as found:
        resp.ask(found, "PING")
        yield found


def ask(cluster: PodCluster, group: int, *words: str) -> resp.Answer:
    return resp.ask_once(cluster.address(group, 1), SURE_S, *words)


def least_ms(asks: Callable[[], object]) -> float:
    """The quickest of ten: all that it costs by itself, whatever else the machine does."""
    times = []
    for _ in range(10):
        began = time.monotonic()
        asks()
        times.append(time.monotonic() - began)
    return 1000 * min(times)


def ping_ms(cluster: PodCluster) -> float:
    with Line(cluster.address(1, 1), SURE_S) as line:
        resp.ask(line, "PING")
        return least_ms(lambda: resp.ask(line, "PING"))


def test_one_client_group_is_cut_off_while_another_goes_on(one: PodCluster, line: Line) -> None:
    with cut(one, [REQUESTS]):
        with pytest.raises(TimeoutError):  # it connects, and no answer comes
            resp.ask_once(one.address(1, 1), PROBE_S, "PING")
        assert ask(one, 2, "PING") == "PONG"
        assert one.serves(1, SURE_S)
        line.send(SET_LATE)
    with pytest.raises(ENDED):
        resp.receive(line)
    assert ask(one, 1, "GET", "late") is None


def test_what_a_stall_holds_back_arrives_late(one: PodCluster) -> None:
    at = one.address(1, 1)
    with cut(one, [REQUESTS], "stall"), Line(at, SURE_S) as gone, Line(at, SURE_S) as stays:
        gone.send(SET_LATE)
        gone.close()
        stays.send(PING)
        time.sleep(0.3)  # whether something does not happen
        assert ask(one, 2, "GET", "late") is None
        one.heal()
        assert resp.receive(stays) == "PONG", "a connection outlives a stall"
        eventually(lambda: ask(one, 2, "GET", "late") == "1")


def test_a_refused_link_closes_at_once(one: PodCluster) -> None:
    with cut(one, [REQUESTS], "reject"):
        with pytest.raises(ENDED):  # and no TimeoutError
            ask(one, 1, "PING")
        assert ask(one, 2, "PING") == "PONG"


def test_a_stall_heals_although_the_receiver_is_gone(one: PodCluster) -> None:
    """What hangs Toxiproxy 2.12 when its toxics are removed: several chunks for a closed socket."""
    for _ in range(3):
        with ExitStack() as lines:
            held = [lines.enter_context(Line(one.address(1, 1), SURE_S)) for _ in range(4)]
            for line in held:
                resp.ask(line, "PING")
            with cut(one, [REQUESTS], "stall"):
                for _ in range(6):
                    for line in held:
                        line.send(PING * 3)
                    time.sleep(0.02)
                ask(one, 0, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
                time.sleep(0.05)
            assert ask(one, 1, "PING") == "PONG"


@pytest.mark.parametrize("how", ["drop", "stall"])
@pytest.mark.parametrize("edge", [REQUESTS, REPLIES])
def test_one_way_requests_or_replies_are_lost_or_late(
    one: PodCluster, line: Line, edge: Edge, how: Cut
) -> None:
    one.cut_one_way([edge], how)
    line.send(SET_LATE)
    if edge == REPLIES:
        eventually(lambda: ask(one, 2, "GET", "late") == "1")
    else:
        time.sleep(0.1)  # whether something does not happen
        assert ask(one, 2, "GET", "late") is None
    line._until = time.monotonic() + PROBE_S
    with pytest.raises(TimeoutError):
        resp.receive(line)
    one.heal()
    line._until = time.monotonic() + SURE_S
    if how == "stall":
        assert resp.receive(line) == "OK"
        assert resp.ask(line, "PING") == "PONG"
    else:
        with pytest.raises(ENDED):
            resp.receive(line)
        assert ask(one, 2, "GET", "late") == ("1" if edge == REPLIES else None)


def test_a_connection_that_was_open_during_a_short_drop_ends(one: PodCluster, line: Line) -> None:
    with cut(one, [REQUESTS]):
        pass
    with pytest.raises(ENDED):
        resp.receive(line)


def test_latency_is_added_per_direction_and_changed_in_place(one: PodCluster, line: Line) -> None:
    before = ping_ms(one)
    for latency_ms in (40, 5, 80):
        one.shape([REQUESTS], Shape(request_latency_us=1000 * latency_ms, reply_latency_us=20_000))
        began = time.monotonic()
        resp.ask(line, "PING")
        assert 1000 * (time.monotonic() - began) >= latency_ms + 20
    one.heal()
    assert ping_ms(one) < 20 + before
    assert resp.ask(line, "PING") == "PONG"


def test_what_is_on_its_way_does_not_overtake_when_the_latency_changes(
    one: PodCluster, line: Line
) -> None:
    count = 60
    for number in range(count):
        if number % 3 == 0:
            one.shape([REQUESTS], Shape(request_latency_us=1000 * ((number * 7) % 50)))
        line.send(f"ECHO {number}\r\n".encode())
    for number in range(count):
        answer = f"${len(str(number))}\r\n{number}\r\n".encode()
        assert line.exactly(len(answer)) == answer


def test_a_rate_limits_each_direction_and_its_changes_do_not_hurt(
    one: PodCluster, line: Line
) -> None:
    one.shape([REQUESTS], Shape(rate_kb_s=100))
    data = "x" * 40_000
    began = time.monotonic()
    resp.ask(line, "SET", "late", data)
    assert time.monotonic() - began >= 0.4
    for rate in range(10, 400, 5):  # live, while the reply is on its way
        if rate == 10:
            line.send(b"*2\r\n$3\r\nGET\r\n$4\r\nlate\r\n")
        one.shape([REQUESTS], Shape(rate_kb_s=rate))
    assert resp.receive(line) == data


def test_slices_arrive_in_pieces_and_whole(one: PodCluster, line: Line) -> None:
    ask(one, 2, "SET", "late", "x" * 100)
    one.shape([REQUESTS], Shape(slice_bytes=10, slice_delay_us=5_000))
    began = time.monotonic()
    assert resp.ask(line, "GET", "late") == "x" * 100
    assert time.monotonic() - began >= 10 * 0.005


def test_a_cut_keeps_the_shape_and_a_shape_keeps_the_cut(one: PodCluster, line: Line) -> None:
    with cut(one, [REQUESTS], "stall"):
        line.send(SET_LATE)
        for latency_ms in range(1, 20):
            one.shape([REQUESTS], Shape(request_latency_us=1000 * latency_ms))
        time.sleep(0.1)  # whether something does not happen
        assert ask(one, 2, "GET", "late") is None
    assert resp.receive(line) == "OK"


def test_a_reset_ends_what_is_open_and_serves_what_is_new(one: PodCluster, line: Line) -> None:
    with Line(one.address(2, 1), 5.0) as other:
        resp.ask(other, "PING")
        assert one.reset([REQUESTS]) >= 2, "on either side"
        assert ask(one, 1, "PING") == "PONG"
        with pytest.raises(ENDED):
            resp.receive(line)
        assert resp.ask(other, "PING") == "PONG"


def test_a_frozen_server_with_a_full_backlog_can_be_refused_and_healed(one: PodCluster) -> None:
    with ExitStack() as lines, frozen(one, 1):
        for _ in range(700):
            lines.enter_context(Line(one.address(1, 1), 5.0))
        for how in ("reject", "drop"):  # a call that hangs is given up after a while, and raises
            with cut(one, [REQUESTS], how):
                pass


def test_nothing_else_is_taken(one: PodCluster) -> None:
    with pytest.raises(ClusterError, match="a refusal has no direction"):
        one.cut_one_way([REPLIES], "reject")
    for what in (one.reset, lambda edges: one.shape(edges, Shape())):
        with pytest.raises(ClusterError, match="the harness' own link to node 1"):
            what([Edge(0, 1)])
        with pytest.raises(ClusterError, match="no link called client-9"):
            what([Edge(-9, 1)])
        with pytest.raises(ClusterError, match="no running node 7"):
            what([Edge(-1, 7)])


def test_a_network_is_the_base_that_is_healed_back_to(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    logs = str(tmp_path_factory.mktemp("region"))
    one = RedisNodes(ClusterPlan("redis", 1, 1, "test-region", 3.0, logs, {}, "region"))
    with one:
        assert ping_ms(one) >= 30
        one.shape([REQUESTS], Shape())
        assert ping_ms(one) < 30
        with cut(one, [REQUESTS], "stall"):
            pass
        assert ping_ms(one) >= 30
        assert one._pods[1].links.broken() == []
        assert one.serves(1, SURE_S)
        assert least_ms(lambda: one.serves(1, SURE_S)) < 30, "the harness looks past it"


def test_a_delay_of_a_tenth_of_a_millisecond_is_no_millisecond(one: PodCluster, line: Line) -> None:
    """What wakes a stream in whole milliseconds adds two to a round trip."""

    def least(shape: Shape) -> float:
        one.shape([REQUESTS], shape)
        return min(least_ms(lambda: resp.ask(line, "PING")) for _ in range(20))

    added_ms = least(Shape(request_latency_us=100, reply_latency_us=100)) - least(Shape())
    assert 0.15 < added_ms < 1


def test_jitter_delays_and_keeps_the_order(one: PodCluster) -> None:
    one.shape([REQUESTS], Shape(request_latency_us=5_000, jitter_us=20_000))
    with Line(one.address(1, 1), SURE_S) as line:
        times_ms = []
        for _ in range(20):
            began = time.monotonic()
            resp.ask(line, "PING")
            times_ms.append(1000 * (time.monotonic() - began))
        assert min(times_ms) >= 5
        assert max(times_ms) - min(times_ms) > 2, "nothing varies"
        # Many readings of the link, each with a delay of its own, come out in their order.
        words = [f"{number:06d}" for number in range(500)]
        for word in words:
            line.send(f"*2\r\n$4\r\nECHO\r\n$6\r\n{word}\r\n".encode())
        answer, said = "".join(f"$6\r\n{word}\r\n" for word in words).encode(), b""
        while len(said) < len(answer):
            said += line.some()
        assert said == answer


def test_a_leader_that_cannot_speak_is_replaced(three_etcd: PodCluster) -> None:
    old, others = leader_and_others(three_etcd)
    three_etcd.cut_one_way([Edge(old, other) for other in others], "drop")
    try:
        eventually(lambda: leader_of(three_etcd) in others)
        eventually(lambda: serve(three_etcd, others))
    finally:
        three_etcd.heal()
    eventually(lambda: serve(three_etcd))
    three_etcd.verify()
