"""Consul: who leads, what a probe asks, and a real cluster whose leader is cut off and killed."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from pathlib import Path

import pytest

from lockbench.clusters.base import ClusterPlan, Led
from lockbench.clusters.consul.cluster import ConsulCluster
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.wire import Address, Http, ProbeFailed
from tests.clusters.conftest import Start
from tests.clusters.json_server import answering
from tests.clusters.waiting import PROBE_S, around, cut, leader_and_others, leader_of, serve
from tests.eventually import eventually

LIMIT_S = 5.0


class Named(ConsulCluster):
    """Servers that are played: node → whom it calls leader."""

    def __init__(self, said: Mapping[int, str]) -> None:
        super().__init__(ClusterPlan("consul", 3, 1, "run", 3.0, "logs"))
        self._said = said

    def peer_port(self, which: int, node: int) -> int:
        return 100 * (which + 1) + node

    def _leader_of(self, node: int) -> str:
        return self._said[node]


@pytest.mark.parametrize(
    ("said", "leader"),
    [
        (("127.0.0.1:102",) * 3, 2),
        (("127.0.0.1:102", "127.0.0.1:102", ""), 2),
        (("127.0.0.1:101", "127.0.0.1:103", "127.0.0.1:103"), 3),  # 1 was cut off
        (("127.0.0.1:101", "127.0.0.1:103", ""), None),
        (("127.0.0.1:101", "", ""), None),
        (("", "", ""), None),
        (("127.0.0.1:199",) * 3, None),
    ],
)
def test_a_leader_is_whom_a_majority_calls_so(said: tuple[str, ...], leader: int | None) -> None:
    cluster = Named(dict(enumerate(said, 1)))
    assert isinstance(cluster, Led)
    assert cluster.leader() == leader
    cluster.stop()


@pytest.mark.parametrize("wrong", ["", "value", "session"])
def test_a_probe_reads_back_and_makes_a_session(wrong: str, tmp_path: Path) -> None:
    asked: list[str] = []
    stored: list[str] = []

    def answer(method: str, path: str, body: object) -> tuple[int, object]:
        asked.append(f"{method} {path.partition('lockbench')[0]}")
        if path == "/v1/txn":
            assert isinstance(body, list)
            stored.append(body[0]["KV"].get("Value", ""))
            return 200, {"Results": [], "Errors": None}
        if path.startswith("/v1/kv/"):
            return 200, b"" if wrong == "value" else base64.b64decode(stored[0])
        if wrong == "session":
            return 500, "Missing node registration"
        return 200, {"ID": "a"} if path.endswith("create") else True

    cluster = ConsulCluster(ClusterPlan("consul", 3, 1, "run", 3.0, str(tmp_path)))
    with answering(answer) as (port, _):
        at: Address = ("127.0.0.1", port)
        cluster.check_serves(at, LIMIT_S, read=False)
        assert asked == ["PUT /v1/txn"]
        stored.clear()
        if wrong:
            with pytest.raises(ProbeFailed):
                cluster.check_serves(at, LIMIT_S, read=True)
        else:
            cluster.check_serves(at, LIMIT_S, read=True)
            assert asked[-1] == "PUT /v1/session/destroy/a"
    cluster.stop()


# --- a real one ---


@pytest.fixture
def three(start: Start) -> PodCluster:
    return start("consul", 3)


@pytest.mark.docker
@pytest.mark.slow
def test_a_leader_that_is_cut_off_or_killed_is_replaced(three: PodCluster) -> None:
    old, others = leader_and_others(three)
    with cut(three, around(three, old)):
        assert not three.serves(old, PROBE_S)
        eventually(lambda: serve(three, others))
        eventually(lambda: leader_of(three) in others)
        assert not three.serves(old, PROBE_S)
    eventually(lambda: serve(three))

    with Http(three.address(0, 1), LIMIT_S) as http:
        http.put("/v1/txn", [{"KV": {"Verb": "set", "Key": "kept", "Value": "MQ=="}}])
    old, others = leader_and_others(three)
    three.kill([old])
    eventually(lambda: serve(three, others))
    three.restart([old])
    eventually(lambda: serve(three))
    with Http(three.address(0, old), LIMIT_S) as http:
        assert http.get("/v1/kv/kept?raw&consistent") == b"1"
    three.empty()
    with Http(three.address(0, old), LIMIT_S) as http, pytest.raises(ProbeFailed, match="404"):
        http.get("/v1/kv/kept?raw&consistent")
    three.verify()
