"""A session fails when something of it is left at its end: the summary names it (``left behind``).

Seen: entries of the temporary folder, processes, containers, networks. A session has a temporary
folder of its own, and a mark in its environment that its processes inherit, so sessions beside each
other are not taken for one. After tests on real clusters, the containers and networks of this
process, and those that lost their owner meanwhile. Not seen: who ignores TMPDIR, a process that
cleared its environment. Kept on purpose: the folder of ``lockbench.bench.private``, and pytest's
own.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import uuid
from collections.abc import Mapping, Set
from pathlib import Path

import psutil
import pytest

from lockbench.clusters.engine import owner
from lockbench.clusters.engine import processes as running
from lockbench.clusters.engine.docker import Engine, EngineError
from tests.eventually import eventually

MARK = "LOCKBENCH_TESTS"
KEPT = (f"lockbench-{os.getuid()}", "pytest-of-")
GRACE_S = 20.0  # for processes whose end has begun
REAPED_S = 60.0  # for what has lost its owner: the next bench on this machine removes it
_before = pytest.StashKey[Set[object]]()
_left = pytest.StashKey[list[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    base: Path = session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
    folder = base / "tmp"
    folder.mkdir()
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
    # A session that a test starts is a part of this one.
    os.environ[MARK] = f"{os.environ.get(MARK, '')}/{uuid.uuid4().hex}"


def pytest_collection_finish(session: pytest.Session) -> None:
    if _on_clusters(session):
        session.stash[_before] = set(_of_engine(Engine()))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    found = processes()  # before their folders, which those that end may clear
    left = session.stash[_left] = entries(Path(os.environ["TMPDIR"])) + found
    if _before in session.stash:
        engine, before = Engine(), session.stash[_before]
        with contextlib.suppress(AssertionError):
            eventually(lambda: set(_of_engine(engine)) <= before, limit_s=REAPED_S)
        left += [line for line in _of_engine(engine) if line not in before]
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    left = terminalreporter._session.stash.get(_left, [])  # type: ignore[union-attr]
    if left:
        terminalreporter.section("left behind")
        for line in left:
            terminalreporter.write_line(line)


def entries(folder: Path) -> list[str]:
    """What is in the temporary folder."""
    return [str(path) for path in sorted(folder.iterdir()) if not path.name.startswith(KEPT)]


def processes() -> list[str]:
    """What this session has started and does not end. It is killed, so that it disturbs nobody."""
    with contextlib.suppress(AssertionError):
        eventually(lambda: not _marked(), limit_s=GRACE_S)
    left = []
    for process in _marked():
        left.append(f"process {process.pid}: {' '.join(process.cmdline())}")
        process.kill()
    return left


def _marked() -> list[psutil.Process]:
    return [
        process
        for process, mark in running.marked(MARK)
        if mark.startswith(os.environ[MARK]) and process.pid != os.getpid()
    ]


def _on_clusters(session: pytest.Session) -> bool:
    return any(item.get_closest_marker("docker") for item in session.items)


def _of_engine(engine: Engine) -> list[str]:
    """The containers and networks of this process, and of owners that have ended."""
    found = []
    try:
        for container in engine.containers({owner.OURS: ""}):
            state = engine.state(container)
            if state is not None and _is_left(state.labels):
                found.append(f"container {container.name}")
        networks = engine.networks({owner.OURS: ""})
        found += [f"network {network.name}" for network in networks if _is_left(network.labels)]
    except EngineError as error:
        found.append(f"unknown what: {error}")
    return found


def _is_left(labels: Mapping[str, str]) -> bool:
    return labels.get(owner.OWNER) == owner.me() or owner.orphaned(labels)
