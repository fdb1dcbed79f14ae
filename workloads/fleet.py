"""The processes of the load: the guarded resource, Locust's master, its workers, the victim.

Some of the workers may run on other machines (``lockbench.workloads.machines``): the last ones.
What they record has come back when the fleet ends, or the history says whose has not.

Started before the cluster is up; they wait for the load's file. They die with the bench, whatever
kills it (PR_SET_PDEATHSIG, Linux), and carry the run's id in their environment so that ``lockbench
clean`` can find any that did not.
"""

from __future__ import annotations

import itertools
import os
import secrets
import signal
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil

from lockbench.clusters.engine import processes
from lockbench.clusters.engine.owner import die_with_parent, is_dead
from lockbench.clusters.engine.ports import is_free
from lockbench.declarations import program
from lockbench.history.op import NULL
from lockbench.history.recording import is_recording, write_came_back
from lockbench.workloads.control import Control
from lockbench.workloads.fork_server import RUN_ENVIRONMENT, Child, ForkServer, run_mark
from lockbench.workloads.load import (
    CLIENT_FAILED,
    CONTROL,
    ENVIRONMENT,
    HISTORY,
    LOGS,
    VICTIM,
    WORKER_ENVIRONMENT,
    Load,
)
from lockbench.workloads.machines.file import Machine, MachinesError
from lockbench.workloads.machines.remote import PREPARE_S, Remote, RemoteWorker, until
from lockbench.workloads.worker_process import (
    END_S,
    LoadError,
    LocalWorker,
    WorkerProcess,
    record_deaths,
)

POLL_S: Final = 0.005
FIRST_PORT: Final = 32_100
PORTS: Final = 600
_drawn: Final = itertools.count(secrets.randbelow(PORTS))
# Ports that were drawn last are marked for other processes until somebody listens there.
MARKS: Final = 8
_marks: Final[deque[int]] = deque()
READY_S: Final = 60.0
# All processes together may take END_S to end by themselves, and so long in a hurry.
EMPTY: Final = "(empty)"
SAYS_S: Final = 3.0  # until the log of another machine is here
HURRY_S: Final = 0.5
FOREVER_NS: Final = 2**62
LOG_LINES: Final = 3


@dataclass(frozen=True, slots=True)
class Member:
    """A process of the load. ``worker`` is None where it belongs to none. ``log``: what its log is
    called."""

    name: str
    pid: int
    worker: int | None = None
    log: str = ""


class Fleet:
    """A context manager: at its end no process of it is left.

    ``folder`` is the case's folder. Call ``launch``, then ``begin`` once the addresses are known.
    Without a fork server there is only the guarded resource, and the load is left to others.
    ``workers`` counts those of ``machines``, too; ``lock`` is what these are to prepare.
    """

    def __init__(
        self,
        folder: Path,
        run_id: str,
        workers: int,
        fork_server: ForkServer | None = None,
        *,
        machines: Sequence[Machine] = (),
        lock: str = "",
    ) -> None:
        self.folder = folder
        self._run_id = run_id
        self._workers = workers
        self._fork_server = fork_server
        self._machines = machines
        self._lock = lock
        self._remotes: list[Remote] = []
        self._elsewhere = {worker for machine in machines for worker in machine.workers}
        self._children: dict[str, Child | WorkerProcess] = {}
        self._server: subprocess.Popen[bytes] | None = None
        self._killed: set[int] = set()
        # Per worker (begin, end) of what the nemesis froze; noted before the signal, and after it.
        self._frozen_ns: dict[int, list[tuple[int, int]]] = {}
        self.history = folder / HISTORY
        self.logs = folder / LOGS
        self.load_file = folder / "load.json"
        self.master_port = free_port()
        self.history.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        self.control = Control(folder / CONTROL, create=True)

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self.stop(END_S if kind is None else HURRY_S)
        except KeyboardInterrupt:
            self.stop(HURRY_S)
            raise

    def launch(self) -> None:
        """Starts all processes; Locust's wait for the load."""
        for machine in self._machines:
            log = self.logs / f"machine-{machine.name}.log"
            self._remotes.append(Remote(machine, self.folder, log))
        port_file = self.folder / "resource.port"
        log_folder = self.history / "resource"
        self._start_resource(port_file, log_folder)
        if self._fork_server is not None:
            self._children["master"] = self._spawned(
                self._fork_server, "master", "lockbench.workloads.master", {}
            )
            for worker in sorted({*range(self._workers + 1)} - self._elsewhere):
                number = {WORKER_ENVIRONMENT: str(worker)}
                name = f"worker-{worker}"
                child = self._spawned(self._fork_server, name, "lockbench.workloads.worker", number)
                self._children[name] = LocalWorker(worker, child, self.history)
        self._await(port_file.exists, READY_S, "the guarded resource did not start")
        self.resource = ("127.0.0.1", int(port_file.read_text(encoding="ascii")))
        port_file.unlink()
        self._launch_elsewhere()

    def begin(self, load: Load) -> None:
        """Hands out the load and returns when every client is connected. Raises LoadError."""
        draft = self.load_file.with_suffix(".new")
        load.save(draft)
        draft.rename(self.load_file)
        for remote, beginning in [(one, one.begin(load)) for one in self._remotes]:
            remote.answer(beginning)
        workers = range(self._workers + 1)

        def connected() -> bool:
            return sum(self.control.worker(w).ready for w in workers) >= load.users

        self._await(connected, READY_S, "not every client connected")
        if self._fork_server is not None:
            for worker in workers:
                self._worker(worker).find_sidecars()
        for remote in self._remotes:
            remote.ask("connected")

    def carried(self) -> int:
        """How often the clients of the rates were granted a lock."""
        return sum(self.control.worker(worker).carried for worker in range(self._workers + 1))

    def go(self) -> int:
        """Starts the first phase; returns when, in monotonic nanoseconds."""
        self.control.start_ns = time.monotonic_ns() + 20_000_000
        return self.control.start_ns

    def raise_if_failed(self) -> None:
        """Raises LoadError when a process ended that should not have."""
        gone = [
            name
            for name, child in self._children.items()
            if not child.alive() and name not in {f"worker-{w}" for w in self._killed}
        ]
        # First: without it every client fails.
        if self._server is not None and self._server.poll() is not None:
            raise LoadError(
                f"the guarded resource ended during the load (exit {self._server.returncode}); its "
                f"log ends: {self._last_line('resource')}"
            )
        lost = [remote.lost for remote in self._remotes if remote.lost is not None]
        if lost:
            raise LoadError(lost[0])
        failed = {w: n for w in range(self._workers + 1) if (n := self.control.worker(w).failed)}
        if failed:
            first = min(failed)
            raise LoadError(
                f"{sum(failed.values())} of the clients failed, one of worker {first}"
                f"{self._machine_of(first)} with: {self._said_by(first)}; see {self.logs}"
            )
        if gone:
            raise LoadError(
                f"{gone[0]} ended during the load; its log ends: {self._last_line(gone[0])}"
            )

    def members(self) -> list[Member]:
        """Every process that has to run as long as the load does, those apart that the nemesis has
        killed."""
        found = []
        if self._fork_server is not None:
            found.append(Member("the fork server", self._fork_server.pid))
        if self._server is not None:
            found.append(Member("the guarded resource", self._server.pid, log="resource"))
        killed = {f"worker-{worker}" for worker in self._killed}
        for name, child in self._children.items():
            if child.pid is None or name in killed:
                continue
            if isinstance(child, Child):
                found.append(Member(name, child.pid, log=name))
                continue
            worker = int(name.removeprefix("worker-"))
            found.append(Member(name, child.pid, worker, log=name))
            found += [
                Member(f"the sidecar of {name}", sidecar.pid, worker, log=name)
                for sidecar in child.sidecars
            ]
        for remote in self._remotes:
            name = remote.machine.name
            found.append(Member(f"the link to {name}", remote.pid, log=f"machine-{name}"))
        return found

    def last_lines(self, member: Member) -> list[str]:
        """The end of the log of a process."""
        try:
            said = (self.logs / f"{member.log}.log").read_text(errors="replace")
        except OSError:
            return []
        return said.strip().splitlines()[-LOG_LINES:]

    def struck_ns(self, worker: int, begin_ns: int, end_ns: int) -> int:
        """For how much of a time the nemesis kept a worker frozen; all of it once it is killed."""
        if worker in self._killed:
            return end_ns - begin_ns
        overlaps = (
            min(end_ns, thawed) - max(begin_ns, froze)
            for froze, thawed in self._frozen_ns.get(worker, ())
        )
        return sum(overlap for overlap in overlaps if overlap > 0)

    def killed_pids(self) -> list[int]:
        """The processes of the workers that the nemesis has killed."""
        pids = (self._worker(worker).pid for worker in self._killed)
        return [pid for pid in pids if pid is not None]

    def ticked_ns(self, worker: int) -> int:
        """When a worker's event loop was last seen to turn; 0 before it first was."""
        return self.control.worker(worker).ticked_ns

    def busy(self) -> int:
        """How many clients are in the middle of a cycle."""
        workers = set(range(self._workers + 1)) - self._killed
        return sum(self.control.worker(w).busy for w in workers)

    def ask_for_all(self) -> None:
        """Begins the quiet phase: the solo users ask for every key that was used."""
        self.control.quiet = True

    def asked_for_all(self, load: Load) -> bool:
        """Whether they are done with it."""
        workers = range(self._workers + 1)
        return sum(self.control.worker(w).quieted for w in workers) >= load.solo

    def stop(self, limit_s: float = END_S) -> None:
        """Ends every process: those that do not end by themselves within ``limit_s`` are killed,
        which costs a recording nothing but what is in flight. Never raises; twice is no error."""
        self.control.stop = True
        # Without a load they wait for one, and nothing was recorded.
        began = self.load_file.exists()
        end = time.monotonic() + limit_s
        for child in self._children.values():
            child.send_signal(signal.SIGCONT if began else signal.SIGKILL)
        for child in self._children.values():
            if not child.wait(max(0.0, end - time.monotonic())):
                child.send_signal(signal.SIGKILL)
        while self._children:
            name, child = next(iter(self._children.items()))
            child.wait(END_S)
            child.close()
            del self._children[name]
        self._come_back()
        if self._server is not None:
            self._server.terminate()
            self._server.send_signal(signal.SIGCONT)
            try:
                self._server.wait(limit_s)
            except subprocess.TimeoutExpired:
                self._server.kill()
                self._server.wait()
            self._server = None

    # What the nemesis may do to clients (lockbench.nemesis.base.Clients).

    def hold(self, timeout_s: float) -> int | None:
        self.control.aim = True
        held = until(lambda: self.control.held != 0, timeout_s)
        return self.control.held if held else None

    def promise_left_s(self) -> float:
        """How long the kept hold's promise still lasts; infinite without limit, 0 without hold."""
        if not self.control.held:
            return 0.0
        until_ns = self.control.held_until_ns
        return (until_ns - time.monotonic_ns()) / 1e9 if until_ns not in (0, NULL) else float("inf")

    def let_go(self) -> None:
        self.control.aim = False

    def stop_before_acquire(self, timeout_s: float) -> bool:
        """Makes the victim stop before its next acquire, and the rivals leave the key alone."""
        self.control.gate = True
        return until(lambda: self.control.stopped_before_acquire and self._rivals() == 0, timeout_s)

    def go_on(self) -> None:
        if self.control.gate:
            self.control.opened_ns = time.monotonic_ns()
        self.control.gate = False

    def asking(self) -> bool:
        return self.control.asking

    def occupy(self, timeout_s: float) -> bool:
        self.control.occupy = True
        return until(lambda: self.control.occupied != 0, timeout_s)

    def vacate(self) -> None:
        self.control.occupy = False

    def extend(self) -> None:
        self.control.extends += 1

    @property
    def victim_worker(self) -> int:
        return VICTIM

    @property
    def other_workers(self) -> Sequence[int]:
        return range(1, self._workers + 1)

    def group(self, worker: int) -> int:
        """Worker w is client group w + 1 (``lockbench.workloads.load``)."""
        return worker + 1

    def freeze(self, workers: Sequence[int]) -> None:
        for worker in workers:
            self._frozen_ns.setdefault(worker, []).append((time.monotonic_ns(), FOREVER_NS))
            self._worker(worker).send_signal(signal.SIGSTOP)

    def thaw(self, workers: Sequence[int]) -> None:
        for worker in workers:
            self._worker(worker).send_signal(signal.SIGCONT)
            spans = self._frozen_ns.get(worker, [])
            now_ns = time.monotonic_ns()
            spans[:] = [(froze, min(thawed, now_ns)) for froze, thawed in spans]

    def frozen(self, worker: int) -> bool:
        """Whether the kernel says that it is stopped, and its sidecars are."""
        return self._worker(worker).frozen()

    def kill(self, workers: Sequence[int]) -> None:
        """SIGKILL; the deaths are recorded in the history, on the machine of the worker."""
        for worker in workers:
            self._killed.add(worker)
            self._worker(worker).kill()

    def killed(self, worker: int) -> bool:
        return worker in self._killed and not self._worker(worker).alive()

    def shift_clock(self, offset_s: float) -> None:
        self.control.clock_offset_ns = int(1e9 * offset_s)

    def clock_offset_s(self) -> float:
        """As the victim itself reads it."""
        return self.control.clock_read_ns / 1e9

    def _rivals(self) -> int:
        workers = set(range(1, self._workers + 1)) - self._killed
        return sum(self.control.worker(w).rivals for w in workers)

    def _worker(self, worker: int) -> WorkerProcess:
        child = self._children[f"worker-{worker}"]
        assert not isinstance(child, Child)
        return child

    def _launch_elsewhere(self) -> None:
        """Raises LoadError."""
        try:
            for remote in self._remotes:
                remote.greet()
        except MachinesError as error:
            raise LoadError(str(error)) from error
        preparing = [(one, one.prepare(self._run_id, self._lock)) for one in self._remotes]
        for remote, waiting in preparing:
            remote.answer(waiting, PREPARE_S)
            for worker in remote.machine.workers:
                self._children[f"worker-{worker}"] = RemoteWorker(remote, worker)

    def _come_back(self) -> None:
        """Waits for what is left of the other machines' recordings. Where not all came back, the
        machine counts as dead since the last that is known of it. Never raises."""
        while self._remotes:
            remote = self._remotes[-1]
            sizes = remote.came_back(self.history)
            with suppress(OSError):
                if sizes is not None and is_recording(self.history):
                    write_came_back(self.history, remote.machine.name, sizes)
                for worker in remote.machine.workers if sizes is None else ():
                    # Unless it was killed before, by the nemesis.
                    with suppress(FileExistsError):
                        record_deaths(self.history, worker)
            remote.close()
            self._remotes.pop()

    def _start_resource(self, port_file: Path, log_folder: Path) -> None:
        with (self.logs / "resource.log").open("wb") as log:
            self._server = subprocess.Popen(
                program.command(
                    "lockbench.workloads.resource_server", str(port_file), str(log_folder)
                ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=program.environment() | self._environment(),
                # Ctrl-C belongs to the bench, which ends the load in order.
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no locks
            )

    def _spawned(
        self, fork_server: ForkServer, name: str, module: str, extra: dict[str, str]
    ) -> Child:
        environment = self._environment() | extra
        try:
            return fork_server.spawn(module, environment, self.logs / f"{name}.log")
        except OSError as error:
            raise LoadError(str(error)) from error

    def _environment(self) -> dict[str, str]:
        return {
            ENVIRONMENT: str(self.load_file),
            RUN_ENVIRONMENT: run_mark(self._run_id),
        }

    def _await(self, condition: Callable[[], bool], limit_s: float, otherwise: str) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            self.raise_if_failed()
            if time.monotonic() > end:
                raise LoadError(f"{otherwise} within {limit_s:.0f} s; see {self.logs}")
            time.sleep(POLL_S)

    def _machine_of(self, worker: int) -> str:
        child = self._children.get(f"worker-{worker}")
        return f" on machine {child.machine}" if isinstance(child, RemoteWorker) else ""

    def _said_by(self, worker: int) -> str:
        """Why a client of it failed. The log of another machine may still be on its way."""
        said = partial(self._last_line, f"worker-{worker}", CLIENT_FAILED)
        until(lambda: said() != EMPTY, SAYS_S)
        return said()

    def _last_line(self, name: str, after: str = "") -> str:
        """Of a process' log, what follows ``after`` in the last line that has it."""
        try:
            said = (self.logs / f"{name}.log").read_text(errors="replace")
        except FileNotFoundError:  # of another machine, which has not sent it yet
            said = ""
        lines = said.strip().splitlines()
        found = [line.partition(after)[2] if after else line for line in lines if after in line]
        return found[-1] if found else EMPTY


def free_port() -> int:
    """A TCP port of 127.0.0.1 that is free now. Above those of the clusters and below those that
    Linux hands out for outgoing connections, so that it stays free until somebody listens there.
    One after the other from a drawn one, so that the loads of a process do not meet; those of other
    processes see the mark, a name that only one socket can have."""
    while True:
        port = FIRST_PORT + next(_drawn) % PORTS
        with socket.socket(socket.AF_UNIX) as mark, suppress(OSError):
            mark.bind(f"\0lockbench-port-{port}")
            if is_free("127.0.0.1", port):
                _marks.append(mark.detach())
                if len(_marks) > MARKS:
                    os.close(_marks.popleft())
                return port


def leftovers() -> list[psutil.Process]:
    """Processes of any Lockbench load whose bench no longer lives."""
    marked = processes.marked(RUN_ENVIRONMENT)
    return [process for process, mark in marked if is_dead(mark.partition("@")[2])]
