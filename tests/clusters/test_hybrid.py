"""Two clusters under one row of numbers: what is done to a node or a link reaches its part."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from lockbench.bench.suites import faults_of
from lockbench.clusters import registry
from lockbench.clusters.base import (
    Clocked,
    Cluster,
    ClusterError,
    ClusterPlan,
    Cuttable,
    Edge,
    Killable,
    Led,
    Measurable,
    Metered,
    Pausable,
    Replicated,
    Shapable,
    Shape,
    Syncing,
    Wipeable,
)
from lockbench.clusters.hybrid import HybridCluster, OurHybridCluster, make
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.shim import ClockedPods, SyncingPods
from lockbench.clusters.redis.nodes import RedisNodes
from lockbench.clusters.zookeeper.ensemble import ZooKeeperCluster
from lockbench.nemesis.registry import faults
from tests.clusters.waiting import frozen
from tests.eventually import eventually
from tests.nemesis.test_real import proven

GROUPS = 2
Calls = list[tuple[str, str, list[Any]]]


def plan(log_dir: str = "", **images: str) -> ClusterPlan:
    run_id = f"test-hybrid-{os.getpid()}"
    return ClusterPlan("redlock-zookeeper", 8, GROUPS, run_id, 3.0, log_dir, images=images)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """What reaches the parts, which do nothing: which part, what, and to which nodes or links."""
    said: Calls = []

    def note(of: type, name: str, answer: Any = None) -> None:
        def noted(self: PodCluster, chosen: Iterable[Any] = (), *_: object) -> Any:
            said.append((self.kind, name, list(chosen)))
            return answer

        monkeypatch.setattr(of, name, noted)

    for name in ("pause", "unpause", "kill", "restart"):
        note(PodCluster, name)
    for name in ("cut", "cut_one_way", "shape", "heal"):
        note(PodCluster, name)
    note(PodCluster, "reset", 2)
    note(RedisNodes, "wipe")
    note(ClockedPods, "shift_clock")
    note(SyncingPods, "lose_unsynced", {})
    return said


@pytest.mark.parametrize("name", ["pause", "unpause", "kill", "restart"])
def test_a_process_is_reached_under_its_own_number(calls: Calls, name: str) -> None:
    getattr(make(plan()), name)([7, 2, 6])
    assert calls == [("redis", name, [2]), ("zookeeper", name, [2, 1])]
    calls.clear()
    getattr(make(plan()), name)([8])
    assert calls == [("zookeeper", name, [3])]


def test_a_link_is_reached_under_its_own_numbers(calls: Calls) -> None:
    made = make(plan())
    both = [Edge(-1, 2), Edge(6, 8), Edge(-2, 7)]
    made.cut(both, "drop")
    made.shape(both, Shape(rate_kb_s=1))
    assert made.reset(both) == 4
    for name in ("cut", "shape", "reset"):
        mine = [(kind, links) for kind, call, links in calls if call == name]
        assert mine == [("redis", [Edge(-1, 2)]), ("zookeeper", [Edge(1, 3), Edge(-2, 2)])]
    calls.clear()
    made.cut_one_way([Edge(8, -1), Edge(5, -2)], "stall")
    assert calls == [
        ("zookeeper", "cut_one_way", [Edge(3, -1)]),
        ("redis", "cut_one_way", [Edge(5, -2)]),
    ]


def test_the_links_are_those_of_the_parts() -> None:
    edges = make(plan()).edges()
    assert len(edges) == len(set(edges))
    assert {e for e in edges if e.source < 0} == {
        Edge(-group, node) for group in range(1, GROUPS + 1) for node in range(1, 9)
    }
    between = {(e.source, e.target) for e in edges if e.source > 0}
    assert between == {(i, j) for i in (6, 7, 8) for j in (6, 7, 8) if i != j}


@pytest.mark.parametrize("edge", [Edge(1, 6), Edge(8, 5), Edge(-1, -2), Edge(-1, 9)])
def test_a_link_that_is_not_there_is_refused(calls: Calls, edge: Edge) -> None:
    with pytest.raises(ClusterError):
        make(plan()).cut([edge], "drop")
    assert calls == []


def test_what_only_redis_can_lose(calls: Calls) -> None:
    made = make(plan())
    made.wipe([1, 5])
    assert isinstance(made, OurHybridCluster)
    made.lose_unsynced([2])
    assert calls == [("redis", "wipe", [1, 5]), ("redis", "lose_unsynced", [2])]
    calls.clear()
    with pytest.raises(ClusterError, match="zookeeper-1 keeps its data"):
        made.wipe([1, 6])
    with pytest.raises(ClusterError, match="zookeeper-3"):
        made.lose_unsynced([8])
    with pytest.raises(ClusterError, match="no node 9"):
        made.kill([9])
    assert calls == []


def test_a_clock_is_reached_under_its_own_number(calls: Calls) -> None:
    made = make(plan())
    assert isinstance(made, OurHybridCluster)
    made.shift_clock([4, 8], 10.0)
    assert calls == [("redis", "shift_clock", [4]), ("zookeeper", "shift_clock", [3])]


def test_links_of_the_ensemble_are_healed_though_those_of_redis_are_not(
    calls: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: RedisNodes) -> None:
        raise ClusterError("does not heal")

    monkeypatch.setattr(RedisNodes, "heal", broken)
    with pytest.raises(ClusterError, match="does not heal"):
        make(plan()).heal()
    assert calls == [("zookeeper", "heal", [])]


@pytest.mark.parametrize("led", [None, 1, 3])
def test_the_leader_is_the_ensembles(monkeypatch: pytest.MonkeyPatch, led: int | None) -> None:
    monkeypatch.setattr(ZooKeeperCluster, "leader", lambda _: led)
    assert make(plan()).leader() == (None if led is None else led + 5)


def test_it_offers_what_its_images_can_do() -> None:
    ours = make(plan())
    for can in (Pausable, Killable, Wipeable, Cuttable, Shapable, Led, Measurable, Metered):
        assert isinstance(ours, can)
    assert isinstance(ours, Clocked)
    assert isinstance(ours, Syncing)
    assert not isinstance(ours, Replicated)
    for image in ("redis", "zookeeper"):
        swapped = make(plan(**{image: "another"}))
        assert isinstance(swapped, Cuttable)
        assert not isinstance(swapped, Clocked | Syncing)


def test_every_canonical_fault_applies_but_a_failover() -> None:
    made = make(plan())
    unfit = [
        name for name in faults_of("full") if faults()[name].unfit(made, faults()[name].defaults())
    ]
    assert unfit == ["failover"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with registry.make(plan(str(tmp_path_factory.mktemp("hybrid")))) as made:
        yield made


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        *("pause", "partition-drop", "partition-stall", "kill", "wipe", "clock-jump", "reply-lost"),
        *("power-loss", "partition-reject:shape=minority", "partition-drop:way=out", "latency"),
        *("pause:who=all", "reset", "partition-drop:shape=group", "clock-jump:who=all"),
    ],
)
def test_a_fault_is_proven_and_healed(running: Cluster, text: str) -> None:
    assert proven(running, text)
    running.verify()


@pytest.mark.docker
@pytest.mark.slow
def test_a_frozen_leader_is_replaced(running: Cluster) -> None:
    assert isinstance(running, HybridCluster)
    eventually(lambda: running.leader() is not None)
    before = running.leader()
    assert before in (6, 7, 8)
    with frozen(running, before):
        assert not running.serves(before, 0.5)
        eventually(lambda: running.leader() not in (None, before))
