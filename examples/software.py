"""Starts the software that the examples test, in a version with a known bug and in one without.

Each example is a folder: the test, the program that it tests, and a folder for each version of the
software with its pins. A version is installed as lock libraries are (``locks/shared/library.py``).
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from lockbench import BrokenPromise
from lockbench.locks.shared.library import Library

LIMIT_S = 30.0
# Starts what follows again whenever it ends, as systemd or Kubernetes do, while these tests live.
SUPERVISED = ("sh", "-c", f'while kill -0 {os.getpid()}; do "$@"; done', "supervisor")


def versions(*, broken: str, fixed: str) -> pytest.MarkDecorator:
    """Runs a test with both. In the first the section has to be seen broken, and nothing else may
    fail: else the test is red."""
    seen = pytest.mark.xfail(raises=BrokenPromise, strict=True, reason="the bug is seen")
    return pytest.mark.parametrize("version", [pytest.param(broken, marks=seen), fixed])


def until(true: Callable[[], object]) -> None:
    """Waits for it, within bounds."""
    deadline = time.monotonic() + LIMIT_S
    while not true():
        if time.monotonic() > deadline:
            raise TimeoutError("it did not come to pass")
        time.sleep(0.005)


@dataclass(frozen=True)
class Version(Library):
    """A version of some software. The program has to be importable with it."""

    program: Path = Path()

    @property
    def adapter(self) -> Path:
        return self.program


class Program:
    """One that runs, with all that it starts. ``supervised``: again whenever it ends."""

    def __init__(self, command: list[str], pipe: int, *, supervised: bool) -> None:
        self._log = tempfile.NamedTemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as this
        self._process = subprocess.Popen(
            [*(SUPERVISED if supervised else ()), *command],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=subprocess.STDOUT,
            pass_fds=[pipe],
            start_new_session=True,
        )

    def says(self, text: str, times: int = 1) -> None:
        """Waits until it has said so often."""
        until(lambda: self.log.count(text) >= times)

    @property
    def log(self) -> str:
        """What it has said."""
        return Path(self._log.name).read_text(encoding="utf-8", errors="replace")

    def stop(self) -> None:
        """Asks it to end, and waits for that."""
        self._signal(signal.SIGTERM)
        self._process.wait(LIMIT_S)

    def kill(self) -> None:
        """Ends whatever is left of it."""
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._log.close()

    def _signal(self, number: signal.Signals) -> None:
        try:
            os.killpg(self._process.pid, number)
        except ProcessLookupError:
            return
