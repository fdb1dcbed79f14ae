"""Redis Cluster: slots and roles, what is verified, and what becomes of a primary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.base import ClusterError, Led, Promotable
from clusters.pods.cluster import PodCluster
from clusters.redis import cluster as redis_cluster
from clusters.redis.cluster import AIMED_KEY, RedisClusterCluster, Seen, slot_of
from clusters.redis.protocol import ask_once
from tests.clusters.waiting import LIMIT_S, PROBE_S, SURE_S, around, roles, soon
from workloads import load


def test_the_aimed_key_is_the_loads() -> None:
    assert load.AIMED_KEY == AIMED_KEY


def test_slots_are_those_of_the_specification() -> None:
    """CRC16 of "123456789" is 0x31C3, says appendix A; tags are hashed alone."""
    assert slot_of("123456789") == 0x31C3 % 16384
    assert slot_of("a{123456789}b") == slot_of("123456789")
    assert slot_of("{}123456789") != slot_of("123456789")
    assert slot_of("foo{{bar}}zap") == slot_of("{bar")
    assert slot_of("foo{bar}{zap}") == slot_of("bar")


def test_a_line_of_cluster_nodes_is_read() -> None:
    line = "abc 127.0.0.1:7001@17001,,shard-id=x myself,master - 0 1 2 connected 0-5 7 [8->-def]"
    seen = Seen.read(line)
    assert (seen.id, seen.port) == ("abc", 7001)
    assert seen.flags == {"myself", "master"}
    assert seen.slots == (range(6), range(7, 8))
    with pytest.raises(ValueError, match="not enough values"):
        Seen.read("abc")


@pytest.fixture(scope="module")
def cluster(start: Callable[[str, int], PodCluster]) -> RedisClusterCluster:
    cluster = start("redis-cluster", 6)
    assert isinstance(cluster, RedisClusterCluster)
    return cluster


@pytest.mark.docker
@pytest.mark.slow
def test_it_is_up_as_declared(cluster: RedisClusterCluster) -> None:
    assert isinstance(cluster, Promotable)
    assert not isinstance(cluster, Led)
    primary, replica = roles(cluster)
    assert primary in {1, 2, 3}
    assert replica == primary + 3
    assert all(cluster.serves(node, SURE_S) for node in cluster.nodes)
    for node in cluster.nodes:
        said = ask_once(cluster.address(1, node), SURE_S, "CONFIG", "GET", redis_cluster.TIMEOUT)
        assert said == [redis_cluster.TIMEOUT, redis_cluster.SETTINGS[redis_cluster.TIMEOUT]]
    key = ask_once(cluster.address(1, 1), SURE_S, "CLUSTER", "KEYSLOT", AIMED_KEY)
    assert key == slot_of(AIMED_KEY)


@pytest.mark.docker
@pytest.mark.slow
def test_verifying_notices_broken_replication(cluster: RedisClusterCluster) -> None:
    primary, replica = roles(cluster)
    ends = {primary, replica}
    cluster.cut([e for e in cluster.edges() if {e.source, e.target} == ends], "drop")
    try:
        with pytest.raises(ClusterError, match=r"no replication|not connected to all"):
            cluster._verify(1.5)
    finally:
        cluster.heal()
    soon(lambda: roles(cluster))
    cluster.verify()


@pytest.mark.docker
@pytest.mark.slow
def test_what_was_not_replicated_is_lost_by_a_promotion(cluster: RedisClusterCluster) -> None:
    old, new = roles(cluster)
    ends = {old, new}
    cluster.cut([e for e in cluster.edges() if {e.source, e.target} == ends], "drop")
    try:
        ask_once(cluster.address(1, old), SURE_S, "SET", AIMED_KEY, "1")
        cluster.kill([old])
        cluster.promote(new, LIMIT_S)
        assert cluster.primary() == new
        at = cluster.address(1, new)
        soon(lambda: cluster.serves(new, PROBE_S))
        assert ask_once(at, SURE_S, "GET", AIMED_KEY) is None
    finally:
        cluster.heal()
        cluster.restart([old])
    soon(lambda: list(cluster.replicas()) == [old])
    cluster.verify()


@pytest.mark.docker
@pytest.mark.slow
def test_a_primary_that_is_cut_off_stops_and_is_replaced(cluster: RedisClusterCluster) -> None:
    old, new = roles(cluster)
    cluster.cut(around(cluster, old), "drop")
    try:
        soon(lambda: cluster.primary() == new)
        soon(lambda: not cluster.serves(old, PROBE_S))
    finally:
        cluster.heal()
    soon(lambda: list(cluster.replicas()) == [old])
    cluster.verify()
