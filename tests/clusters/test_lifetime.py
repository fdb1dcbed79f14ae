"""Nothing is left behind, however a cluster ends, and nothing else is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lockbench.clusters import images
from lockbench.clusters.base import ClusterError, ClusterPlan
from lockbench.clusters.engine import owner, ports, reaper
from lockbench.clusters.engine.docker import (
    Container,
    ContainerState,
    Engine,
    EngineError,
    Network,
)
from lockbench.clusters.redis.nodes import RedisNodes
from tests.eventually import eventually

DEAD = f"{os.getpid()}:1:{owner.place()}"


def plan(tmp_path: Path, **images_: str) -> ClusterPlan:
    return ClusterPlan("redis", 1, 1, f"life-{os.getpid()}", 3.0, str(tmp_path), images_)


def left(run_id: str, engine: Engine) -> list[str]:
    mine = {owner.RUN: run_id}
    return [c.name for c in engine.containers(mine)] + [n.name for n in engine.networks(mine)]


# --- whom the reaper takes -----------------------------------------------------------------------


SCENE: dict[str, dict[str, str]] = {
    "orphan": {owner.OURS: "1", owner.OWNER: DEAD},
    "mine": owner.labels("run", "cluster"),
    "elsewhere": {owner.OURS: "1", owner.OWNER: "1:1:far/boot/1"},
    "stranger": {owner.OWNER: DEAD},
    "plain": {},
}


def reaped(*, everything: bool) -> list[str]:
    """The engine answers with all there is, as if its filter did not work."""
    engine, said = Mock(spec=Engine), list[str]()
    engine.containers.return_value = [Container(name, name) for name in SCENE]
    engine.networks.return_value = [
        Network(name, f"n-{name}", labels) for name, labels in SCENE.items()
    ]
    engine.state.side_effect = lambda container: ContainerState(
        True, True, 1, labels=SCENE[container.name]
    )
    removed = reaper.reap(said.append, engine=engine, all=everything)
    calls = [*engine.remove.mock_calls, *engine.remove_network.mock_calls]
    assert sorted(removed) == sorted(one.args[0].name for one in calls)
    assert len(said) == len(removed)
    return sorted(removed)


def test_only_what_has_no_living_owner_is_removed() -> None:
    assert reaped(everything=False) == ["n-orphan", "orphan"]


def test_everything_is_everything_of_ours() -> None:
    assert reaped(everything=True) == sorted(
        prefix + name for name in ("orphan", "mine", "elsewhere") for prefix in ("", "n-")
    )


# --- real ones -----------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[Engine]:
    with Engine() as found:
        yield found


@pytest.mark.docker
def test_a_start_that_fails_leaves_nothing_and_says_why(tmp_path: Path, engine: Engine) -> None:
    wrong = plan(tmp_path, redis=images.recipes()["toxiproxy"].ref)
    with pytest.raises(ClusterError, match="redis-server"):
        RedisNodes(wrong).start()
    assert left(wrong.run_id, engine) == []


@pytest.mark.docker
def test_a_server_that_does_not_come_up_is_quoted(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = RedisNodes(plan(tmp_path), {"appendonly": "perhaps"})
    verify = cluster._verify

    def ended() -> bool:
        state = engine.state(cluster._server(1))
        return state is not None and not state.running

    def verify_what_has_ended(_: float) -> None:
        eventually(ended)
        verify(0.0)

    monkeypatch.setattr(cluster, "_verify", verify_what_has_ended)
    with pytest.raises(ClusterError) as caught:
        cluster.start()
    said = str(caught.value)
    assert said.startswith("no write and read through the link of the harness to redis-1: ")
    assert "argument must be 'yes' or 'no'" in said
    assert "argument must be 'yes' or 'no'" in (tmp_path / "redis-1.log").read_text()
    assert left(plan(tmp_path).run_id, engine) == []


@pytest.mark.docker
def test_an_interrupted_start_leaves_nothing(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    cluster = RedisNodes(plan(tmp_path))
    monkeypatch.setattr(cluster, "_verify", interrupt)
    with pytest.raises(KeyboardInterrupt):
        cluster.start()
    assert left(cluster.plan.run_id, engine) == []
    assert all(ports.is_free(*address) for address in cluster.addresses(0))


@pytest.mark.docker
def test_a_frozen_cluster_stops(tmp_path: Path, engine: Engine) -> None:
    cluster = RedisNodes(plan(tmp_path))
    with cluster:
        assert len(left(cluster.plan.run_id, engine)) == 3
        cluster.pause([1])
    assert left(cluster.plan.run_id, engine) == []
    cluster.stop()  # twice is no error


OWNER = """
import signal
import sys
from lockbench.clusters.base import ClusterPlan
from lockbench.clusters.redis.nodes import RedisNodes
cluster = RedisNodes(ClusterPlan("redis", 1, 1, sys.argv[1], 3.0, sys.argv[2]))
# Whoever runs the tests in the background of a shell leaves it ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
print("begin", flush=True)
cluster.start()
cluster.pause([1])
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def bystander(engine: Engine) -> Iterator[Container]:
    """A container that is not ours, though it is called so."""
    image = images.recipes()["redis"].ref
    made = engine.create_container(image, f"lockbench-bystander-{os.getpid()}")
    yield made
    engine.remove(made)


def busy_engine(*, ends: bool) -> Any:
    """A network that is in use until somebody else has removed its container, or for ever."""
    engine = Mock(spec=Engine)
    engine.containers.return_value = []
    engine.networks.return_value = [Network("orphan", "n-orphan", SCENE["orphan"])]
    refusal = EngineError("it has active endpoints")
    engine.remove_network.side_effect = [refusal, None] if ends else refusal
    return engine


def test_what_another_start_is_removing_is_waited_for() -> None:
    assert reaper.reap(engine=busy_engine(ends=True)) == ["n-orphan"]


def test_what_cannot_be_removed_is_told_and_stops_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reaper, "AGAIN_S", 0.0)
    said: list[str] = []
    assert reaper.reap(said.append, engine=busy_engine(ends=False)) == []
    assert "n-orphan" in said[0]
    assert "it has active endpoints" in said[0]
    with pytest.raises(EngineError, match="active endpoints"):
        reaper.reap(engine=busy_engine(ends=False), must=True)


def owning(run_id: str, tmp_path: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", OWNER, run_id, str(tmp_path)]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )


@pytest.mark.docker
def test_what_a_killed_owner_leaves_is_reaped(
    tmp_path: Path, engine: Engine, bystander: Container
) -> None:
    run_id = f"killed-{os.getpid()}"
    with owning(run_id, tmp_path) as process, RedisNodes(plan(tmp_path / "mine")) as mine:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(2)] == ["begin", "up"]
        reaper.reap(engine=engine)
        assert len(left(run_id, engine)) == 3, "its owner lives"
        process.kill()
        process.wait()
        removed = reaper.reap(engine=engine)
        # Another bench that starts removes it too.
        assert len([name for name in removed if run_id in name]) <= 3
        assert left(run_id, engine) == []
        mine.verify()
        assert engine.state(bystander) is not None


@pytest.mark.docker
@pytest.mark.parametrize("after_s", [0.05, 0.3])
def test_a_start_ends_cleanly_at_ctrl_c(tmp_path: Path, engine: Engine, after_s: float) -> None:
    run_id = f"ctrl-c-{os.getpid()}"
    with owning(run_id, tmp_path) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(after_s)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == -signal.SIGINT
    assert left(run_id, engine) == []
