"""Locust's processes come from a fork server: one process that has imported everything, and forks.

Importing Locust and the lock libraries takes a process about a second of CPU; five processes a case
and two cores would spend a fifth of a run on it. Every child is a process of its own, forked before
any event loop exists, with a log and an environment of its own.

``python -m lockbench.workloads.fork_server MODULE…`` imports those modules, reads one JSON object a
line (module, environment, log) and answers with the child's process id. It dies with the bench, and
its children with it (PR_SET_PDEATHSIG).
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

from lockbench.clusters.engine import owner
from lockbench.clusters.engine.owner import die_with_parent, me
from lockbench.declarations import lazy, program

RUN_ENVIRONMENT: Final = owner.RUN_ENVIRONMENT
MODULES: Final = ("lockbench.workloads.master", "lockbench.workloads.worker")
# The first one waits for all imports.
SPAWN_S: Final = 60.0
END_S: Final = 5.0


def run_mark(run_id: str) -> str:
    """What the environment of our processes says: the run, and the bench that owns it."""
    return f"{run_id}@{me()}"


class Child:
    """A process that is not our child, held by a descriptor so that its number cannot come to mean
    another one. It leads a group, to which the processes that it starts (sidecars) belong; those
    that it has started in containers get the group's signals too."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self._descriptor = os.pidfd_open(pid)
        self._contained: list[psutil.Process] = []

    def alive(self) -> bool:
        """Whether it has not ended."""
        return not self.wait(0)

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        return _readable(self._descriptor, timeout_s)

    def send_signal(self, number: signal.Signals) -> None:
        """To it and to the processes it started. No error when it has ended."""
        if self.alive():
            try:
                os.killpg(self.pid, number)
            except ProcessLookupError:
                # Just forked, it leads no group yet; or it has just ended.
                with suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._descriptor, number)
        for process in self._contained:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def started(self) -> list[psutil.Process]:
        """The processes it has started itself and that live; none once it has ended."""
        if not self.alive():  # its number may be another one's
            return []
        try:
            # Not above: it brings what Locust must find untouched in the process that forks.
            from lockbench.clusters.engine.client_containers import started_by

            self._contained = started_by(self.pid)
            return psutil.Process(self.pid).children() + self._contained
        except psutil.NoSuchProcess:
            return []

    def close(self) -> None:
        """Lets go of the descriptor."""
        os.close(self._descriptor)


class ForkServer:
    """A context manager for the duration of a run. Start it in the main thread, which its life
    hangs on."""

    def __init__(self, run_id: str, modules: Sequence[str] = MODULES) -> None:
        self.run_id = run_id
        self._asking = threading.Lock()  # answers come in the order of the requests
        self._process = subprocess.Popen(
            program.command("lockbench.workloads.fork_server", *modules),
            # Children show the environment that this process was started with.
            env=program.environment() | {RUN_ENVIRONMENT: run_mark(run_id)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            process_group=0,
            preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no locks
        )

    @property
    def pid(self) -> int:
        """The process that forks."""
        return self._process.pid

    def __enter__(self) -> ForkServer:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def spawn(self, module: str, environment: dict[str, str], log: Path) -> Child:
        """Runs ``module``'s ``main`` in a new process. Raises OSError when the fork server is gone
        or does not answer."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"module": module, "environment": environment, "log": str(log)}
        with self._asking, suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()
            if not _readable(self._process.stdout.fileno(), SPAWN_S):
                raise OSError(
                    f"the fork server of Locust's processes says nothing for {SPAWN_S:.0f} s"
                )
            if answer := self._process.stdout.readline():
                return Child(int(answer))
        code = self._process.wait(END_S)
        raise OSError(f"the fork server of Locust's processes ended (exit {code})")


def _readable(descriptor: int, timeout_s: float) -> bool:
    """Whether it has something to say, or has ended, within the time."""
    poller = select.poll()  # unlike select, it takes descriptors above 1023
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(timeout_s * 1000))


def serve() -> None:
    """Forks on demand until standard input ends."""
    # Ctrl-C does not reach it. That somebody interrupted it alone is told by the bench, not by it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for module in sys.argv[1:]:
        importlib.import_module(module)
    registry = importlib.import_module("lockbench.locks.registry")
    registry.systems()
    lazy.load_all()
    for line in sys.stdin.buffer:
        order = json.loads(line)
        _forget_the_ended()
        pid = os.fork()
        if pid == 0:
            _become(order)
        os.write(sys.stdout.fileno(), f"{pid}\n".encode())


def _forget_the_ended() -> None:
    """Children are held by who asked for them (``Child``) when the next one is asked for; until
    then the number of one that has ended is kept for it."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def _become(order: dict[str, Any]) -> None:
    """The child: never returns."""
    code = 1
    try:
        os.setpgid(0, 0)
        die_with_parent()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.environ.update(order["environment"])
        sys.modules[order["module"]].main()
        code = 0
    except Exception:  # noqa: BLE001 - its last words stand in its log
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    serve()
