"""Valkey's topologies are those of Redis with other servers."""

from __future__ import annotations

import os
from dataclasses import fields
from pathlib import Path

import pytest

from lockbench.clusters import registry
from lockbench.clusters.base import ClusterPlan, Topology
from lockbench.clusters.redis.nodes import OurRedisNodes
from lockbench.clusters.redis.protocol import ask_once
from lockbench.locks.registry import find, systems
from tests.eventually import eventually

LIMIT_S = 10.0
OURS = {"name", "images", "make", "in_place_of"}


def of_redis() -> list[Topology]:
    return [t for t in registry.topologies().values() if t.images == ("redis",)]


def test_there_is_one_for_each_of_redis_and_it_differs_in_its_servers_alone() -> None:
    found = {t.in_place_of: t for t in registry.topologies().values() if t.in_place_of}
    assert set(found) == {t.name for t in of_redis()}
    for topology in of_redis():
        instead = found[topology.name]
        assert instead.images == ("valkey",)
        for field in fields(Topology):
            if field.name not in OURS:
                assert getattr(instead, field.name) == getattr(topology, field.name)


def test_every_lock_of_redis_runs_on_it_and_no_other() -> None:
    redis = {t.name for t in of_redis()}
    for system in systems().values():
        declared = [name for name in system.topologies if "valkey" not in name]
        instead = [name for name in system.topologies if "valkey" in name]
        assert len(instead) == len(redis.intersection(declared))
        assert system.topologies[0] == declared[0], "the usual one is the declared one"


def test_a_lock_of_ones_own_runs_on_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import replace\n"
        "from lockbench.locks.redis.token import SYSTEM as TOKEN\n"
        "SYSTEM = replace(TOKEN, name='mine', topologies=('redis',))\n"
    )
    assert find(str(file)).topologies == ("redis", "valkey")


@pytest.mark.docker
def test_a_server_is_valkey_its_clock_moves_and_its_file_is_a_record(tmp_path: Path) -> None:
    plan = ClusterPlan("valkey", 1, 1, f"test-{os.getpid()}", 3.0, str(tmp_path))
    with registry.make(plan) as cluster:
        assert isinstance(cluster, OurRedisNodes)
        assert cluster.node_name(1) == "valkey-1"
        at = cluster.address(1, 1)
        assert "server_name:valkey" in str(ask_once(at, LIMIT_S, "INFO", "server"))
        ask_once(at, LIMIT_S, "SET", "lease", "token", "PX", "60000")
        cluster.shift_clock([1], 30)
        assert int(str(ask_once(at, LIMIT_S, "PTTL", "lease"))) <= 30_000
        (log,) = cluster.server_logs()
        assert log.partial is None
        assert "lease" in {change.name for change in log.changes}


@pytest.mark.docker
@pytest.mark.parametrize("topology", ["redis", "valkey"])
def test_a_key_whose_time_is_over_was_not_deleted(topology: str, tmp_path: Path) -> None:
    plan = ClusterPlan(topology, 1, 1, f"test-{os.getpid()}", 3.0, str(tmp_path))
    with registry.make(plan) as cluster:
        assert isinstance(cluster, OurRedisNodes)
        at = cluster.address(1, 1)
        for name, px in (("short", "20"), ("long", "60000")):
            ask_once(at, LIMIT_S, "SET", name, "token", "PX", px)
        eventually(lambda: ask_once(at, LIMIT_S, "GET", "short") is None)
        ask_once(at, LIMIT_S, "EVAL", "return redis.call('DEL', KEYS[1])", "1", "long")
        (log,) = cluster.server_logs()
    gone = {c.name: c.how for c in log.changes if c.how in {"deleted", "expired"}}
    assert (gone["short"], gone["long"]) == ("expired", "deleted")
