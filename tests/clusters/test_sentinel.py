"""A Sentinel cluster: what is verified, who is primary, and what becomes of it when it breaks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.base import ClusterError, Edge, Led, Promotable, Wipeable
from clusters.pods.cluster import PodCluster
from clusters.redis.protocol import ask_once, items
from clusters.redis.sentinel import SENTINELS, SETTINGS, SentinelCluster
from tests.clusters.waiting import LIMIT_S, PROBE_S, SURE_S, around, roles, soon

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module")
def cluster(start: Callable[[str, int], PodCluster]) -> SentinelCluster:
    cluster = start("sentinel", 5)
    assert isinstance(cluster, SentinelCluster)
    return cluster


def between_data(cluster: PodCluster) -> list[Edge]:
    return [e for e in cluster.edges() if {e.source, e.target} == {1, 2}]


def test_it_is_up_as_declared(cluster: SentinelCluster) -> None:
    assert isinstance(cluster, Promotable)
    assert isinstance(cluster, Wipeable)
    assert not isinstance(cluster, Led)
    assert roles(cluster) == (1, 2)
    assert [cluster.node_name(node) for node in cluster.nodes] == [
        "redis-1",
        "redis-2",
        "sentinel-3",
        "sentinel-4",
        "sentinel-5",
    ]
    assert all(cluster.serves(node, SURE_S) for node in cluster.nodes)
    for node in SENTINELS:
        said = items(ask_once(cluster.address(1, node), SURE_S, "SENTINEL", "MASTER", "lockbench"))
        told = dict(zip(said[::2], said[1::2], strict=True))
        for name in ("down-after-milliseconds", "failover-timeout", "quorum"):
            assert told[name] == SETTINGS[name]


def test_verifying_notices_broken_replication(cluster: SentinelCluster) -> None:
    cluster.cut(between_data(cluster), "drop")
    try:
        with pytest.raises(ClusterError, match="no replication: a write reached 0 of 1 replicas"):
            cluster._verify(1.0)
    finally:
        cluster.heal()
    cluster.verify()


def test_verifying_notices_sentinels_that_do_not_see_each_other(cluster: SentinelCluster) -> None:
    cluster.cut([Edge(3, 4)], "reject")
    try:
        with pytest.raises(ClusterError, match="sentinel-3 does not see everybody"):
            cluster._verify(1.0)
    finally:
        cluster.heal()
    cluster.verify()


def test_what_was_not_replicated_is_lost_by_a_promotion(cluster: SentinelCluster) -> None:
    old, new = roles(cluster)
    cluster.cut(between_data(cluster), "drop")
    try:
        ask_once(cluster.address(1, old), SURE_S, "SET", "only-here", "1")
        cluster.kill([old])
        cluster.promote(new, LIMIT_S)
        cluster.promote(new, SURE_S)
        assert cluster.primary() == new
        assert ask_once(cluster.address(1, new), SURE_S, "GET", "only-here") is None
        assert cluster.serves(new, SURE_S)
    finally:
        cluster.heal()
        cluster.restart([old])
    soon(lambda: list(cluster.replicas()) == [old])
    assert cluster.serves(old, SURE_S)
    cluster.verify()


def test_a_frozen_primary_is_replaced_and_demoted(cluster: SentinelCluster) -> None:
    old, new = roles(cluster)
    cluster.pause([old])
    try:
        assert not cluster.serves(old, PROBE_S)
        soon(lambda: cluster.primary() == new)
    finally:
        cluster.unpause([old])
    soon(lambda: list(cluster.replicas()) == [old])
    cluster.verify()


def test_a_primary_that_is_cut_off_takes_writes_beside_the_new_one(
    cluster: SentinelCluster,
) -> None:
    old, new = roles(cluster)
    cluster.cut(around(cluster, old), "drop")
    try:
        cluster.promote(new, LIMIT_S)
        assert cluster.serves(old, SURE_S)
        assert cluster.serves(new, SURE_S)
    finally:
        cluster.heal()
    soon(lambda: list(cluster.replicas()) == [old])
    cluster.verify()


def test_a_wiped_node_comes_back_in_its_role(cluster: SentinelCluster) -> None:
    primary, replica = roles(cluster)
    ask_once(cluster.address(1, primary), SURE_S, "SET", "kept", "1")
    for node in (replica, SENTINELS[0]):
        cluster.kill([node])
        cluster.wipe([node])
        cluster.restart([node])
        soon(lambda: roles(cluster) == (primary, replica))
        cluster.verify()
    assert ask_once(cluster.address(1, replica), SURE_S, "GET", "kept") == "1"


def test_a_sentinel_is_not_promoted(cluster: SentinelCluster) -> None:
    with pytest.raises(ClusterError, match="sentinel-3 carries no data"):
        cluster.promote(3, 1.0)
