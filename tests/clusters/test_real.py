"""Real clusters, broken in every way that is offered. Each test leaves its cluster whole."""

from __future__ import annotations

import socket
import time
from functools import partial

import pytest
from kazoo.client import KazooClient

from lockbench.clusters.base import ClusterError, Edge, Led, Wipeable
from lockbench.clusters.etcd.cluster import EtcdCluster
from lockbench.clusters.etcd.members import encoded
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.toxiproxy import LinkServer
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.nodes import RedisNodes
from lockbench.clusters.wire import Address, Http
from lockbench.clusters.zookeeper import protocol as jute
from lockbench.clusters.zookeeper.ensemble import ZooKeeperCluster
from tests.clusters.conftest import Start
from tests.clusters.waiting import (
    PROBE_S,
    SURE_S,
    around,
    between,
    cut,
    frozen,
    leader_and_others,
    leader_of,
    serve,
)
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(params=["three_etcd", "three_zookeeper"])
def led(request: pytest.FixtureRequest) -> PodCluster:
    cluster = request.getfixturevalue(request.param)
    assert isinstance(cluster, PodCluster)
    return cluster


def ask(address: Address, *words: str) -> resp.Answer:
    return resp.ask_once(address, SURE_S, *words)


# --- up ------------------------------------------------------------------------------------------


def test_a_led_cluster_is_up_through_every_link(led: PodCluster) -> None:
    led.verify()
    assert leader_of(led) in led.nodes
    assert serve(led, limit_s=SURE_S)
    every = [address for group in range(3) for address in led.addresses(group)]
    assert len(set(every)) == 9
    assert led.addresses(0) == [("127.0.0.1", led.port(node)) for node in led.nodes]
    assert {host for host, _ in led.addresses(2)} == {"127.0.0.3"}
    with pytest.raises(ClusterError, match="no client group 3"):
        led.addresses(3)


def test_the_link_costs_something(led: PodCluster, one_redis: PodCluster) -> None:
    """Of a write that is synced it is a hundredth, so that other work may hide it once."""

    def costs(cluster: PodCluster) -> bool:
        cost = cluster.link_overhead_us(100)
        return 0 < cost["direct"] < cost["linked"]

    for cluster in (led, one_redis):
        eventually(partial(costs, cluster), "the link costs nothing")


def test_five_independent_nodes(start: Start) -> None:
    cluster = start("redlock", 5)
    assert not isinstance(cluster, Led)
    assert isinstance(cluster, Wipeable)

    def wiped_within_s() -> float:
        for node in cluster.nodes:
            ask(cluster.address(1, node), "SET", "who", str(node))
        assert [ask(cluster.address(2, n), "GET", "who") for n in cluster.nodes] == list("12345")
        assert [ask(at, "GET", "who") for at in cluster.direct_addresses()] == list("12345")
        began = time.monotonic()
        cluster.kill([1, 2, 3])
        assert [cluster.serves(node, SURE_S) for node in cluster.nodes] == [False] * 3 + [True] * 2
        cluster.wipe([1, 2, 3])
        cluster.restart([1, 2, 3])
        took_s = time.monotonic() - began
        found = [ask(cluster.address(1, node), "GET", "who") for node in cluster.nodes]
        assert found == [None, None, None, "4", "5"]
        return took_s

    # A lease must still be running on the others, or a wipe could show nothing. One of ten rounds
    # is enough: what else runs on the machine may slow down the others.
    assert any(wiped_within_s() < cluster.plan.lease_ttl_s for _ in range(10))


# --- links ---------------------------------------------------------------------------------------


def test_a_leader_that_is_cut_off_loses_its_majority(led: PodCluster) -> None:
    old, others = leader_and_others(led)
    with cut(led, around(led, old)):
        assert not led.serves(old, 1.0)
        eventually(lambda: serve(led, others))
        eventually(lambda: leader_of(led) in others)
        assert not led.serves(old, 1.0)
    eventually(lambda: serve(led))
    led.verify()


def test_held_back_traffic_between_nodes_flows_again(led: PodCluster) -> None:
    with cut(led, between(led), "stall"):
        eventually(lambda: not any(led.serves(node, PROBE_S) for node in led.nodes))
    eventually(lambda: serve(led))


# --- processes -----------------------------------------------------------------------------------


def test_a_frozen_leader_is_replaced(led: PodCluster) -> None:
    old, others = leader_and_others(led)
    with frozen(led, old):
        assert not led.serves(old, PROBE_S)
        eventually(lambda: serve(led, others))
        eventually(lambda: leader_of(led) in others)
        # A connection is still accepted: the kernel and the link do that.
        socket.create_connection(led.address(0, old), timeout=SURE_S).close()
    eventually(lambda: serve(led))


def test_etcd_keeps_its_data_when_all_are_killed(three_etcd: EtcdCluster) -> None:
    key = encoded("kept")
    with Http(three_etcd.address(0, 1), 5.0) as http:
        http.post("/v3/kv/put", {"key": key, "value": key})
    three_etcd.kill(three_etcd.nodes)
    assert not any(three_etcd.serves(node, PROBE_S) for node in three_etcd.nodes)
    three_etcd.restart(three_etcd.nodes)
    eventually(lambda: serve(three_etcd))
    with Http(three_etcd.address(0, 2), 5.0) as http:
        assert http.post("/v3/kv/range", {"key": key})["kvs"][0]["value"] == key


def test_zookeeper_keeps_its_data_when_all_are_killed(three_zookeeper: ZooKeeperCluster) -> None:
    hosts = ",".join(f"{host}:{port}" for host, port in three_zookeeper.addresses(1))
    client = KazooClient(hosts=hosts, timeout=3.0)
    client.start()
    client.create("/kept", b"kept")
    client.stop()
    client.close()
    three_zookeeper.kill(three_zookeeper.nodes)
    assert not any(three_zookeeper.serves(node, PROBE_S) for node in three_zookeeper.nodes)
    three_zookeeper.restart(three_zookeeper.nodes)
    eventually(lambda: serve(three_zookeeper))
    with jute.Session(three_zookeeper.address(0, 2), 5.0, session_ms=3000) as session:
        assert session.get("/kept") == b"kept"
        session.end()


def test_redis_keeps_its_data_when_killed_and_loses_it_when_wiped(one_redis: RedisNodes) -> None:
    at = one_redis.address(1, 1)
    ask(at, "SET", "kept", "1")
    with pytest.raises(ClusterError, match="redis-1 runs: kill it before it is wiped"):
        one_redis.wipe([1])
    one_redis.kill([1])
    one_redis.restart([1])
    assert ask(at, "GET", "kept") == "1"
    one_redis.kill([1])
    one_redis.wipe([1])
    one_redis.restart([1])
    assert ask(at, "GET", "kept") is None
    one_redis.verify()


def test_a_node_is_frozen_and_thawed_twice_without_an_error_and_killed(
    one_redis: RedisNodes,
) -> None:
    one_redis.unpause([1])
    one_redis.pause([1])
    one_redis.pause([1])
    one_redis.unpause([1])
    assert one_redis.serves(1, SURE_S)
    one_redis.pause([1])
    assert not one_redis.serves(1, PROBE_S)
    one_redis.kill([1])
    one_redis.restart([1])
    assert one_redis.serves(1, SURE_S)


def test_what_cannot_be_done_says_so(one_redis: RedisNodes) -> None:
    with pytest.raises(ClusterError, match="no running node 4"):
        one_redis.kill([4])
    with pytest.raises(ClusterError, match="no link called client-9"):
        one_redis.cut([Edge(-9, 1)], "drop")


def test_the_links_are_whole_after_all_this(
    one_redis: PodCluster, three_etcd: PodCluster, three_zookeeper: PodCluster
) -> None:
    for cluster in (one_redis, three_etcd, three_zookeeper):
        links: list[LinkServer] = [cluster._pods[node].links for node in cluster.nodes]
        assert [server.broken() for server in links] == [[]] * cluster.plan.size
