"""Clocks that are moved and power that is lost, on real servers of our own images."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from lockbench.clusters import registry
from lockbench.clusters.base import Clocked, ClusterError, ClusterPlan, Syncing
from lockbench.clusters.etcd import cluster as etcd
from lockbench.clusters.redis import nodes as redis
from lockbench.clusters.redis.nodes import OurRedisNodes
from lockbench.clusters.redis.protocol import ask, ask_once
from lockbench.clusters.redis.sentinel import SENTINELS, OurSentinelCluster
from lockbench.clusters.wire import Line
from lockbench.clusters.zookeeper import ensemble as zookeeper
from lockbench.clusters.zookeeper.ensemble import OurZooKeeperCluster
from lockbench.nemesis.base import Arena, Injection, NemesisError
from lockbench.nemesis.faults.failover import FAULT, NOBODY
from tests.clusters.conftest import Start
from tests.clusters.waiting import frozen
from tests.eventually import eventually
from tests.nemesis.fakes import FakeClients

docker = [pytest.mark.docker, pytest.mark.slow]
LIMIT_S = 10.0
EXACT_S = 0.5  # how far a reading may be off on a busy machine
WRITES = 200


@pytest.fixture
def three(start: Start) -> Iterator[OurRedisNodes]:
    """Three nodes whose clocks are true before and after the test."""
    started = start("redlock", 3)
    assert isinstance(started, OurRedisNodes)
    yield started
    started.shift_clock(started.nodes, 0)
    for node in started.nodes:
        eventually(partial(is_off, started, node, 0))


def is_off(cluster: Clocked, node: int, offset_s: float) -> bool:
    """Whether its clock is read as that far off, as it is in an answer that comes at once."""
    return abs(cluster.clock_offset_s(node, LIMIT_S) - offset_s) < EXACT_S


def plan(topology: str, **images: str) -> ClusterPlan:
    return ClusterPlan(topology, 3, 1, "test", 3.0, "logs", images)


def test_only_what_has_the_library_is_clocked() -> None:
    ours = redis.make(plan("redis"))
    assert isinstance(ours, Clocked)
    assert isinstance(ours, Syncing)
    swapped = redis.make(plan("redis", redis="redis:7.4"))
    assert not isinstance(swapped, Clocked | Syncing)
    assert not swapped.preloaded
    assert isinstance(zookeeper.make(plan("zookeeper")), Clocked)
    assert not isinstance(zookeeper.make(plan("zookeeper", zookeeper="zookeeper:3.9")), Clocked)
    assert not isinstance(zookeeper.make(plan("zookeeper")), Syncing)
    assert not isinstance(etcd.EtcdCluster(plan("etcd")), Clocked | Syncing)


@pytest.mark.parametrize("name", ["redis", "redlock"])
def test_the_variants_that_sync_say_so(name: str) -> None:
    topologies = registry.topologies()
    assert topologies[name].settings["appendfsync"] == "everysec"
    assert topologies[f"{name}-fsync"].settings["appendfsync"] == "always"


class TestRedis:
    pytestmark = docker

    def test_a_lease_follows_the_clock_forward_and_back(self, three: OurRedisNodes) -> None:
        at = three.address(1, 1)

        def left_s() -> float:
            return int(str(ask_once(at, LIMIT_S, "PTTL", "lease"))) / 1000

        ask_once(at, LIMIT_S, "SET", "lease", "1", "PX", "60000")
        three.shift_clock([1], 30)
        eventually(lambda: is_off(three, 1, 30))
        assert 0 < left_s() <= 30
        three.shift_clock([1], -60)
        eventually(lambda: is_off(three, 1, -60))
        assert 60 < left_s() <= 120
        three.shift_clock([1], 90)
        assert ask_once(at, LIMIT_S, "GET", "lease") is None

    def test_only_the_chosen_nodes_move_and_a_restart_changes_nothing(
        self, three: OurRedisNodes
    ) -> None:
        three.shift_clock([1, 3], -1000.25)
        three.kill([1])
        three.restart([1])
        for node, offset_s in ((1, -1000.25), (2, 0), (3, -1000.25)):
            eventually(partial(is_off, three, node, offset_s))

    def test_the_monotonic_clock_is_true(self, three: OurRedisNodes) -> None:
        def uptime_s() -> int:
            said = str(ask_once(three.address(0, 1), LIMIT_S, "INFO", "server"))
            return int(said.partition("uptime_in_seconds:")[2].split()[0])

        began = time.monotonic()
        at = three.address(1, 1)
        three.shift_clock([1], 3600)
        # Redis measures how long a client may block by its monotonic clock.
        with Line(at, 5.0) as line:
            before = time.monotonic()
            assert ask(line, "BLPOP", "nothing", "0.2") is None
            assert time.monotonic() - before > 0.1
        assert uptime_s() >= 3600, "what Redis takes from the wall clock has moved"
        assert time.monotonic() - began < 60

    def test_a_clock_cannot_be_moved_by_nonsense(self, three: OurRedisNodes) -> None:
        for offset_s in (float("nan"), float("inf"), 1e12):
            with pytest.raises(ClusterError, match="cannot be moved"):
                three.shift_clock([1], offset_s)
        with pytest.raises(ClusterError, match="no running node 9"):
            three.shift_clock([9], 1)
        with (
            frozen(three, 2),
            pytest.raises(ClusterError, match="redis-2 does not tell its time"),
        ):
            three.clock_offset_s(2, 0.2)

    def test_power_is_only_lost_by_the_dead(self, three: OurRedisNodes) -> None:
        with pytest.raises(ClusterError, match="redis-1 runs: kill it"):
            three.lose_unsynced([1])

    def test_a_killed_node_keeps_what_one_without_power_loses(self, three: OurRedisNodes) -> None:
        three.shift_clock([1], 0)
        assert self.write(three, 1) == WRITES
        three.kill([1])
        three.restart([1])
        assert self.kept(three, 1) == WRITES
        # Within a second of a sync nothing more is synced, however often it is tried.
        lost = 0
        for _ in range(5):
            self.write(three, 1)
            three.kill([1])
            lost = three.lose_unsynced([1])[1]
            three.restart([1])
            if lost:
                break
        assert lost > 0
        assert self.kept(three, 1) < WRITES
        three.verify()

    def test_what_was_synced_survives(self, three: OurRedisNodes) -> None:
        self.write(three, 2)
        synced = three._pods[2].links.synced
        size = max(synced().values())
        ask_once(three.address(1, 2), LIMIT_S, "SET", "after", "1")
        eventually(lambda: max(synced().values()) > size)
        three.kill([2])
        three.lose_unsynced([2])
        three.restart([2])
        assert self.kept(three, 2) == WRITES
        assert ask_once(three.address(1, 2), LIMIT_S, "GET", "after") == "1"

    def test_a_wiped_node_has_nothing_synced(self, three: OurRedisNodes) -> None:
        self.write(three, 3)
        three.kill([3])
        three.wipe([3])
        assert three._pods[3].links.synced() == {}
        three.restart([3])
        assert self.kept(three, 3) == 0

    def test_what_is_synced_before_it_is_answered_survives_everything(self, tmp_path: Path) -> None:
        made = registry.make(ClusterPlan("redis-fsync", 1, 1, "test-fsync", 3.0, str(tmp_path)))
        assert isinstance(made, OurRedisNodes)
        with made:
            for _ in range(3):
                assert self.write(made, 1) == WRITES
                made.kill([1])
                made.lose_unsynced([1])
                made.restart([1])
                assert self.kept(made, 1) == WRITES

    @staticmethod
    def write(cluster: OurRedisNodes, node: int) -> int:
        """Count acknowledged writes of this call's own keys, the old ones gone."""
        with Line(cluster.address(1, node), 10.0) as line:
            ask(line, "FLUSHALL")
            return sum(ask(line, "SET", f"key-{n}", "x" * 50) == "OK" for n in range(WRITES))

    @staticmethod
    def kept(cluster: OurRedisNodes, node: int) -> int:
        with Line(cluster.address(1, node), 10.0) as line:
            return sum(ask(line, "GET", f"key-{n}") is not None for n in range(WRITES))


class TestZooKeeper:
    pytestmark = docker

    def test_each_server_tells_its_own_time_and_leads_on(self, start: Start) -> None:
        cluster = start("zookeeper", 3)
        assert isinstance(cluster, OurZooKeeperCluster)
        leader = cluster.leader()
        for offset_s in (3600, -3600, 0):
            cluster.shift_clock([1], offset_s)
            for node, its_s in ((1, offset_s), (2, 0), (3, 0)):
                eventually(partial(is_off, cluster, node, its_s))
        assert cluster.leader() == leader, "elections are measured by the monotonic clock"


class TestSentinel:
    pytestmark = docker

    def test_sentinels_that_distrust_their_clocks_promote_nobody_and_say_so(
        self, start: Start
    ) -> None:
        cluster = start("sentinel", 5)
        assert isinstance(cluster, OurSentinelCluster)
        assert cluster.promotes_nobody() is None
        cluster.shift_clock([SENTINELS[0]], 10.0)
        eventually(lambda: cluster._distrusts(SENTINELS[0]))
        assert cluster.promotes_nobody() is None, "two of three still can"
        cluster.shift_clock(SENTINELS[1:], 10.0)
        eventually(cluster.promotes_nobody)
        arena = Arena(cluster, FakeClients(), Injection("failover", 0.0, 1.0), 2.0)
        with pytest.raises(NemesisError, match=NOBODY):
            FAULT.stage(arena)
        assert cluster.primary() == 1, "it lives"
