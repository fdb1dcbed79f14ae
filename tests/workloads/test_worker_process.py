"""The process of a worker on this machine is killed with what it has started."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from lockbench.workloads import worker_process
from lockbench.workloads.worker_process import LoadError, LocalWorker
from tests.eventually import eventually


class Child:
    """A process that ends when it is told to."""

    pid = 1

    def send_signal(self, number: object) -> None:
        pass

    def wait(self, limit_s: float) -> bool:
        return True


def worker(folder: Path, sidecar: subprocess.Popen[bytes]) -> LocalWorker:
    child: Any = Child()
    made = LocalWorker(3, child, folder)
    made.sidecars = [psutil.Process(sidecar.pid)]
    return made


def test_a_sidecar_that_nobody_buries_is_dead(tmp_path: Path) -> None:
    """As where the first process of a container does not reap."""
    with subprocess.Popen([sys.executable, "-c", ""]) as sidecar:
        process = psutil.Process(sidecar.pid)
        eventually(lambda: process.status() == psutil.STATUS_ZOMBIE)
        worker(tmp_path, sidecar).kill()


def test_a_sidecar_that_lives_on_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_process, "END_S", 0.1)
    command = [sys.executable, "-c", "input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as sidecar:
        try:
            with pytest.raises(LoadError, match="the sidecar of worker 3 does not die"):
                worker(tmp_path, sidecar).kill()
        finally:
            sidecar.kill()
