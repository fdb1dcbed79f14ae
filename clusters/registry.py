"""Every topology there is: whatever a module of this package declares as ``TOPOLOGY``, or as
``TOPOLOGIES`` where one file makes several."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from lockbench import clusters, declarations
from lockbench.clusters.base import Cluster, ClusterError, ClusterPlan, Topology


@cache
def topologies() -> Mapping[str, Topology]:
    """Every topology by name, in the order of their names."""
    return MappingProxyType(declarations.declared(clusters, "TOPOLOGY", Topology))


def make(plan: ClusterPlan) -> Cluster:
    """Make the cluster of a plan, not started. ClusterError: no such topology, or size."""
    known = topologies()
    topology = known.get(plan.topology)
    if topology is None:
        raise ClusterError(f"no topology is called {plan.topology}; there are {', '.join(known)}")
    if plan.size not in topology.sizes:
        sizes = ", ".join(map(str, topology.sizes))
        raise ClusterError(f"{plan.topology} is made of {sizes} nodes, not of {plan.size}")
    return topology.make(plan)
