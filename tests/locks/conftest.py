"""Real clusters, each started once for all tests of this process, and only if a test needs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from clusters.base import Cluster, ClusterPlan
from clusters.registry import topologies
from locks import registry, sidecar
from locks.base import Address, System

LEASE_S = 2.0
GROUP = 1
# Of the libraries behind sidecars: one for each kind of server, and one for each language that runs
# in a container; set so that a call ends.
LIBRARIES = {"redis-py-safe", "kazoo-safe", "etcd3gw-safe"} | {
    "etcd-concurrency-is-owner",
    "redisson-rlock-safe",
}
# The others, set likewise where they can be; they take minutes, so `make fuzz` has them.
MORE_LIBRARIES = {
    "python-redis-lock-safe",
    "redis-lock-py-safe",
    "pottery-safe",
    "redlock-ng-safe",
    "tooz-safe",
} | {
    "redsync-safe",
    "bsm-redislock-safe",
    "etcd-concurrency",
    "jetcd",
    "curator-mutex",
    "curator-read-write",
    "redisson-fair",
    "redisson-fenced",
    "redisson-spin",
    "redisson-multilock",
    "redisson-rlock-sentinel",
}
# Recipes that leave one thing out or do it wrongly, and owe the rest as the recipe they vary does:
# `make fuzz` has them, too.
CONTROLS = {
    "etcd-no-recheck",
    "redis-fence-incr-first",
    "redis-no-owner",
    "redis-renew-no-owner",
    "redis-setnx-expire",
}
NODES = "LOCKBENCH_TEST_NODES"  # clusters that another process has started: topology → nodes


@dataclass(frozen=True)
class Running:
    """A cluster as tests see it; ``cluster`` is None where another process has started it."""

    nodes: list[Address]
    cluster: Cluster | None


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Running]]:
    given = json.loads(os.environ.get(NODES, "{}"))
    started: dict[str, Running] = {}
    with ExitStack() as stack:

        def start(topology: str) -> Running:
            if topology in given:
                return Running([Address(*node) for node in given[topology]], None)
            if topology not in started:
                plan = _plan(topology, tmp_path_factory.mktemp(topology))
                cluster = stack.enter_context(topologies()[topology].make(plan))
                nodes = [Address(*address) for address in cluster.addresses(GROUP)]
                started[topology] = Running(nodes, cluster)
            return started[topology]

        yield start
        sidecar.close_shared()  # before its servers, whose end it would tell at length


def _plan(topology: str, log_dir: Path) -> ClusterPlan:
    return ClusterPlan(
        topology=topology,
        size=topologies()[topology].default_size,
        groups=GROUP,
        run_id=f"test-locks-{os.getpid()}",
        lease_ttl_s=LEASE_S,
        log_dir=str(log_dir),
    )


def every_system() -> list[System]:
    """In the order of their topologies, so that clusters are started one by one. A semaphore of one
    permit owes what a mutex owes; a lock that lets two in without a fault owes nothing; and one
    class on other servers (``redlock-fsync``) is run once. A library left at its defaults waits as
    long as it likes. ``MORE_LIBRARIES`` and ``CONTROLS`` are not among them."""
    found: dict[object, System] = {}
    for plain in registry.systems().values():
        if plain.expectation("none", "double-grant").expected == "breaks":
            continue
        if plain.name in CONTROLS or (plain.prepare is not None and plain.name not in LIBRARIES):
            continue
        one = plain if plain.permits is None else registry.find(f"{plain.name}:permits=1")
        found.setdefault(plain.connect, one)
    return sorted(found.values(), key=lambda system: system.topologies)


def more_systems() -> list[System]:
    """``MORE_LIBRARIES`` and ``CONTROLS``."""
    found = [registry.find(name) for name in MORE_LIBRARIES | CONTROLS]
    return sorted(found, key=lambda system: (system.topologies, system.name))
