"""Faults by hand on a real cluster, at the prompt and from another terminal."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lockbench.cli.break_by_hand import Prompt
from lockbench.clusters import registry
from lockbench.clusters.base import Cluster, ClusterPlan
from lockbench.clusters.engine.docker import Engine
from lockbench.nemesis.by_hand import ByHand
from tests.eventually import eventually

pytestmark = [pytest.mark.docker, pytest.mark.slow]
LIMIT_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    logs = tmp_path_factory.mktemp("redlock")
    plan = ClusterPlan("redlock", 3, 1, f"test-{os.getpid()}", 3.0, str(logs))
    with registry.make(plan) as made:
        yield made


@pytest.fixture
def prompt(cluster: Cluster) -> Iterator[Prompt]:
    made = Prompt(ByHand(cluster, 3.0))
    yield made
    made.answer("heal")


def test_a_fault_is_on_until_it_is_healed(cluster: Cluster, prompt: Prompt) -> None:
    said = prompt.answer("pause:who=all")
    assert said is not None
    assert "redis-1, redis-2, redis-3" in said
    assert "proven" in said
    assert not cluster.serves(1, 0.3)
    assert "on: pause:who=all" in (prompt.answer("status") or "")
    assert prompt.answer("heal pause") == "pause:who=all is healed"
    eventually(lambda: cluster.serves(1, 1.0))
    assert prompt.answer("heal") == "no fault is on"


def test_with_a_time_it_heals_by_itself(cluster: Cluster, prompt: Prompt) -> None:
    prompt.answer("partition-drop:shape=clients:for=0.5")
    end = time.monotonic() + LIMIT_S
    while "on:" in (prompt.answer("status") or ""):
        assert time.monotonic() < end
        time.sleep(0.05)
    eventually(lambda: cluster.serves(1, 1.0, 1))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("pausee", "did you mean pause"),
        ("client-pause", "nobody but you uses this cluster"),
        ("failover", "does not apply"),
        ("pause+kill", "one fault at a time"),
        ("kill:times=3:every=0.5", "by hand a fault begins now, once"),
        ("pause:at=9", "by hand a fault begins now, once"),
        ("pause:strikes=resource", "at the lock's own servers"),
        ("heal kill", "no kill is on"),
        ("help", "heal everything"),
    ],
)
def test_what_is_said_to_other_words(prompt: Prompt, line: str, said: str) -> None:
    assert said in (prompt.answer(line) or "")


def test_two_faults_that_contradict_each_other(prompt: Prompt) -> None:
    prompt.answer("pause:who=one")
    assert "pause:who=one is on and takes hold of servers" in (prompt.answer("kill") or "")


def test_from_another_terminal_and_gone_after_ctrl_c(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "lockbench.cli.main", "break"]
    environment = os.environ | {"TMPDIR": str(tmp_path), "XDG_RUNTIME_DIR": ""}
    stand = subprocess.Popen(
        [*words, "--topology", "redis"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        end = time.monotonic() + LIMIT_S
        while not list(tmp_path.glob("lockbench-*/break-*.sock")):
            assert time.monotonic() < end
            time.sleep(0.05)

        def tell(command: str) -> str:
            return subprocess.run(
                [*words, "--do", command],
                capture_output=True,
                text=True,
                env=environment,
                check=True,
            ).stdout

        assert "proven" in tell("pause")
        assert "on: pause" in tell("status")
        stand.send_signal(signal.SIGINT)
        out, _ = stand.communicate(timeout=LIMIT_S)
    finally:
        stand.kill()
        stand.wait()
    assert "the cluster is gone" in out
    mine = f"{stand.pid}:"
    left = [
        c.name
        for c in Engine().containers({"lockbench": "1"})
        if (state := Engine().state(c)) and state.labels.get("lockbench.owner", "").startswith(mine)
    ]
    assert left == []
    nobody = subprocess.run(
        [*words, "--do", "status"], capture_output=True, text=True, env=environment, check=False
    )
    assert nobody.returncode == 254
    assert "no cluster is running" in nobody.stderr
