"""What a machine lacks: one sentence, exit 254, and nothing half-written, by every command that
starts clusters."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command import lockbench
from tests.tiny_disk import fill, tiny_disk

__all__ = ["tiny_disk"]

STARTING = [
    "run --lock {lock}",
    "sweep --lock {lock} --clients 2,4",
    "conform {lock}",
    "explore --lock {lock}",
    "regress --base current --new current --lock {lock}",
]
ALL = [line.format(lock="redis-token") for line in STARTING]
ALL += ["suite quick", "break --topology redis", "clean --images", "doctor"]

NOT_LET_IN = """
import socket
def refuse(*_): raise PermissionError(13, "Permission denied")
socket.socket.connect = refuse
"""
NO_IMAGE = """
from lockbench.clusters import images
from lockbench.clusters.engine.docker import EngineError
def fail(*_): raise EngineError("the mirror cannot be reached: see that it can")
images.is_current = lambda engine, name: name not in ("redis", "toxiproxy", "go-sidecar")
images._build = fail
"""


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def refused(line: str, said: str, empty: Path, planted: str) -> None:
    ended = lockbench(*line.split(), planted=planted)
    assert ended.returncode == 254, ended.stdout + ended.stderr
    told = [one for one in (ended.stdout + ended.stderr).splitlines() if said in one]
    assert len(told) == 1, ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) <= 1
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize("line", ALL)
def test_without_docker(line: str, empty: Path) -> None:
    nowhere = "import os; os.environ['DOCKER_HOST'] = 'unix:///nowhere/docker.sock'"
    refused(line, "no Docker engine answers", empty, nowhere)


@pytest.mark.parametrize("line", ALL)
def test_without_the_right_to_use_docker(line: str, empty: Path) -> None:
    refused(line, "join the group `docker`", empty, NOT_LET_IN)


@pytest.mark.docker
@pytest.mark.parametrize("line", [*ALL[:-2], "run --lock redsync"])
def test_with_images_that_cannot_be_built(line: str, empty: Path) -> None:
    refused(line, "the mirror cannot be reached", empty, NO_IMAGE)


LIBRARIES = [line.format(lock="redis-py") for line in STARTING]
CACHE = """
from pathlib import Path
from lockbench.locks.shared import library
library.ENVIRONMENTS = Path({!r})
"""
REMEDY = "set XDG_CACHE_HOME to a folder that can be"


@pytest.mark.docker
@pytest.mark.parametrize("line", LIBRARIES)
def test_with_a_cache_that_cannot_be_written(line: str, empty: Path) -> None:
    # Below a file not even root makes a folder.
    refused(line, REMEDY, empty, CACHE.format("/dev/null/libraries"))


@pytest.mark.docker
@pytest.mark.parametrize("line", LIBRARIES)
def test_with_a_cache_that_is_full(line: str, empty: Path, tiny_disk: Path) -> None:
    (tiny_disk / "redis_py.lock").touch()
    fill(tiny_disk)
    before = sorted(tiny_disk.iterdir())
    refused(line, REMEDY, empty, CACHE.format(str(tiny_disk)))
    assert sorted(tiny_disk.iterdir()) == before
