"""The processes that play: each is lent to one try at a time, and lives through many.

An actor that does not answer is killed; it is never lent again. All end with the pool.
"""

from __future__ import annotations

import select
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, monotonic_ns
from typing import Final

import msgspec

from lockbench.explore.orders import ENVIRONMENT, Answer, Order
from lockbench.workloads.fork_server import Child, ForkServer

START_S: Final = 60.0
READ_BYTES: Final = 1 << 12
END_S: Final = 5.0


class Gone(Exception):
    """The actor has ended, or was killed because it did not answer; the message says which."""


class Actor:
    """The handle on one."""

    def __init__(self, name: str, child: Child, channel: socket.socket, log: Path) -> None:
        self.name = name
        self.log = log
        self._child = child
        self._channel = channel
        self._heard = b""
        self.killed_ns: int | None = None
        self.doomed = False  # it is killed, or is about to be
        self.busy = False  # between an order and its answer

    def tell(self, order: Order) -> None:
        """Gives an order; ``answer`` waits until it is done. Raises Gone."""
        self.busy = True
        try:
            self._channel.sendall(msgspec.json.encode(order) + b"\n")
        except OSError as error:
            raise Gone(f"{self.name} has ended") from error

    def answer(self, timeout_s: float) -> Answer | None:
        """What came of the last order; None while it is not done. Raises Gone."""
        end = monotonic() + timeout_s
        while b"\n" not in self._heard:
            poller = select.poll()
            poller.register(self._channel, select.POLLIN)
            if not poller.poll(max(0.0, 1000 * (end - monotonic()))):
                return None
            with suppress(OSError):
                if more := self._channel.recv(READ_BYTES):
                    self._heard += more
                    continue
            raise Gone(f"{self.name} has ended")
        line, _, self._heard = self._heard.partition(b"\n")
        self.busy = False
        return msgspec.json.decode(line, type=Answer)

    def freeze(self) -> None:
        """SIGSTOP, for its sidecars too."""
        self._child.started()
        self._child.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT, for its sidecars too."""
        self._child.send_signal(signal.SIGCONT)

    def end_soon(self) -> None:
        """SIGKILL, without waiting; what it runs in a container ends when it hears no more."""
        self.doomed = True
        self._child.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """SIGKILL, for its sidecars too; returns when it has ended. Twice is no error."""
        if self.killed_ns is None:
            self.doomed = True
            self._child.started()
            self._child.send_signal(signal.SIGKILL)
            self._child.wait(END_S)
            self.killed_ns = monotonic_ns()

    def close(self) -> None:
        """Ends it."""
        self.kill()
        self._child.close()
        self._channel.close()


class Actors:
    """A context manager: at its end no actor is left."""

    def __init__(
        self, fork_server: ForkServer, logs: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._fork_server = fork_server
        self._environment = dict(environment or {})
        self._logs = logs
        self._folder = tempfile.TemporaryDirectory(prefix="lockbench-actors-")
        self._idle: list[Actor] = []
        self._all: list[Actor] = []
        self._ending = threading.Lock()
        self._ended = False

    def __enter__(self) -> Actors:
        return self

    def __exit__(self, *_: object) -> None:
        for actor in self._all:
            actor.close()
        self._folder.cleanup()

    def raise_to(self, count: int) -> None:
        """Starts as many as are missing, so that so many are idle. Raises OSError, Gone."""
        while len(self._idle) < count:
            actor = self._start()
            with self._ending:
                if self._ended:
                    actor.kill()
                    raise Gone(f"{actor.name} is not wanted any more")
                self._idle.append(actor)

    def kill(self) -> None:
        """All there are, also those that are lent; nobody can be lent afterwards."""
        with self._ending:
            self._ended = True
            for actor in self._all:
                actor.end_soon()
            for actor in self._all:
                actor.kill()

    @contextmanager
    def lent(self, count: int) -> Iterator[list[Actor]]:
        """So many of those that are idle. Who is killed or busy afterwards is lent to nobody
        again. Raises Gone when all were killed."""
        with self._ending:
            if self._ended:
                raise Gone("no actor is lent any more")
            taken = [self._idle.pop() for _ in range(count)]
        try:
            yield taken
        finally:
            with self._ending:
                for actor in taken:
                    if actor.killed_ns is None and not actor.busy:
                        self._idle.append(actor)
                    else:
                        self._all.remove(actor)
                        actor.close()

    def _start(self) -> Actor:
        if self._ended:
            raise Gone("no actor is started any more")
        name = f"actor-{len(self._all)}-{monotonic_ns():x}"
        path = str(Path(self._folder.name, name))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            listener.settimeout(START_S)
            log = self._logs / f"{name}.log"
            environment = self._environment | {ENVIRONMENT: path}
            child = self._fork_server.spawn("lockbench.explore.actor", environment, log)
            channel, _ = listener.accept()
        actor = Actor(name, child, channel, log)
        self._all.append(actor)
        return actor
