"""Client containers: a program of ours in an image of ours, for one process that talks to it.

It has the host's network, so it reaches nodes where its process does, and the user of its process,
so that whoever may freeze or end that process may do the same to it, by its number. What it prints
goes to the standard error of its process. The engine removes it when it has ended; what was frozen
when its process died is found by its labels, and by its environment.

Does not guarantee that it ends with its process: the program itself sees to that.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lockbench.clusters.engine import owner, processes
from lockbench.clusters.engine.docker import Container, Engine, EngineError
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import psutil
else:
    psutil = lazy("psutil")

STARTED_BY = "LOCKBENCH_STARTED_BY"
HEAP = "LOCKBENCH_HEAP"  # of a JVM ("3g")
# How many connections a pool of a JVM's library opens before they are needed; its default else.
IDLE_CONNECTIONS = "LOCKBENCH_IDLE_CONNECTIONS"
WARM_CYCLES = "LOCKBENCH_WARM_CYCLES"  # of a lock, before the first client of a JVM is open
# What a program inherits of its process' environment.
INHERITED = (owner.RUN_ENVIRONMENT, HEAP, IDLE_CONNECTIONS, WARM_CYCLES)
_PATIENCE_S = 5.0
_POLL_S = 0.01


@dataclass(frozen=True)
class ClientProcess:
    """The program in its container, seen from here."""

    process: psutil.Process

    @property
    def pid(self) -> int:
        """Its number on this host."""
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL; no error when it has ended."""
        with suppress(psutil.NoSuchProcess):
            self.process.kill()

    def wait(self) -> None:
        """Returns when it has ended, or after some seconds."""
        with suppress(psutil.TimeoutExpired):
            self.process.wait(_PATIENCE_S)


def start(image: str, command: Sequence[str], environment: Mapping[str, str]) -> ClientProcess:
    """Start a program. EngineError: it cannot be, it ended at once, or it is not on this host."""
    mine = _name_of(os.getpid())
    inherited = {key: os.environ[key] for key in INHERITED if key in os.environ}
    run_id = inherited.get(owner.RUN_ENVIRONMENT, "none").partition("@")[0]
    with Engine() as engine:
        container = engine.create_container(
            image,
            f"lockbench-client-{os.getpid()}-{secrets.token_hex(3)}",
            command,
            host_network=True,
            auto_remove=True,
            user=f"{os.getuid()}:{os.getgid()}",
            labels=owner.labels(run_id, owner.CLIENTS),
            env={**inherited, **environment, STARTED_BY: mine},
        )
        try:
            said = engine.attach(container)
            threading.Thread(target=_pass_on, args=(said,), daemon=True).start()
            engine.start(container)
            return ClientProcess(_process_of(engine, container, mine))
        except EngineError:
            engine.remove(container)
            raise


def _process_of(engine: Engine, container: Container, mine: str) -> psutil.Process:
    """A container that was started may still be on its way to its program."""
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        state = engine.state(container)
        if state is None or not state.running:
            raise EngineError("it ended at once")
        with suppress(psutil.Error):
            process = psutil.Process(state.pid)
            if _is_started_by(process, mine):
                return process
        time.sleep(_POLL_S)
    raise EngineError("the engine's containers do not run on this host")


def started_by(pid: int) -> list[psutil.Process]:
    """The programs that a process has started so, and that live."""
    mine = _name_of(pid)
    return [process for process, who in processes.marked(STARTED_BY) if who == mine]


def _name_of(pid: int) -> str:
    return f"{pid}:{owner.start_ticks(pid)}"


def _is_started_by(process: psutil.Process, who: str) -> bool:
    try:
        return process.environ().get(STARTED_BY) == who
    except (psutil.Error, OSError):
        return False


def _pass_on(said: Iterable[bytes]) -> None:
    with suppress(OSError):
        for piece in said:
            os.write(2, piece)
