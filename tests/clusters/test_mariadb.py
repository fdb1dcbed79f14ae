"""MariaDB alone and with Galera: what a killed server, a killed majority and a cut leave behind."""

from __future__ import annotations

from contextlib import closing

import pytest

from lockbench.clusters.base import ClusterError
from lockbench.clusters.mariadb.protocol import Session
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.wire import ProbeFailed
from lockbench.locks.base import Address, Denied, Granted, NoObserver
from lockbench.locks.mariadb.for_update import MariadbForUpdate
from lockbench.locks.mariadb.session import literal
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


def test_a_row_that_somebody_made_meanwhile_is_not_waited_for(start: Start) -> None:
    """Its holder would be waited for longer than for any answer."""
    one = start("mariadb", 1)

    def client() -> MariadbForUpdate:
        address = Address(*one.address(1, 1))
        return MariadbForUpdate([address], timeout_s=SURE_S, ttl_s=3.0, observer=NoObserver())

    with closing(client()) as holder, closing(client()) as late:
        assert isinstance(holder.acquire("k", hold_id=1, ttl_s=3.0, wait_s=0), Granted)
        with closing(late._session()) as session:
            late._make(session, literal("k"))
            late._make(session, literal("of nobody"))
        assert late.acquire("k", hold_id=2, ttl_s=3.0, wait_s=0) == Denied("held")
        assert isinstance(late.acquire("of nobody", hold_id=3, ttl_s=3.0, wait_s=0), Granted)


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
