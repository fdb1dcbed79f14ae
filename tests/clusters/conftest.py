from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from clusters import registry
from clusters.base import ClusterPlan
from clusters.pods.cluster import PodCluster


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str, int], PodCluster]]:
    """Starts clusters with two client groups, which end with the module and leave their logs."""
    running: list[PodCluster] = []

    def started(topology: str, size: int) -> PodCluster:
        logs = tmp_path_factory.mktemp(topology)
        plan = ClusterPlan(topology, size, 2, f"test-{os.getpid()}", 3.0, str(logs))
        cluster = registry.make(plan)
        assert isinstance(cluster, PodCluster)
        cluster.start()
        running.append(cluster)
        return cluster

    yield started
    for cluster in running:
        cluster.stop()
        names = [cluster.node_name(node) for node in cluster.nodes]
        saved = {path.name for path in Path(cluster.plan.log_dir).iterdir()}
        assert saved == {f"{name}{part}.log" for name in names for part in ("", "-link")}
