"""A real follower dies right after it acknowledged a heartbeat, before it could tell its leader.

Its client reaches no other server, so the leader ends the session by what it was told. The promise
must not outlast that; that of the last answer does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import NamedTuple

import pytest
from kazoo.client import KazooClient

from lockbench.bench.duties import LEASE_S, Running
from lockbench.clusters.zookeeper.ensemble import ZooKeeperCluster
from lockbench.locks.base import Address, Granted, NoObserver, new_hold_id
from lockbench.locks.libraries.shared.zookeeper_touches import Touches
from lockbench.locks.zookeeper.mutex import ZooKeeper
from tests.eventually import eventually

log = logging.getLogger(__name__)
DEATHS = 8
WAIT_S = 60.0


class Noting(Touches):
    """Tells of every answer."""

    def __init__(self, lease_s: float) -> None:
        super().__init__(lease_s)
        self.last_sent_ns = 0
        self.heard = threading.Event()

    def answered(self, sent_ns: int, read_ns: int) -> None:
        super().answered(sent_ns, read_ns)
        self.last_sent_ns = sent_ns
        self.heard.set()


class Death(NamedTuple):
    """Monotonic nanoseconds: what was promised, what the last answer alone would promise, and when
    somebody else was told that the node is gone."""

    promised_ns: int
    by_last_answer_ns: int
    gone_ns: int


def die_after_a_heartbeat(cluster: ZooKeeperCluster, nodes: list[Address], follower: int) -> Death:
    """``nodes`` are the servers', from the first on."""
    others = [node for i, node in enumerate(nodes, start=1) if i != follower]
    client = KazooClient(hosts=",".join(f"{host}:{port}" for host, port in others))
    client.start(WAIT_S)
    lock = ZooKeeper([nodes[follower - 1]], timeout_s=LEASE_S, ttl_s=LEASE_S, observer=NoObserver())
    session = lock._session
    noting = session._touches = Noting(LEASE_S)
    try:
        with closing(lock):
            grant = lock.acquire("dies", hold_id=new_hold_id(), ttl_s=LEASE_S, wait_s=WAIT_S)
            assert isinstance(grant, Granted)
            for _ in range(2):  # the second comes after a silence; what was before is told by then
                noting.heard.clear()
                assert noting.heard.wait(WAIT_S)
            cluster.kill([follower])
            promised_ns = session.valid_until_ns
            by_last_answer_ns = noting.last_sent_ns + session.timeout_ns
            eventually(
                lambda: client.exists(grant.hold.handle.path) is None,
                "the node stays",
                limit_s=WAIT_S,
            )
            return Death(promised_ns, by_last_answer_ns, time.monotonic_ns())
    finally:
        client.stop()
        client.close()
        cluster.restart([follower])


@pytest.mark.docker
@pytest.mark.long
def test_a_follower_that_dies_takes_no_promise_with_it(
    running: Callable[[str], Running],
) -> None:
    there = running("zookeeper")
    cluster = there.cluster
    if not isinstance(cluster, ZooKeeperCluster):
        pytest.skip("its servers are another process's")
    deaths = []
    for _ in range(DEATHS):
        eventually(lambda: cluster.leader() is not None, "nobody leads", limit_s=WAIT_S)
        follower = next(node for node in cluster.nodes if node != cluster.leader())
        deaths.append(die_after_a_heartbeat(cluster, there.nodes, follower))
    for death in deaths:
        late_ms = (death.gone_ns - death.promised_ns) / 1e6
        over_ms = (death.gone_ns - death.by_last_answer_ns) / 1e6
        log.info("gone %+.0f ms after the promise, %+.0f of the last answer's", late_ms, over_ms)
    assert all(death.promised_ns <= death.gone_ns for death in deaths)
    assert any(death.by_last_answer_ns > death.gone_ns for death in deaths), "never showed"
