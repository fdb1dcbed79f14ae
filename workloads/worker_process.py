"""What is done to the process of a worker, on the machine that it runs on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL, Signals
from typing import Final, Protocol

import psutil

from lockbench.history.op import F, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import records_of
from lockbench.workloads.fork_server import Child
from lockbench.workloads.load import AIMED_KEY

END_S: Final = 5.0
POLL_S: Final = 0.005
# The deaths of the clients of worker w are recorded as worker DEATHS + w.
DEATHS: Final = 1024


class LoadError(Exception):
    """The load could not be started or died; the message says which process and what it said."""


class WorkerProcess(Protocol):
    """Wherever it runs. ``pid`` is None where it has none on this machine; ``sidecars`` are the
    processes here that it has started."""

    pid: int | None
    sidecars: Sequence[psutil.Process]

    def alive(self) -> bool:
        """Whether it has not ended, as far as anybody knows."""

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""

    def send_signal(self, number: Signals) -> None:
        """To it and to what it has started. No error when it has ended."""

    def find_sidecars(self) -> None:
        """Once its clients are connected."""

    def frozen(self) -> bool:
        """Whether the kernel says that it is stopped, and its sidecars are."""

    def kill(self) -> None:
        """SIGKILL, and waits until it is gone; the deaths are recorded by the clock of its machine.
        Raises LoadError."""

    def close(self) -> None:
        """Lets go of it."""


class LocalWorker:
    """On this machine."""

    def __init__(self, number: int, child: Child, history: Path) -> None:
        self.pid: int | None = child.pid
        self.sidecars: Sequence[psutil.Process] = ()
        self._number = number
        self._child = child
        self._history = history

    def alive(self) -> bool:
        return self._child.alive()

    def wait(self, timeout_s: float) -> bool:
        return self._child.wait(timeout_s)

    def send_signal(self, number: Signals) -> None:
        self._child.send_signal(number)

    def find_sidecars(self) -> None:
        self.sidecars = self._child.started()

    def frozen(self) -> bool:
        if not self.alive():
            return False
        all_of_it = [psutil.Process(self.pid), *filter(_lives, self.sidecars)]
        return all(process.status() == psutil.STATUS_STOPPED for process in all_of_it)

    def kill(self) -> None:
        # Before the signal: a service may let go of what the dead held at once.
        died_ns = time.monotonic_ns()
        self._child.send_signal(SIGKILL)
        if not self._child.wait(END_S):
            raise LoadError(f"worker {self._number} does not die")
        # Whose child it is now may not bury it.
        end = time.monotonic() + END_S
        while any(map(_lives, self.sidecars)):
            if time.monotonic() > end:
                raise LoadError(f"the sidecar of worker {self._number} does not die")
            time.sleep(POLL_S)
        record_deaths(self._history, self._number, died_ns)

    def close(self) -> None:
        self._child.close()


def record_deaths(history: Path, worker: int, died_ns: int | None = None) -> None:
    """A death for every client of a worker that is gone, in a recording of its own. Without a time:
    when the last operation was invoked that is known of it. What was invoked before that is known,
    too, so that no hold had been let go of unseen."""
    clients: set[int] = set()
    last_ns = 0
    for number in itertools.count():
        segment = history / f"{worker}.{number}.ops"
        if not segment.exists():
            break
        records = records_of(segment, 0)
        clients.update(records["process"].tolist())
        last_ns = max(last_ns, int(records["invoke_ns"].max(initial=0)))
    at_ns = last_ns if died_ns is None else died_ns
    recorder = Recorder(history, DEATHS + worker)
    for client in sorted(clients):
        handle = recorder.invoke(client, F.DEATH, AIMED_KEY, invoke_ns=at_ns)
        recorder.complete(handle, Type.OK, complete_ns=at_ns)
    recorder.close()


def _lives(process: psutil.Process) -> bool:
    """Whether it has not ended, buried or not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
