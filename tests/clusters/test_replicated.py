"""PostgreSQL, Sentinel and Redis Cluster: what is verified, who is primary, and what becomes of a
primary. Each test leaves its cluster whole."""

from __future__ import annotations

import pytest

from lockbench.clusters.base import ClusterError, Edge, Led, Promotable, Wipeable
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.postgres.protocol import Session
from lockbench.clusters.postgres.replicated import PostgresCluster
from lockbench.clusters.redis import cluster as redis_cluster
from lockbench.clusters.redis.cluster import AIMED_KEY, ShardedRedis, slot_of
from lockbench.clusters.redis.protocol import ask_once, items
from lockbench.clusters.redis.sentinel import SENTINELS, SETTINGS, SentinelCluster
from lockbench.clusters.wire import ProbeFailed
from tests.clusters.conftest import Start
from tests.clusters.waiting import (
    PROBE_S,
    SURE_S,
    around,
    between,
    cut,
    frozen,
    roles,
    serve,
)
from tests.eventually import LIMIT_S, eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]

POOLED = pytest.param("pgbouncer-transaction", marks=pytest.mark.long)
SIZES = {"postgres": 2, "pgbouncer-transaction": 2, "sentinel": 5, "redis-cluster": 6}
Replicating = PostgresCluster | SentinelCluster | ShardedRedis


@pytest.fixture(params=["postgres", "sentinel", "redis-cluster", POOLED])
def cluster(request: pytest.FixtureRequest, start: Start) -> Replicating:
    """Replication that no write waits for."""
    found = start(request.param, SIZES[request.param])
    assert isinstance(found, Replicating)
    return found


@pytest.fixture(params=["postgres", "postgres-sync", POOLED])
def postgres(request: pytest.FixtureRequest, start: Start) -> PostgresCluster:
    found = start(request.param, 2)
    assert isinstance(found, PostgresCluster)
    return found


@pytest.fixture
def sentinel(start: Start) -> PodCluster:
    return start("sentinel", 5)


def sql(cluster: PodCluster, node: int, text: str) -> object:
    with Session(cluster.address(1, node), SURE_S) as session:
        return session.query(text)


def redis(cluster: PodCluster, node: int, *words: str) -> object:
    return ask_once(cluster.address(1, node), SURE_S, *words)


# --- all of them ---------------------------------------------------------------------------------


def test_it_is_up(cluster: Replicating) -> None:
    assert isinstance(cluster, Promotable)
    assert not isinstance(cluster, Led)
    primary, replica = roles(cluster)
    assert primary in {1, 2, 3}
    assert replica == primary + (3 if isinstance(cluster, ShardedRedis) else 1)
    assert serve(cluster, limit_s=SURE_S)


def test_verifying_notices_broken_replication(cluster: Replicating) -> None:
    with (
        cut(cluster, between(cluster, *roles(cluster))),
        pytest.raises(ClusterError, match=r"no replication|not connected to all"),
    ):
        cluster._verify(1.5)
    eventually(lambda: roles(cluster))
    cluster.verify()


def test_what_was_not_replicated_is_lost_by_a_promotion(cluster: Replicating) -> None:
    old, new = roles(cluster)
    with cut(cluster, between(cluster, old, new)):
        if isinstance(cluster, PostgresCluster):
            sql(cluster, old, "CREATE TABLE only_here ()")
        else:
            redis(cluster, old, "SET", AIMED_KEY, "1")
        cluster.kill([old])
        cluster.promote(new, LIMIT_S)
        cluster.promote(new, SURE_S)
        assert cluster.primary() == new
        eventually(lambda: cluster.serves(new, PROBE_S))
        if isinstance(cluster, PostgresCluster):
            assert sql(cluster, new, "SELECT to_regclass('only_here') IS NULL") == [["t"]]
        else:
            assert redis(cluster, new, "GET", AIMED_KEY) is None
    cluster.restart([old])
    eventually(lambda: list(cluster.replicas()) == [old])
    assert cluster.serves(old, SURE_S)
    cluster.verify()


def test_a_primary_that_is_cut_off_is_replaced(cluster: Replicating) -> None:
    """Redis Cluster elects another and stops it; elsewhere it takes writes beside the new one."""
    old, new = roles(cluster)
    with cut(cluster, around(cluster, old)):
        if isinstance(cluster, ShardedRedis):
            eventually(lambda: cluster.primary() == new)
            eventually(lambda: not cluster.serves(old, PROBE_S))
        else:
            cluster.promote(new, LIMIT_S)
            assert cluster.primary() == new
            assert serve(cluster, [old, new], SURE_S)
    eventually(lambda: list(cluster.replicas()) == [old])
    cluster.verify()


# --- PostgreSQL ----------------------------------------------------------------------------------


def test_postgres_is_as_declared(postgres: PostgresCluster) -> None:
    assert not isinstance(postgres, Wipeable)
    primary, replica = roles(postgres)
    for node in postgres.nodes:
        for name, value in postgres.settings.items():
            assert sql(postgres, node, f"SHOW {name}") == [[value]]
    with pytest.raises(ProbeFailed, match="read-only"):
        sql(postgres, replica, "CREATE TABLE t ()")
    with cut(postgres, between(postgres)):
        if postgres.plan.topology == "postgres-sync":
            assert not postgres.serves(primary, PROBE_S), "a commit waits for the replica"
        else:
            assert postgres.serves(primary, SURE_S)
        assert postgres.serves(replica, SURE_S)
    eventually(lambda: postgres.serves(primary, PROBE_S))
    postgres.verify()


def test_a_primary_that_was_rebuilt_once_keeps_its_data(postgres: PostgresCluster) -> None:
    """It was deposed, rebuilt, and made the primary again: its restart must not rebuild it."""
    for _ in range(2):
        primary, replica = roles(postgres)
        postgres.kill([primary])
        assert not postgres.serves(primary, PROBE_S)
        postgres.promote(replica, LIMIT_S)
        postgres.restart([primary])
        eventually(lambda: serve(postgres))
    primary, replica = roles(postgres)
    sql(postgres, primary, "CREATE TABLE kept ()")
    for killed in ([primary], [primary, replica]):
        postgres.kill(killed)
        postgres.restart(killed)
        eventually(lambda: serve(postgres))
        assert roles(postgres) == (primary, replica)
    assert sql(postgres, primary, "SELECT to_regclass('kept') IS NOT NULL") == [["t"]]
    postgres.verify()


# --- Sentinel ------------------------------------------------------------------------------------


def test_sentinels_are_as_declared(sentinel: SentinelCluster) -> None:
    assert isinstance(sentinel, Wipeable)
    names = ["redis-1", "redis-2", "sentinel-3", "sentinel-4", "sentinel-5"]
    assert [sentinel.node_name(node) for node in sentinel.nodes] == names
    for node in SENTINELS:
        said = items(ask_once(sentinel.address(1, node), SURE_S, "SENTINEL", "MASTER", "lockbench"))
        told = dict(zip(said[::2], said[1::2], strict=True))
        for name in ("down-after-milliseconds", "failover-timeout", "quorum"):
            assert told[name] == SETTINGS[name]
    with pytest.raises(ClusterError, match="sentinel-3 carries no data"):
        sentinel.promote(3, 1.0)


def test_verifying_notices_sentinels_that_do_not_see_each_other(sentinel: SentinelCluster) -> None:
    with (
        cut(sentinel, [Edge(3, 4)], "reject"),
        pytest.raises(ClusterError, match="sentinel-3 does not see everybody"),
    ):
        sentinel._verify(1.0)
    sentinel.verify()


def test_a_frozen_primary_is_replaced_and_demoted(sentinel: SentinelCluster) -> None:
    old, new = roles(sentinel)
    with frozen(sentinel, old):
        assert not sentinel.serves(old, PROBE_S)
        eventually(lambda: sentinel.primary() == new)
    eventually(lambda: list(sentinel.replicas()) == [old])
    sentinel.verify()


def test_a_wiped_node_comes_back_in_its_role(sentinel: SentinelCluster) -> None:
    primary, replica = roles(sentinel)
    redis(sentinel, primary, "SET", "kept", "1")
    for node in (replica, SENTINELS[0]):
        sentinel.kill([node])
        sentinel.wipe([node])
        sentinel.restart([node])
        eventually(lambda: roles(sentinel) == (primary, replica))
        sentinel.verify()
    assert redis(sentinel, replica, "GET", "kept") == "1"


# --- Redis Cluster -------------------------------------------------------------------------------


def test_redis_cluster_is_as_declared(start: Start) -> None:
    sharded = start("redis-cluster", 6)
    name = redis_cluster.TIMEOUT
    for node in sharded.nodes:
        said = redis(sharded, node, "CONFIG", "GET", name)
        assert said == [name, redis_cluster.SETTINGS[name]]
    assert redis(sharded, 1, "CLUSTER", "KEYSLOT", AIMED_KEY) == slot_of(AIMED_KEY)
