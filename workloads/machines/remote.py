"""What the fleet has of another machine: its workers, which are frozen and killed as those here."""

from __future__ import annotations

import itertools
import json
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import Signals
from typing import Any, Final

import msgspec
import psutil

from lockbench.clusters.engine.owner import die_with_parent, me
from lockbench.declarations import program
from lockbench.workloads.load import Load
from lockbench.workloads.machines.file import Machine, MachinesError
from lockbench.workloads.machines.version import differing
from lockbench.workloads.worker_process import END_S, LoadError

HELLO_S: Final = 90.0
# A library may have to be installed there first.
PREPARE_S: Final = 600.0
ANSWER_S: Final = 15.0
POLL_S: Final = 0.01


class Remote:
    """A context manager. Start it in the main thread, which the link's life hangs on. ``folder`` is
    the case's folder."""

    def __init__(self, machine: Machine, folder: Path, log: Path) -> None:
        self.machine = machine
        self.lost: str | None = None
        self.ended: set[int] = set()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._hello: Future[dict[str, str]] = Future()
        self._lock = threading.Lock()
        self._closing = False
        with log.open("wb") as said:
            self._process = subprocess.Popen(
                program.command("lockbench.workloads.machines.link", str(folder), *machine.command),
                env=program.environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no locks
            )
        self._thread = threading.Thread(target=self._read, name=machine.name, daemon=True)
        self._thread.start()

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """The process of the link here."""
        return self._process.pid

    def greet(self) -> None:
        """Returns once there is an agent of the same version. Raises MachinesError."""
        try:
            there = self._hello.result(HELLO_S)
        except TimeoutError:
            raise MachinesError(f"machine {self.machine.name}: its link says nothing") from None
        if why := differing(self.machine.name, there):
            raise MachinesError(why)

    def ask(self, do: str, limit_s: float = ANSWER_S, **said: Any) -> Any:
        """What the agent answers. Raises LoadError, also where it is lost."""
        return self.answer(self.start(do, **said), limit_s)

    def start(self, do: str, **said: Any) -> Future[Any]:
        """Asks, and does not wait."""
        number, waiting = next(self._numbers), Future[Any]()
        with self._lock:
            self._waiting[number] = waiting
            if self.lost is not None:
                waiting.set_exception(LoadError(self.lost))
                return waiting
            assert self._process.stdin is not None
            with suppress(OSError):
                line = json.dumps({"id": number, "do": do, **said}).encode() + b"\n"
                self._process.stdin.write(line)
                self._process.stdin.flush()
        return waiting

    def answer(self, waiting: Future[Any], limit_s: float = ANSWER_S) -> Any:
        try:
            return waiting.result(limit_s)
        except TimeoutError:
            raise LoadError(
                f"machine {self.machine.name} does not answer within {limit_s:.0f} s"
            ) from None

    def begin(self, load: Load) -> Future[Any]:
        """Hands out the load, with the addresses that its workers use."""
        addresses = {
            load.resource,
            ("127.0.0.1", load.master_port),
            *(node for worker in self.machine.workers for node in load.nodes[worker]),
        }
        # Nobody there needs to know of the others.
        mine = tuple(
            nodes if worker in self.machine.workers else ()
            for worker, nodes in enumerate(load.nodes)
        )
        said = msgspec.json.encode(replace(load, nodes=mine)).decode()
        return self.start("begin", load=said, addresses=sorted(addresses))

    def prepare(self, run_id: str, lock: str) -> Future[Any]:
        """Starts its workers."""
        workers = list(self.machine.workers)
        return self.start("prepare", run=run_id, home=me(), lock=lock, workers=workers)

    def came_back(self, history: Path) -> dict[str, int] | None:
        """What its workers have recorded, once they have all ended: segments and their bytes; None
        where not all of it is here."""
        try:
            sizes: dict[str, int] = self.ask("finish")
            whole = all((history / name).stat().st_size == size for name, size in sizes.items())
        except (LoadError, OSError):
            return None
        return sizes if whole else None

    def close(self) -> None:
        """Ends the agent, and everything that it has started. Twice is no error."""
        self._closing = True
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(2 * END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join(END_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        name, why = self.machine.name, "its link ended"
        for line in self._process.stdout:
            message = json.loads(line)
            if "hello" in message:
                self._hello.set_result(message["hello"])
            elif "refused" in message:
                why = message["refused"]
                self._hello.set_exception(MachinesError(f"machine {name} {why}"))
            elif "ended" in message:
                self.ended.add(message["ended"])
            elif "lost" in message:
                why = message["lost"]
            else:
                self._answered(message)
        if not self._hello.done():
            self._hello.set_exception(MachinesError(f"machine {name}: {why}"))
        with self._lock:
            self.lost = f"machine {name} was lost: {why}"
            waiting, self._waiting = self._waiting, {}
        for one in waiting.values():
            if not one.done():
                one.set_exception(LoadError(self.lost))

    def _answered(self, message: dict[str, Any]) -> None:
        with self._lock:
            waiting = self._waiting.pop(message["id"], None)
        if waiting is None:
            return
        if "error" in message:
            said = f"machine {self.machine.name}: {message['error']}"
            waiting.set_exception(LoadError(said))
        else:
            waiting.set_result(message["done"])


class RemoteWorker:
    """On another machine: ``lockbench.workloads.worker_process.WorkerProcess``."""

    def __init__(self, remote: Remote, worker: int) -> None:
        self.pid: int | None = None
        self.sidecars: Sequence[psutil.Process] = ()
        self._remote = remote
        self._worker = worker

    @property
    def machine(self) -> str:
        """The name of its machine."""
        return self._remote.machine.name

    def alive(self) -> bool:
        """As far as anybody knows: one of a lost machine is not."""
        return self._worker not in self._remote.ended and self._remote.lost is None

    def wait(self, timeout_s: float) -> bool:
        """Whether it ended within the time."""
        return until(lambda: not self.alive(), timeout_s)

    def send_signal(self, number: Signals) -> None:
        """Returns when it was sent. No error when the machine is lost."""
        with suppress(LoadError):
            self._remote.ask("signal", worker=self._worker, signal=number.name)

    def find_sidecars(self) -> None:
        """The agent does, for all of its workers."""

    def frozen(self) -> bool:
        """Whether the kernel there says that it is stopped, and its sidecars are."""
        return bool(self._remote.ask("frozen", worker=self._worker))

    def kill(self) -> None:
        """SIGKILL; the agent records the deaths. Raises LoadError."""
        self._remote.ask("kill", worker=self._worker)
        self._remote.ended.add(self._worker)

    def close(self) -> None:
        """There is nothing to let go of."""


def until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether it came true within the time."""
    end = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end:
            return False
        time.sleep(POLL_S)
    return True
