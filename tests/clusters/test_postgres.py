"""PostgreSQL's primary and replica: what is verified, and what becomes of an old primary."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.base import ClusterError, Edge, Led, Promotable, Wipeable
from clusters.pods.cluster import PodCluster
from clusters.postgres.protocol import Session
from clusters.postgres.replicated import PostgresCluster
from clusters.wire import ProbeFailed
from tests.clusters.waiting import LIMIT_S, PROBE_S, SURE_S, roles, soon

pytestmark = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(scope="module", params=["postgres", "postgres-sync"])
def cluster(
    request: pytest.FixtureRequest, start: Callable[[str, int], PodCluster]
) -> PostgresCluster:
    cluster = start(request.param, 2)
    assert isinstance(cluster, PostgresCluster)
    return cluster


def ask(cluster: PodCluster, node: int, sql: str) -> object:
    with Session(cluster.address(1, node), SURE_S) as session:
        return session.query(sql)


def between(cluster: PodCluster) -> list[Edge]:
    return [e for e in cluster.edges() if e.source > 0]


def is_sync(cluster: PodCluster) -> bool:
    return cluster.plan.topology == "postgres-sync"


def test_it_is_up_as_declared(cluster: PostgresCluster) -> None:
    assert isinstance(cluster, Promotable)
    assert not isinstance(cluster, (Led, Wipeable))
    assert roles(cluster) == (1, 2)
    assert all(cluster.serves(node, SURE_S) for node in cluster.nodes)
    for node in cluster.nodes:
        for name, value in cluster.settings.items():
            assert ask(cluster, node, f"SHOW {name}") == [[value]]
    with pytest.raises(ProbeFailed, match="read-only"):
        ask(cluster, 2, "CREATE TABLE t ()")


def test_a_commit_waits_for_the_replica_only_where_declared(cluster: PostgresCluster) -> None:
    primary, replica = roles(cluster)
    cluster.cut(between(cluster), "drop")
    try:
        if is_sync(cluster):
            assert not cluster.serves(primary, PROBE_S)
        else:
            assert cluster.serves(primary, SURE_S)
        assert cluster.serves(replica, SURE_S)
        with pytest.raises(ClusterError):
            cluster._verify(1.0)
    finally:
        cluster.heal()
    soon(lambda: cluster.serves(primary, PROBE_S))
    cluster.verify()


def test_a_killed_primary_keeps_its_data(cluster: PostgresCluster) -> None:
    primary, _ = roles(cluster)
    ask(cluster, primary, "CREATE TABLE kept ()")
    cluster.kill([primary])
    assert not cluster.serves(primary, PROBE_S)
    cluster.restart([primary])
    assert cluster.serves(primary, SURE_S)
    assert ask(cluster, primary, "SELECT to_regclass('kept') IS NOT NULL") == [["t"]]
    cluster.verify()


def test_a_promoted_replica_lacks_what_was_not_replicated(cluster: PostgresCluster) -> None:
    if is_sync(cluster):
        pytest.skip("nothing is acknowledged that was not replicated")
    old, new = roles(cluster)
    cluster.cut(between(cluster), "drop")
    try:
        ask(cluster, old, "CREATE TABLE only_here ()")
        cluster.kill([old])
        cluster.promote(new, LIMIT_S)
        cluster.promote(new, SURE_S)
        assert cluster.primary() == new
        assert ask(cluster, new, "SELECT to_regclass('only_here') IS NULL") == [["t"]]
        assert cluster.serves(new, SURE_S)
    finally:
        cluster.heal()
        cluster.restart([old])
    assert roles(cluster) == (new, old)
    cluster.verify()


def test_an_old_primary_takes_writes_until_the_heal(cluster: PostgresCluster) -> None:
    if is_sync(cluster):
        pytest.skip("without its replica it confirms no commit")
    old, new = roles(cluster)
    cluster.cut(between(cluster), "drop")
    try:
        cluster.promote(new, LIMIT_S)
        assert cluster.primary() == new
        assert cluster.serves(old, SURE_S)
        assert cluster.serves(new, SURE_S)
    finally:
        cluster.heal()
    assert roles(cluster) == (new, old)
    cluster.verify()


def test_a_primary_that_was_rebuilt_once_keeps_its_data(cluster: PostgresCluster) -> None:
    """It was deposed, rebuilt, and made the primary again: its restart must not rebuild it."""
    for _ in range(2):
        primary, replica = roles(cluster)
        cluster.kill([primary])
        cluster.promote(replica, LIMIT_S)
        cluster.restart([primary])
        soon(lambda: all(cluster.serves(node, PROBE_S) for node in cluster.nodes))
    primary, replica = roles(cluster)
    for killed in ([primary], [primary, replica]):
        cluster.kill(killed)
        cluster.restart(killed)
        soon(lambda: all(cluster.serves(node, PROBE_S) for node in cluster.nodes))
        assert roles(cluster) == (primary, replica)
    cluster.verify()
