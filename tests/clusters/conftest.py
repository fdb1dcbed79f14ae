from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lockbench.clusters import registry
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.pods.cluster import PodCluster

Start = Callable[[str, int], PodCluster]


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts clusters with two client groups, each once in a module, with which they end. They
    leave their logs."""
    running: dict[tuple[str, int], PodCluster] = {}

    def started(topology: str, size: int) -> PodCluster:
        if (topology, size) not in running:
            logs = tmp_path_factory.mktemp(topology)
            plan = ClusterPlan(topology, size, 2, f"test-{os.getpid()}", 3.0, str(logs))
            cluster = registry.make(plan)
            assert isinstance(cluster, PodCluster)
            cluster.start()
            running[topology, size] = cluster
        return running[topology, size]

    yield started
    for cluster in running.values():
        cluster.stop()
        names = [cluster.node_name(node) for node in cluster.nodes]
        saved = {path.name for path in Path(cluster.plan.log_dir).iterdir()}
        assert saved == {f"{name}{part}.log" for name in names for part in ("", "-link")}


@pytest.fixture
def one_redis(start: Start) -> PodCluster:
    return start("redis", 1)


@pytest.fixture
def three_etcd(start: Start) -> PodCluster:
    return start("etcd", 3)


@pytest.fixture
def three_zookeeper(start: Start) -> PodCluster:
    return start("zookeeper", 3)
