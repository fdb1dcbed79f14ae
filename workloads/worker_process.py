"""What is done to the process of a worker, on the machine that it runs on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL
from typing import Final

import psutil

from lockbench.history.op import F, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import records_of
from lockbench.workloads.fork_server import Child
from lockbench.workloads.load import AIMED_KEY

END_S: Final = 5.0
# The deaths of the clients of worker w are recorded as worker DEATHS + w.
DEATHS: Final = 1024


class LoadError(Exception):
    """The load could not be started or died; the message says which process and what it said."""


def is_frozen(child: Child, sidecars: Sequence[psutil.Process]) -> bool:
    """Whether the kernel says that it is stopped, and its sidecars are."""
    if not child.alive():
        return False
    all_of_it = [psutil.Process(child.pid), *filter(_lives, sidecars)]
    return all(process.status() == psutil.STATUS_STOPPED for process in all_of_it)


def kill_worker(worker: int, child: Child, sidecars: Sequence[psutil.Process]) -> None:
    """SIGKILL, and waits until it is gone. Raises LoadError."""
    child.send_signal(SIGKILL)
    if not child.wait(END_S):
        raise LoadError(f"worker {worker} does not die")
    _, alive = psutil.wait_procs(sidecars, END_S)
    if alive:
        raise LoadError(f"the sidecar of worker {worker} does not die")


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
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
