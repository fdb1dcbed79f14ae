"""NATS: its protocol, who leads, and real servers that are cut off, frozen and killed."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from lockbench.clusters.base import ClusterPlan, Led, Wipeable
from lockbench.clusters.nats import bucket
from lockbench.clusters.nats.protocol import NoResponders, Session
from lockbench.clusters.nats.servers import NatsCluster, NatsServers, leader_in
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.wire import Address, ProbeFailed
from tests.clusters.conftest import Start
from tests.clusters.waiting import (
    PROBE_S,
    SURE_S,
    around,
    cut,
    frozen,
    leader_and_others,
    leader_of,
    serve,
)
from tests.eventually import eventually

LIMIT_S = 5.0
INFO = b'INFO {"server_id": "fake"}\r\n'


@contextmanager
def saying(*answers: bytes) -> Iterator[Address]:
    """A server that greets, answers a PING, and each message with the next of these, where REPLY is
    whom to answer; then it says no more."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, connection.makefile("rb") as lines:
                connection.sendall(INFO)
                left = list(answers)
                for line in lines:
                    if line == b"PING\r\n":
                        connection.sendall(b"+OK\r\nPONG\r\n")
                    if line.startswith((b"PUB", b"HPUB")):
                        connection.sendall(left.pop(0).replace(b"REPLY", line.split()[2]))
                        if not left:
                            connection.shutdown(socket.SHUT_WR)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield listener.getsockname()
        thread.join(LIMIT_S)


def test_an_answer_is_told_from_what_else_comes() -> None:
    late = b"MSG _INBOX.other.1 1 3\r\nold\r\n"
    headed = b"HMSG REPLY 1 32 34\r\nNATS/1.0 404 None\r\nA-B:  c:d\r\n\r\nhi\r\n"
    with saying(b"PING\r\n" + late + INFO + headed) as at, Session(at, LIMIT_S) as session:
        answer = session.request("a", b"x")
    assert answer == (404, {"A-B": "c:d"}, b"hi")


@pytest.mark.parametrize(
    ("said", "error"),
    [
        (b"HMSG REPLY 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n", NoResponders),
        (b"-ERR 'Authorization Violation'\r\n", ProbeFailed),
        (b"MSG REPLY 1 no\r\n", ValueError),
        (b"MSG REPLY 1 10\r\nshort", ProbeFailed),
        (b"", ProbeFailed),
    ],
)
def test_what_is_no_answer_is_an_error(said: bytes, error: type[Exception]) -> None:
    with saying(said) as at, Session(at, LIMIT_S) as session, pytest.raises(error):
        session.request("a", b"x")


def test_a_refusal_has_its_number() -> None:
    said = b'{"error": {"err_code": 10071, "description": "wrong last sequence: 9"}}'
    answer = b"MSG REPLY 1 %d\r\n%s\r\n" % (len(said), said)
    with saying(answer) as at, Session(at, LIMIT_S) as session:
        with pytest.raises(bucket.Refused, match="wrong last sequence: 9") as refused:
            bucket.put(session, "k", b"v", {bucket.EXPECTED: "0"})
        assert (refused.value.code, refused.value.last) == (bucket.WRONG_LAST, 9)


@pytest.mark.parametrize(
    ("headers", "value"),
    [
        ("", b"v"),
        ("KV-Operation: DEL\r\n", None),
        ("KV-Operation: PURGE\r\n", None),
        ("Nats-Marker-Reason: MaxAge\r\n", None),
    ],
)
def test_a_marker_has_no_value(headers: str, value: bytes | None) -> None:
    head = f"NATS/1.0\r\nNats-Sequence: 7\r\n{headers}\r\n"
    said = f"HMSG REPLY 1 {len(head)} {len(head) + 1}\r\n{head}v\r\n".encode()
    with saying(said) as at, Session(at, LIMIT_S) as session:
        assert bucket.look(session, "k") == (7, value)


class Named(NatsCluster):
    """Servers that are played: node → whom it calls leader."""

    def __init__(self, said: Mapping[int, str]) -> None:
        super().__init__(ClusterPlan("nats-cluster", 3, 1, "run", 3.0, "logs"))
        self._said = said

    def _leader_of(self, node: int) -> str:
        return self._said[node]


@pytest.mark.parametrize(
    ("said", "leader"),
    [
        (("nats-2",) * 3, 2),
        (("nats-2", "nats-2", ""), 2),
        (("nats-1", "nats-3", "nats-3"), 3),  # 1 was cut off
        (("nats-1", "nats-3", ""), None),
        (("", "", ""), None),
        (("nats-9",) * 3, None),
    ],
)
def test_a_leader_is_whom_a_majority_calls_so(said: tuple[str, ...], leader: int | None) -> None:
    cluster = Named(dict(enumerate(said, 1)))
    assert isinstance(cluster, Led)
    assert cluster.leader() == leader
    cluster.stop()


def test_the_leader_is_that_of_the_bucket() -> None:
    streams = [
        {"name": "other", "cluster": {"leader": "nats-1"}},
        {"name": bucket.STREAM, "cluster": {"leader": "nats-2"}},
    ]
    assert leader_in({"account_details": [{"name": "$G", "stream_detail": streams}]}) == "nats-2"
    assert leader_in({"account_details": []}) == ""


# --- real ones ---


def value_of(cluster: PodCluster, node: int, key: str) -> bytes | None:
    with Session(cluster.address(1, node), SURE_S) as session:
        entry = bucket.look(session, key)
    return entry.value if entry else None


def store(cluster: PodCluster, node: int, key: str, value: bytes) -> int:
    with Session(cluster.address(1, node), SURE_S) as session:
        return bucket.put(session, key, value, {})


@pytest.mark.docker
@pytest.mark.slow
def test_one_server_keeps_its_bucket_over_a_kill_and_not_over_a_wipe(start: Start) -> None:
    one = start("nats", 1)
    assert not isinstance(one, Led)
    assert isinstance(one, NatsServers)
    assert isinstance(one, Wipeable)
    revision = store(one, 1, "kept", b"1")
    one.kill([1])
    assert not one.serves(1, PROBE_S)
    one.restart([1])
    eventually(lambda: serve(one))
    assert value_of(one, 1, "kept") == b"1"
    one.empty()
    assert value_of(one, 1, "kept") is None
    assert store(one, 1, "kept", b"2") > revision
    one.kill([1])
    one.wipe([1])
    one.restart([1])
    eventually(lambda: serve(one))  # which makes another bucket
    assert value_of(one, 1, "kept") is None
    assert store(one, 1, "kept", b"3") <= revision
    one.verify()


@pytest.mark.docker
@pytest.mark.slow
def test_a_key_ends_with_its_time_to_live_and_leaves_a_marker(start: Start) -> None:
    one = start("nats", 1)
    with Session(one.address(1, 1), 2 * SURE_S) as session:
        revision = bucket.put(session, "ends", b"1", {bucket.EXPECTED: "0", bucket.TTL: "1s"})
        assert bucket.look(session, "ends") == (revision, b"1")

        def ended() -> bool:
            entry = bucket.look(session, "ends")
            return entry is not None and entry.value is None and entry.revision > revision

        eventually(ended)


@pytest.mark.docker
@pytest.mark.slow
def test_a_leader_that_is_cut_off_or_killed_is_replaced(start: Start) -> None:
    three = start("nats-cluster", 3)
    old, others = leader_and_others(three)
    with cut(three, around(three, old)):
        assert not three.serves(old, PROBE_S)
        eventually(lambda: leader_of(three) in others)
        eventually(lambda: serve(three, others))
        assert not three.serves(old, PROBE_S)
    eventually(lambda: serve(three))

    store(three, others[0], "kept", b"1")
    old, others = leader_and_others(three)
    with frozen(three, old):
        eventually(lambda: leader_of(three) in others)
        eventually(lambda: serve(three, others))
    eventually(lambda: serve(three))
    three.kill(three.nodes)
    assert not any(three.serves(node, PROBE_S) for node in three.nodes)
    three.restart(three.nodes)
    eventually(lambda: serve(three))
    eventually(lambda: all(value_of(three, node, "kept") == b"1" for node in three.nodes))
    three.empty()
    eventually(lambda: all(value_of(three, node, "kept") is None for node in three.nodes))
    three.verify()
