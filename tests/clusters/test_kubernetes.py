"""Kubernetes' API server: what is said of it, and a real one that is frozen, killed and wiped.

The real one is marked long: its image takes minutes to build.
"""

from __future__ import annotations

import pytest

from lockbench.bench import suites
from lockbench.clusters import images
from lockbench.clusters.base import Clocked, ClusterPlan, Led, Recorded, Wipeable
from lockbench.clusters.kubernetes.servers import LEASES, Https, KubernetesServers
from lockbench.clusters.wire import ProbeFailed
from lockbench.locks.registry import systems
from tests.clusters.conftest import Start

LIMIT_S = 5.0
SURE_S = 10.0


def test_it_is_built_only_when_a_lock_asks_for_it() -> None:
    """Neither by setup, nor by the suites that are samples."""
    assert "kubernetes" not in images.server_names()
    needs = {name for name, one in systems().items() if "kubernetes" in one.topologies}
    for suite in ("quick", "nightly", "capacity"):
        assert needs.isdisjoint(case.lock for case in suites.suite(suite, seed=0).cases)


def test_what_it_can_do() -> None:
    cluster = KubernetesServers(ClusterPlan("kubernetes", 1, 1, "run", 3.0, "logs"))
    assert isinstance(cluster, Wipeable)
    assert not isinstance(cluster, Clocked | Led | Recorded)
    cluster.stop()


@pytest.mark.docker
@pytest.mark.long
def test_a_server_that_is_frozen_killed_and_wiped(start: Start) -> None:
    cluster = start("kubernetes", 1)
    assert isinstance(cluster, KubernetesServers)
    at = cluster.address(1, 1)
    cluster.pause([1])
    assert not cluster.serves(1, 0.5)
    cluster.unpause([1])
    assert cluster.serves(1, SURE_S)

    lease = {"metadata": {"name": "mine"}, "spec": {"holderIdentity": "me"}}
    with Https(at, LIMIT_S) as http:
        http.post(LEASES, lease)
        with pytest.raises(ProbeFailed, match="409"):
            http.post(LEASES, lease)
    cluster.kill([1])
    assert not cluster.serves(1, 0.5)
    cluster.restart([1])
    cluster.verify()
    with Https(at, LIMIT_S) as http:
        assert b"me" in http.get(f"{LEASES}/mine")

    cluster.kill([1])
    cluster.wipe([1])
    cluster.restart([1])
    cluster.verify()
    with Https(at, LIMIT_S) as http:
        with pytest.raises(ProbeFailed, match="404"):
            http.get(f"{LEASES}/mine")
        http.post(LEASES, lease)
    cluster.empty()
    with Https(at, LIMIT_S) as http, pytest.raises(ProbeFailed, match="404"):
        http.get(f"{LEASES}/mine")
