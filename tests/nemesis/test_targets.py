"""Whom a fault strikes: of a mixture (here five Redis nodes and an ensemble of three, led by node
7) one kind of node, of every other cluster any."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from lockbench.clusters import hybrid
from lockbench.clusters.base import Cluster, ClusterPlan, Cut, Edge
from lockbench.clusters.redis import nodes as redis
from lockbench.clusters.redis import sentinel
from lockbench.clusters.zookeeper import ensemble as zookeeper
from lockbench.nemesis.base import Arena, Injection
from lockbench.nemesis.registry import faults
from lockbench.nemesis.schedule import parse
from lockbench.nemesis.targets import eligible, headed
from tests.nemesis.fakes import FakeClients

REDIS, ENSEMBLE = (1, 2, 3, 4, 5), (6, 7, 8)
LEADER = 7


def plan(topology: str, size: int) -> ClusterPlan:
    return ClusterPlan(topology, size, 2, f"test-{os.getpid()}", 3.0, "")


@pytest.fixture
def mixture(monkeypatch: pytest.MonkeyPatch) -> hybrid.HybridCluster:
    monkeypatch.setattr(hybrid.HybridCluster, "leader", lambda _: LEADER)
    return hybrid.make(plan("redlock-zookeeper", 8))


def aimed(cluster: Cluster, text: str, seed: int = 0) -> Arena:
    ((one,),) = parse(text)
    fault = faults()[one.name]
    assert fault.unfit(cluster, dict(one.parameters)) is None
    injection = Injection(one.name, 0.0, 6.0, seed, one.parameters)
    arena = Arena(cluster, FakeClients(), injection, 3.0)
    fault.aim(arena)
    return arena


@pytest.mark.parametrize(
    "text", ["pause", "kill", "restart", "partition-drop", "partition-stall", "reply-lost", "reset"]
)
def test_what_stops_or_cuts_off_strikes_the_leader(
    mixture: hybrid.HybridCluster, text: str
) -> None:
    assert aimed(mixture, text).targets == (LEADER,)


@pytest.mark.parametrize(
    ("text", "due"),
    [
        ("pause", True),
        ("pause:who=all", False),  # nobody is left to elect
        ("pause:who=minority", None),  # the leader may be among them
        ("restart:who=majority", False),
        ("partition-drop", True),
        ("partition-drop:shape=minority", False),
        ("partition-stall:shape=bridge", False),
        ("partition-reject:shape=clients", False),
    ],
)
def test_a_change_of_leader_is_asked_for_where_it_is_due(
    mixture: hybrid.HybridCluster, text: str, due: bool | None
) -> None:
    arena = aimed(mixture, text)
    rules = faults()[arena.injection.fault].rules_for(arena)
    wanted = LEADER in arena.targets if due is None else due
    assert ("leader-changed" in rules) is wanted
    assert {"proven", "grants-around", "hold-across"} <= set(rules)
    arena.injection = replace(arena.injection, duration_s=1.0)  # shorter than followers wait
    assert "leader-changed" not in faults()[arena.injection.fault].rules_for(arena)


def test_a_replica_has_to_take_the_place_of_a_primary_that_asks_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sentinel.SentinelCluster, "primary", lambda _: 1)
    monkeypatch.setattr(sentinel.SentinelCluster, "replicas", lambda _: (2,))
    watched = sentinel.make(plan("redis-sentinel", 5))
    for text, changed, late in (
        ("partition-drop", True, False),
        ("partition-stall", True, False),
        ("partition-stall:shape=clients", False, True),
    ):
        arena = aimed(watched, text)
        rules = faults()[arena.injection.fault].rules_for(arena)
        assert ("leader-changed" in rules, "held-back" in rules) == (changed, late)


def test_one_client_that_is_cut_off_has_to_have_a_part(mixture: hybrid.HybridCluster) -> None:
    assert aimed(mixture, "partition-drop:shape=group").facts.workers == [0]
    assert aimed(mixture, "partition-drop").facts.workers is None


@pytest.mark.parametrize("text", ["wipe", "power-loss", "clock-jump"])
def test_the_servers_that_decide_are_known(mixture: hybrid.HybridCluster, text: str) -> None:
    names = [mixture.node_name(node) for node in REDIS]
    assert aimed(mixture, f"{text}:who=one").facts.deciding == names


def test_a_leaders_clock_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zookeeper.ZooKeeperCluster, "leader", lambda _: 2)
    ensemble = zookeeper.make(plan("zookeeper", 3))
    assert aimed(ensemble, "clock-jump").facts.deciding == [ensemble.node_name(2)]


@pytest.mark.parametrize("text", ["wipe", "power-loss", "clock-jump", "clock-drift"])
def test_what_a_node_has_for_itself_is_taken_from_a_majority_that_stands_alone(
    mixture: hybrid.HybridCluster, text: str
) -> None:
    drawn = {aimed(mixture, text, seed).targets for seed in range(30)}
    assert len(drawn) > 1
    assert all(len(targets) == 3 and set(targets) <= set(REDIS) for targets in drawn)
    assert aimed(mixture, f"{text}:who=all").targets == REDIS


def test_words_count_among_one_kind(mixture: hybrid.HybridCluster) -> None:
    assert aimed(mixture, "pause:who=all").targets == ENSEMBLE
    assert len(aimed(mixture, "pause:who=majority").targets) == 2
    assert set(aimed(mixture, "kill:who=minority").targets) < set(ENSEMBLE)
    assert len(aimed(mixture, "wipe:who=minority").targets) == 2
    assert aimed(mixture, "partition-drop:shape=group").targets == (*REDIS, *ENSEMBLE)
    assert aimed(mixture, "partition-drop:shape=bridge").targets != ()


@pytest.mark.parametrize("text", ["partition-drop", "partition-drop:shape=minority"])
def test_a_partition_knows_no_link_between_the_kinds(
    mixture: hybrid.HybridCluster, text: str
) -> None:
    pairs = aimed(mixture, text).facts.pairs
    assert isinstance(pairs, list)
    assert {end for pair in pairs for end in pair} == set(ENSEMBLE)


def test_replies_are_lost_of_both_kinds(
    mixture: hybrid.HybridCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut: list[Edge] = []

    def one_way(_: object, edges: list[Edge], how: Cut) -> None:
        assert how == "drop"
        cut.extend(edges)

    monkeypatch.setattr(hybrid.HybridCluster, "cut_one_way", one_way)
    arena = aimed(mixture, "reply-lost")
    faults()["reply-lost"].begin(arena)
    assert cut == [Edge(node, -1) for node in (*REDIS, *ENSEMBLE)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("wipe:who=leader", "its nodes that stand alone have no leader"),
        ("clock-jump:who=leader", "its nodes that stand alone have no leader"),
        ("pause:who=primary", "it has no primary"),
        ("partition-drop:shape=ring", "a ring takes 4 nodes"),
    ],
)
def test_roles_that_a_kind_does_not_have(
    mixture: hybrid.HybridCluster, text: str, said: str
) -> None:
    ((one,),) = parse(text)
    assert faults()[one.name].unfit(mixture, dict(one.parameters)) == said


@pytest.mark.parametrize("kept", [False, True])
def test_of_one_kind_all_are_eligible(kept: bool) -> None:
    alone, joined = redis.make(plan("redlock", 5)), zookeeper.make(plan("zookeeper", 3))
    assert tuple(eligible(alone, kept=kept)) == (1, 2, 3, 4, 5)
    assert tuple(eligible(joined, kept=kept)) == (1, 2, 3)
    assert not headed(alone, kept=kept)
    assert headed(joined, kept=kept)
