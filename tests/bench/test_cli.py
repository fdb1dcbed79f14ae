"""Bad input at the command line: one sentence, exit 254, nothing started."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest


def lockbench(*words: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bench.cli", *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=env,
    )


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --lock redis-tokn", "did you mean redis-token?"),
        ("run --lock redis-token --fault wip", "did you mean wipe?"),
        ("run --lock redis-token --clients 0", "--clients is 0"),
        ("run --lock redis-token --ttl 0.5", "client timeout"),
        ("run --lock etcd --fault wipe", "wipe does not apply to etcd"),
        ("suite nope", "no suite is called 'nope'"),
        ("check /nonexistent", "/nonexistent"),
        ("break --topology moon", "no topology is called 'moon'"),
        ("run --lock redis-token --image redis", "NAME=REF"),
        ("run", "--lock"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_it_names_the_thing_and_the_remedy(line: str, said: str) -> None:
    ended = lockbench(*line.split())
    assert ended.returncode == 254
    assert said in " ".join((ended.stdout + ended.stderr).split())
    assert "Traceback" not in ended.stderr


def test_with_json_standard_output_is_json_at_every_ending() -> None:
    ended = lockbench("run", "--lock", "redis-tokn", "--json")
    assert json.loads(ended.stdout)["exit"] == 254


def test_without_an_engine_it_says_so(tmp_path: Path) -> None:
    ended = lockbench(
        "run",
        "--lock",
        "redis-token",
        env={"DOCKER_HOST": f"unix://{tmp_path}/nobody", "PATH": ""},
    )
    assert ended.returncode == 254
    assert "no Docker engine answers" in ended.stderr
    assert len(ended.stderr.splitlines()) <= 4


def test_the_list_has_the_shape_of_the_contract() -> None:
    found = json.loads(lockbench("list", "--json").stdout)
    assert set(found) >= {"locks", "topologies", "faults", "workloads", "suites"}
    names = {lock["name"] for lock in found["locks"]}
    assert {"redis-token", "redis-no-owner", "redlock", "zookeeper", "etcd"} <= names
    for lock in found["locks"]:
        assert set(lock) >= {"name", "topologies", "family", "fence", "waits_by", "source"}
        for verdicts in lock["expectations"].values():
            for expected in verdicts.values():
                assert expected["expected"] in {"holds", "breaks", "may-break", "n/a"}
                assert expected["source"].strip()
    for fault in found["faults"]:
        assert set(fault) >= {"name", "parameters", "applies_to"}
    for suite in found["suites"]:
        assert suite["expected_seconds"] > 0
