"""Processes that are found by their environment, and can be given signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from lockbench.clusters.engine.processes import marked
from tests.eventually import eventually

MARK = "LOCKBENCH_TEST_PROCESSES"


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    process = subprocess.Popen(command, env={MARK: "here"})
    yield process
    process.kill()
    process.wait()


def found() -> list[psutil.Process]:
    return [process for process, value in marked(MARK) if value == "here"]


def test_a_program_is_found_while_it_lives(program: subprocess.Popen[bytes]) -> None:
    eventually(lambda: [one.pid for one in found()] == [program.pid])
    assert not [one for one, value in marked(MARK) if value != "here"]
    program.kill()
    program.wait()
    assert found() == []


def test_a_number_that_was_used_before_is_the_new_program(
    program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """psutil remembers one that had this number."""
    eventually(found)
    before = psutil.Process(program.pid)
    monkeypatch.setattr(before, "_ident", (program.pid, 0.0))
    monkeypatch.setitem(vars(psutil)["_pmap"], program.pid, before)
    by_psutil = {one.pid: one for one in psutil.process_iter()}[program.pid]
    with pytest.raises(psutil.NoSuchProcess):
        by_psutil.send_signal(signal.SIGSTOP)
    (process,) = found()
    process.send_signal(signal.SIGSTOP)
    eventually(lambda: psutil.Process(program.pid).status() == psutil.STATUS_STOPPED)
