"""MariaDB alone and with Galera: what a killed server, a killed majority and a cut leave behind."""

from __future__ import annotations

import pytest

from lockbench.clusters.base import ClusterError
from lockbench.clusters.mariadb.protocol import Session
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.wire import ProbeFailed
from tests.clusters.conftest import Start
from tests.clusters.waiting import PROBE_S, SURE_S, around, cut, serve
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def sql(cluster: PodCluster, node: int, text: str) -> object:
    with Session(cluster.address(1, node), SURE_S) as session:
        return session.query(text)


def test_one_server_keeps_what_was_committed_over_a_kill(start: Start) -> None:
    one = start("mariadb", 1)
    sql(one, 1, "CREATE TABLE kept (a INT PRIMARY KEY)")
    one.kill([1])
    assert not one.serves(1, PROBE_S)
    one.restart([1])
    eventually(lambda: serve(one))
    assert sql(one, 1, "SELECT count(*) FROM kept") == [["0"]]
    one.empty()
    with pytest.raises(ProbeFailed, match="1146"):
        sql(one, 1, "SELECT count(*) FROM kept")
    one.verify()


@pytest.mark.long
def test_galera_is_whole_again_after_a_cut_and_after_kills(start: Start) -> None:
    three = start("galera", 3)
    sql(three, 1, "CREATE TABLE kept (a INT PRIMARY KEY)")
    with cut(three, around(three, 3)):
        eventually(lambda: serve(three, [1, 2]))
        eventually(lambda: not three.serves(3, PROBE_S))
        sql(three, 1, "INSERT INTO kept VALUES (1)")
        with pytest.raises(ClusterError, match="is not with all the others"):
            three._verify(1.0)
    eventually(lambda: serve(three))
    for killed in ([3], [1, 2], [1, 2, 3]):
        three.kill(killed)
        three.restart(killed)
        eventually(lambda: serve(three))
    for node in three.nodes:
        assert sql(three, node, "SELECT a FROM kept") == [["1"]]
    three.verify()
