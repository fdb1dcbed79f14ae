"""The commands of a file: run, failing, hanging, and undone whoever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import psutil
import pytest

from lockbench.clusters.base import ClusterError
from lockbench.clusters.elsewhere.kept import Kept
from lockbench.clusters.elsewhere.leftovers import end_all, undo
from lockbench.clusters.elsewhere.site import read
from tests.eventually import eventually

PLANTED = "planted-secret"
VARIABLE = "KEEPER_PASSWORD"


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cluster of three that nobody listens for, whose commands write what they were told."""
    monkeypatch.setenv(VARIABLE, PLANTED)
    hand = tmp_path / "hand"
    hand.write_text(
        f'#!/bin/sh\necho "$1 $2" >> {tmp_path}/log\n'
        f'case "$1 $2" in\n'
        f'"pause 2") echo "no such host, {PLANTED}"; exit 3;;\n'
        f'"pause 3") env > {tmp_path}/environment; sleep 60;;\n'
        f'"start 2") sleep 60 & echo $! > {tmp_path}/server;;\n'
        '"cut 1-3") echo "no rule"; exit 4;;\n'
        '"cut 3-1") sleep 60;;\n'
        "esac\n"
    )
    hand.chmod(0o755)
    lines = [f'{verb} = "{hand} {verb} {{node}}"' for verb in ("pause", "resume", "kill", "start")]
    lines += [f'{verb} = "{hand} {verb} {{node}}-{{peer-node}}"' for verb in ("cut", "join")]
    path = tmp_path / "cluster.toml"
    path.write_text(
        'topology = "etcd"\nnodes = ["127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"]\n'
        f'password-env = "{VARIABLE}"\n[hands]\nlimit-s = 60\n' + "\n".join(lines)
    )
    return path


@pytest.fixture
def kept(file: Path) -> Iterator[Kept]:
    one = Kept(read(file))
    yield one
    one.end()


def told(file: Path) -> list[str]:
    log = file.with_name("log")
    return log.read_text().splitlines() if log.exists() else []


def test_what_was_done_is_undone_and_then_forgotten(file: Path, kept: Kept) -> None:
    kept.hand("pause", [1])
    kept.hand("resume", [1])
    kept.hand("kill", [1])
    assert kept.end() == []
    assert told(file) == ["pause 1", "resume 1", "kill 1", "start 1"]


def test_a_command_that_fails_says_why_and_is_undone(file: Path, kept: Kept) -> None:
    with pytest.raises(ClusterError, match=r"of 127\.0\.0\.1:2 failed") as caught:
        kept.hand("pause", [1, 2])
    assert "(exit 3): no such host, ***" in str(caught.value)
    assert kept.end() == []
    assert sorted(told(file)) == ["pause 1", "pause 2", "resume 1", "resume 2"]


def test_a_command_that_hangs_is_ended_and_undone(file: Path) -> None:
    file.write_text(file.read_text().replace("limit-s = 60", "limit-s = 6"))
    kept = Kept(read(file))
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:3 did not end within 6 s"):
        kept.hand("pause", [3])
    assert kept.end() == []
    assert told(file) == ["pause 3", "resume 3"]
    assert PLANTED not in file.with_name("environment").read_text()


def test_a_cut_is_undone_for_the_two_servers_that_it_was_made_for(file: Path, kept: Kept) -> None:
    kept.hand("cut", [(1, 2), (2, 1)])
    kept.hand("join", [(1, 2)])
    assert kept.undo == {("cut", (2, 1))}
    assert kept.end() == []
    said = told(file)
    assert sorted(said[:2]) == ["cut 1-2", "cut 2-1"]
    assert said[2:] == ["join 1-2", "join 2-1"]


def test_a_cut_that_fails_or_hangs_is_undone(file: Path) -> None:
    file.write_text(file.read_text().replace("limit-s = 60", "limit-s = 6"))
    kept = Kept(read(file))
    for whom, said in (
        ((1, 3), r"for cut of 127\.0\.0\.1:1 and 127\.0\.0\.1:3 failed \(exit 4\): no rule"),
        ((3, 1), r"for cut of 127\.0\.0\.1:3 and 127\.0\.0\.1:1 did not end within 6 s"),
    ):
        with pytest.raises(ClusterError, match=said):
            kept.hand("cut", [whom])
    assert kept.end() == []
    assert told(file)[:2] == ["cut 1-3", "cut 3-1"]
    assert sorted(told(file)[2:]) == ["join 1-3", "join 3-1"]


def test_clean_undoes_every_command_everywhere(file: Path) -> None:
    undo(read(file))
    pairs = [f"join {one}-{other}" for one, other in permutations((1, 2, 3), 2)]
    nodes = [f"{verb} {node}" for verb in ("resume", "start") for node in (1, 2, 3)]
    assert sorted(told(file)) == [*pairs, *nodes]


def test_a_server_that_a_command_leaves_behind_lives_on(file: Path, kept: Kept) -> None:
    """It has the command's output open for as long as it runs."""
    kept.hand("kill", [2])
    kept.hand("start", [2])
    server = psutil.Process(int(file.with_name("server").read_text()))
    # A shell writes the number of its child before that has become the program.
    eventually(lambda: server.cmdline() == ["sleep", "60"], "the server runs")
    server.kill()  # NoSuchProcess: it was gone
    assert kept.end() == []


def test_what_was_agreed_to_is_done_though_the_file_is_edited(file: Path) -> None:
    site = read(file)
    file.write_text(file.read_text().replace("pause {node}", "other {node}"))
    kept = Kept(site)
    kept.hand("pause", [1])
    assert kept.end() == []
    assert told(file) == ["pause 1", "resume 1"]


def test_what_cannot_be_undone_is_told(file: Path, kept: Kept) -> None:
    kept.hand("kill", [1])
    file.with_name("hand").unlink()
    left = kept.end()
    assert left is not None
    assert "the command for start of 127.0.0.1:1 cannot be run" in left[0]


def test_the_commands_are_undone_when_the_bench_is_killed(file: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path\n"
        "from lockbench.clusters.elsewhere.kept import Kept\n"
        "from lockbench.clusters.elsewhere.site import read\n"
        "kept = Kept(read(Path(sys.argv[1]))); kept.hand('pause', [1]); print(flush=True)\n"
        "time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program, file], stdout=subprocess.PIPE) as bench:
        assert bench.stdout is not None
        bench.stdout.readline()
        bench.kill()
    eventually(lambda: told(file) == ["pause 1", "resume 1"])


def test_the_bench_undoes_them_when_the_keeper_is_killed(file: Path, kept: Kept) -> None:
    kept.hand("pause", [1])
    kept.hand("cut", [(2, 1)])
    os.kill(kept.pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match="the keeper of the cluster ended"):
        kept.hand("kill", [1])
    assert kept.end() is None
    assert end_all(read(file), kept.undo) == []
    assert sorted(told(file)) == ["cut 2-1", "join 2-1", "pause 1", "resume 1", "start 1"]
