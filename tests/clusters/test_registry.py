import pytest

from lockbench.clusters import registry
from lockbench.clusters.base import ClusterError, ClusterPlan


def plan(topology: str, size: int) -> ClusterPlan:
    return ClusterPlan(topology, size, 1, "run", 3.0, "logs")


def test_every_topology_is_found_under_its_own_name() -> None:
    found = registry.topologies()
    assert {"redis", "redlock", "zookeeper", "etcd"} <= set(found)
    assert all(name == topology.name for name, topology in found.items())
    assert all(topology.default_size in topology.sizes for topology in found.values())
    assert all(topology.settings for topology in found.values())


def test_what_does_not_exist_is_refused_by_name() -> None:
    with pytest.raises(ClusterError, match="no topology is called nosuch; there are consul, "):
        registry.make(plan("nosuch", 3))
    with pytest.raises(ClusterError, match="etcd is made of 3, 5 nodes, not of 4"):
        registry.make(plan("etcd", 4))


def test_making_a_cluster_touches_nothing() -> None:
    cluster = registry.make(plan("redlock", 5))
    assert list(cluster.nodes) == [1, 2, 3, 4, 5]
    assert cluster.node_name(3) == "redis-3"
    cluster.stop()
