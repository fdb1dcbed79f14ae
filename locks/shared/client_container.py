"""A lock library of another language: in a container that we build, behind a sidecar.

The image (``clusters/images/<image>``) has one program for all locks of its language, built
with the sources in their folders (``locks/libraries/<name>``). It is told which lock, and where
this process listens. It connects, and the stream is the sidecar's from then on
(``docs/sidecar.md``). The first ``prepare`` builds the image, once.

Refused is a program that does not know the word it was started with, whose clock is not this
machine's monotonic clock, which promises are told in, or whose library has another version than the
one that is pinned (``lockbench.locks.shared.pins``), which results record.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from lockbench.clusters import images
from lockbench.clusters.engine import client_containers as clients
from lockbench.clusters.engine.docker import Engine, EngineError
from lockbench.clusters.libraries import PHP
from lockbench.locks.base import Address, LockUnusableError, Observer
from lockbench.locks.shared import pins
from lockbench.locks.shared.client_programs import Program
from lockbench.locks.shared.sidecar import (
    ExtendableSidecarLock,
    ShareableSidecarLock,
    Sidecar,
    SidecarError,
    SidecarLock,
    shared,
)

# In the program's environment.
WORKER: Final = "LOCKBENCH_SIDECAR_WORKER"  # host:port
WORD: Final = "LOCKBENCH_SIDECAR_WORD"
POLL_S: Final = 0.2


@dataclass(frozen=True)
class ContainerLibrary:
    """One lock of one image and how it is set. ``connect`` and ``prepare`` are those of a
    ``System``.

    ``safe``: one call is one attempt, as far as the library lets its user have that; else the
    library's defaults.
    """

    image: str
    lock: str
    program: Program
    safe: bool = False
    extends: bool = False
    shares: bool = False

    @property
    def source(self) -> Path:
        """The file of the image that calls the library."""
        return images.recipes()[self.image].files()[self.program.source]

    def prepare(self) -> None:
        """Builds the image unless it is there. Raises LockUnusableError."""
        try:
            with Engine() as engine:
                images.ensure([self.image], engine=engine)
        except EngineError as error:
            raise LockUnusableError(str(error).splitlines()[0]) from error

    def connect(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> SidecarLock:
        """A client. Raises LockUnusableError."""
        kind: type[SidecarLock] = ExtendableSidecarLock if self.extends else SidecarLock
        kind = ShareableSidecarLock if self.shares else kind
        try:
            return kind(
                self.started(),
                nodes,
                timeout_s=timeout_s,
                ttl_s=ttl_s,
                observer=observer,
                safe=self.safe,
            )
        except SidecarError as error:
            raise LockUnusableError(str(error)) from error

    def started(self) -> Sidecar:
        """What the clients of this process run in. Raises SidecarError."""
        return shared(self.lock, lambda: ContainerSidecar(self.image, self.lock))


class ContainerSidecar(Sidecar):
    """The program in its container and the stream to it."""

    def __init__(self, image: str, lock: str, program: Sequence[str] | None = None) -> None:
        """``program`` is the image's own, ``/usr/local/bin/<image>``, unless it is given."""
        self._image = image
        self._program = [*(program or [f"/usr/local/bin/{image}"]), lock]
        self._word = secrets.token_hex(16)
        self._begun_ns = time.monotonic_ns()
        super().__init__(lock, self._program)

    def _start(self) -> None:
        self._socket.close()  # of the pair that a child would have had
        self._theirs.close()
        with socket.create_server(("127.0.0.1", 0)) as listener:
            host, port = listener.getsockname()
            environment = {WORKER: f"{host}:{port}", WORD: self._word}
            try:
                self._process = clients.start(
                    images.recipes()[self._image].ref, self._program, environment
                )
            except EngineError as error:
                raise SidecarError(f"cannot be started: {error}") from error
            listener.settimeout(POLL_S)
            self._socket = self._accept(listener, self._process)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _accept(self, listener: socket.socket, program: clients.ClientProcess) -> socket.socket:
        while program.process.is_running() and not self._over():
            try:
                accepted, _ = listener.accept()
            except TimeoutError:
                continue
            accepted.settimeout(None)
            return accepted
        raise SidecarError("ended before it said hello")

    def _check(self, hello: dict[str, Any]) -> None:
        if hello["word"] != self._word:
            raise SidecarError("does not know the word that it was started with")
        if not self._begun_ns <= hello["now_ns"] <= time.monotonic_ns():
            raise SidecarError("has another clock than this machine's monotonic one")
        check_version(self._image, hello)


def check_version(image: str, hello: Mapping[str, Any]) -> None:
    """Raises SidecarError where the library that a hello names is pinned to another version."""
    name, version = hello["library"], hello["version"]
    pinned = pins.of_image(image).get(name, version)
    # Debian's mirror has one version at a time: what was built with another one says so in what is
    # recorded of its image (``differs``).
    if version != pinned and images.recipes()[image].language is not PHP:
        raise SidecarError(f"is {name} {version}, not {pinned} as pinned: build the image anew")
