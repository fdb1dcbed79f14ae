"""Bad input at the command line: one sentence, exit 254, nothing started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_args

import pytest

from lockbench.cli.break_by_hand import plain_recipe
from lockbench.locks.base import Verdict
from lockbench.locks.registry import find, systems
from tests.command import lockbench


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("run --lock redis-tokn", "did you mean redis-token?"),
        ("run --lock redis-token --fault wip", "did you mean wipe?"),
        ("run --lock redis-token --clients 0", "--clients is 0"),
        ("run --lock redis-token --clients 100000", "10,000 or less"),
        ("run --lock redis-token --keys 1000000", "100,000 or less"),
        ("run --lock redis-token --fault pause:for=2x", "from 0.001 s"),
        ("break --do pauze", "did you mean pause?"),
        ("list --kind locks", "did you mean lock?"),
        ("list --system reddis", "did you mean redis?"),
        ("list --fault pauze", "did you mean pause?"),
        ("run --lock redis-token --ttl 0.5", "client timeout"),
        ("run --lock etcd --fault wipe", "wipe does not apply to etcd"),
        ("suite nope", "no suite is called 'nope'"),
        ("check /nonexistent", "/nonexistent"),
        ("break --topology moon", "no topology is called 'moon'"),
        ("break --do pause --compose x.yml", "leave --do out"),
        ("break --topology etcd --compose /nowhere/x.yml", "there is no folder"),
        ("run --lock redis-token --locustfile gone.py", "there is no such file"),
        ("run --lock redis-token --image redis", "NAME=REF"),
        ("run --lock etcd --with redlock", "name it with --lock"),
        ("run --lock etcd --with nothing", "names nothing that could be run"),
        ("explore --lock etcd --with redis=a:1", "none of these cases runs the image redis"),
        ("explore --lock etcd --minutes nan", "--minutes is more than 0"),
        ("guard redis --seconds inf", "the others more than 0"),
        (f"run --lock etcd --with {'A' * 5000}", "names nothing that could be run"),
        ("run", "--lock"),
        ("frobnicate", "frobnicate"),
    ],
)
def test_it_names_the_thing_and_the_remedy(line: str, said: str) -> None:
    ended = lockbench(*line.split())
    assert ended.returncode == 254
    assert said in " ".join((ended.stdout + ended.stderr).split())
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("first", ["redis-token", "redlock", "zookeeper", "etcd"])
def test_break_drives_the_plain_recipe(first: str) -> None:
    for topology in find(first).topologies:
        assert plain_recipe(topology) == first


def test_the_version_is_that_of_the_package() -> None:
    assert lockbench("--version").stdout == f"lockbench {version('lockbench')}\n"


def test_a_list_that_is_piped_has_a_line_for_a_lock_and_cuts_no_name() -> None:
    lines = lockbench("list", "--kind", "lock").stdout.splitlines()
    for name, system in systems().items():
        (row,) = [line.split() for line in lines if line.split()[:1] == [name]]
        assert (row[1] == "control") == ("control" in system.kinds_expected)
    assert "…" not in "".join(lines)


def test_a_list_is_of_what_was_asked_for() -> None:
    found = json.loads(lockbench("list", "--system", "etcd", "--fault", "wipe", "--json").stdout)
    assert not found["locks"], "an etcd is never wiped"
    found = json.loads(lockbench("list", "--system", "etcd", "--fault", "pause", "--json").stdout)
    assert {lock["family"] for lock in found["locks"]} == {"etcd"}
    assert [fault["name"] for fault in found["faults"]] == ["pause"]
    assert not found["suites"]


# What takes time to import, and who may: the rest is for commands that need it.
HEAVY = {
    "docker", "duckdb", "etcd3gw", "gevent", "kazoo", "locust", "msgspec", "numpy",
    "pandas", "pg8000", "psutil", "pydantic", "redis", "requests", "scipy", "toxiproxy",
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "may"),
    [
        ("--help", {"msgspec"}),
        ("frobnicate", {"msgspec"}),
        ("list", {"kazoo", "msgspec"}),
        ("run --lock redis-tokn", {"kazoo", "msgspec"}),
        ("check HISTORY", {"msgspec", "numpy", "psutil", "pydantic"}),
    ],
)
def test_what_a_command_imports(line: str, may: set[str], tmp_path: Path) -> None:
    history = tmp_path / "history.jsonl"
    history.write_text(
        '{"type":"invoke","process":0,"f":"acquire","key":"k","time":1}\n'
        '{"type":"ok","process":0,"f":"acquire","key":"k","time":2}\n'
    )
    words, seen = line.replace("HISTORY", str(history)).split(), tmp_path / "seen"
    script = (
        "import sys; from lockbench.cli.main import main\n"
        f"sys.argv = ['lockbench', *{words}]\n"
        "try: main()\n"
        f"except SystemExit: open({str(seen)!r}, 'w').write(' '.join(sys.modules))"
    )
    subprocess.run(
        [sys.executable, "-c", script], stdout=subprocess.DEVNULL, timeout=60, check=False
    )
    assert "lockbench.cli.main" in (found := set(seen.read_text().split()))
    assert found & HEAVY <= may


def test_a_strangers_folder_runs_nothing(tmp_path: Path) -> None:
    for name in ("checker", "report", "typer", "numpy", "history"):
        (tmp_path / f"{name}.py").write_text("print('a stranger was here')")
    for command in (["check", "."], ["list", "--kind", "suite"], ["run", "--lock", "redis-tokn"]):
        ended = subprocess.run(
            [sys.executable, "-m", "lockbench.cli.main", *command],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert "stranger" not in ended.stdout + ended.stderr
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


def test_the_list_names_the_faults_that_nobody_has_declared() -> None:
    found = json.loads(lockbench("list", "--undeclared", "--json").stdout)["undeclared"]
    assert found["redis-sentinel"] == ["bandwidth", "jitter", "latency", "slicer"]
    assert "redis-token" not in found
    assert "redis-sentinel: bandwidth, jitter" in lockbench("list", "--undeclared").stdout
    of_one = ("--system", "sentinel", "--fault", "jitter", "--json")
    fewer = json.loads(lockbench("list", "--undeclared", *of_one).stdout)["undeclared"]
    assert fewer["redis-sentinel"] == ["jitter"]
    assert set(fewer) < set(found)
    assert lockbench("list", "--undeclared", "--system", "nosuch").returncode == 254


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--clients", "5", "--fault", "kill"], "leave --fault and --clients out"),
        (["--shrink", "--times", "3"], "leave --times out"),
        (["--times", "3", "--json"], "no plan that can be played again"),
    ],
)
def test_a_replay_takes_nothing_that_it_would_not_heed(
    tmp_path: Path, words: list[str], said: str
) -> None:
    ended = lockbench("run", "--replay", str(tmp_path / "none"), *words)
    assert ended.returncode == 254
    assert said in ended.stdout + ended.stderr


def test_a_closed_standard_input_is_nobody_to_ask() -> None:
    code = "from lockbench.cli.main import main; main()"
    words = ["sh", "-c", 'exec "$@" <&-', "sh", sys.executable, "-c", code, "adr"]
    ended = subprocess.run(words, capture_output=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, b"")


def test_the_list_has_the_shape_of_the_contract() -> None:
    found = json.loads(lockbench("list", "--json").stdout)
    assert set(found) >= {"locks", "topologies", "faults", "workloads", "suites"}
    names = {lock["name"] for lock in found["locks"]}
    assert {"redis-token", "redis-no-owner", "redlock", "zookeeper", "etcd"} <= names
    for lock in found["locks"]:
        assert set(lock) >= {"name", "topologies", "family", "fence", "waits_by", "source"}
        for verdicts in lock["expectations"].values():
            for expected in verdicts.values():
                assert expected["expected"] in get_args(Verdict)
                assert expected["source"].strip()
    for fault in found["faults"]:
        assert set(fault) >= {"name", "parameters", "applies_to"}
    for suite in found["suites"]:
        assert suite["expected_seconds"] > 0
