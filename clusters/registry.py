"""Every topology there is, found by looking at the modules of this package.

A module offers ``TOPOLOGY``, or ``TOPOLOGIES`` where one file makes several.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType, ModuleType

import clusters
from clusters.base import Cluster, ClusterError, ClusterPlan, Topology


@cache
def topologies() -> Mapping[str, Topology]:
    """Return every topology by name, in the order of their names."""
    names = sorted(module.name for module in pkgutil.iter_modules(clusters.__path__))
    modules = [importlib.import_module(f"{clusters.__name__}.{name}") for name in names]
    return MappingProxyType(dict(collect(modules)))


def collect(modules: Iterable[ModuleType]) -> Mapping[str, Topology]:
    """Gather the topologies of modules. ClusterError: two have the same name."""
    found: dict[str, tuple[Topology, str]] = {}
    for module in modules:
        offered = [*getattr(module, "TOPOLOGIES", ())]
        if hasattr(module, "TOPOLOGY"):
            offered.append(module.TOPOLOGY)
        for topology in offered:
            if topology.name in found:
                other = found[topology.name][1]
                raise ClusterError(
                    f"two topologies are called {topology.name}: in {other} and {module.__name__}"
                )
            found[topology.name] = (topology, module.__name__)
    return {name: found[name][0] for name in sorted(found)}


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
