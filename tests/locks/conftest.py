"""Real clusters, each started once for all tests of this process, and only if a test needs it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from lockbench.bench.duties import GROUP, LEASE_S, Running
from lockbench.bench.judge import expectation
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.registry import topologies
from lockbench.locks import registry
from lockbench.locks.base import Address, System
from lockbench.locks.shared import sidecar
from tests.locks.asking import Room
from tests.locks.fakes import FakeRedis

NODES = "LOCKBENCH_TEST_NODES"  # clusters that another process has started: topology → nodes


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


@pytest.fixture
def room(running: Callable[[str], Running]) -> Iterator[Callable[[str], Room]]:
    with ExitStack() as stack:
        yield lambda topology: Room(running(topology), stack)


@pytest.fixture
def server() -> Iterator[FakeRedis]:
    with FakeRedis() as fake:
        yield fake


@pytest.fixture
def servers() -> Iterator[list[FakeRedis]]:
    """Five, as Redlock has them."""
    fakes = [FakeRedis() for _ in range(5)]
    yield fakes
    for fake in fakes:
        fake.thaw()
        fake.stop()


def _plan(topology: str, log_dir: Path) -> ClusterPlan:
    return ClusterPlan(
        topology=topology,
        size=topologies()[topology].default_size,
        groups=GROUP,
        run_id=f"test-locks-{os.getpid()}",
        lease_ttl_s=LEASE_S,
        log_dir=str(log_dir),
    )


def why_untested(system: System) -> str:
    """Why the conformance tests have a lock not at all; empty where they have it."""
    if system.untested:
        return system.untested
    if expectation(system, "none", "double-grant").expected == "breaks":
        return "it lets two in without a fault, so it owes nothing"
    if f"{system.name}-safe" in registry.systems():
        return f"at its defaults it waits as long as it likes; tested is {system.name}-safe"
    alike = [s for s in registry.systems().values() if s.connect == system.connect]
    first = min(alike, key=lambda one: one.variant)
    return "" if first.name == system.name else f"only its servers are not those of {first.name}"


def is_control(system: System) -> bool:
    """Whether it leaves one thing out, or does it wrongly."""
    said = [e for verdicts in system.expectations.values() for e in verdicts.values()]
    return any(one.kind == "control" for one in said)


def _chosen(*, often: bool) -> list[System]:
    """In the order of their topologies, so that clusters are started one by one. A semaphore of one
    permit owes what a mutex owes."""
    found = [
        system
        if system.permits is None or "permits" not in system.parameters
        else registry.find(f"{system.name}:permits=1")
        for system in registry.systems().values()
        if not why_untested(system)
        if often == (system.represents or (system.prepare is None and not is_control(system)))
    ]
    return sorted(found, key=lambda system: (system.topologies, system.name))


def every_system() -> list[System]:
    """What is tested each time: recipes, and the libraries that represent the others."""
    return _chosen(often=True)


def more_systems() -> list[System]:
    """The other libraries and the controls, which take minutes: ``make fuzz`` has them."""
    return _chosen(often=False)
