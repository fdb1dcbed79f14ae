"""A Unix socket that leads to the Docker engine's, and can be cut without touching the engine.

Whoever has it as DOCKER_HOST sees an engine that went away (``cut``) or answers nothing
(``hang``). Bytes are passed on as they are, so streams that take over a connection (attach) work,
too. What hangs is kept and delivered after ``restore``.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

USUAL: Final = "unix:///var/run/docker.sock"
CHUNK: Final = 65536


class NoSocketError(Exception):
    """The engine is not reached by a Unix socket, so nothing can be put before it."""


def engine_socket() -> str:
    """The path of the engine's socket. Raises NoSocketError."""
    host = os.environ.get("DOCKER_HOST") or USUAL
    if not host.startswith("unix://"):
        raise NoSocketError(f"DOCKER_HOST is {host}: only a Unix socket can be cut")
    return host.removeprefix("unix://")


class EngineLink:
    """A context manager. ``path`` must not exist; ``engine`` is a socket's path."""

    def __init__(self, path: Path, engine: str) -> None:
        self._path = path
        self._engine = engine
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._listener: socket.socket | None = None
        self._later: threading.Timer | None = None
        self._flowing = threading.Event()
        self._flowing.set()

    @property
    def host(self) -> str:
        """For DOCKER_HOST."""
        return f"unix://{self._path}"

    def __enter__(self) -> Self:
        self.restore()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Ends every connection, and refuses new ones."""
        self._not_later()
        with self._lock:
            listener, self._listener = self._listener, None
            ending, self._open = self._open, set()
        self._path.unlink(missing_ok=True)
        for one in [*ending, *([listener] if listener else [])]:
            _end(one)
        self._flowing.set()  # what waits finds its connection ended

    def hang(self) -> None:
        """Accepts connections and bytes, and passes nothing on."""
        self._not_later()
        self._flowing.clear()

    def restore(self) -> None:
        """Everything flows again."""
        self._not_later()
        with self._lock:
            if self._listener is None:
                self._listener = socket.socket(socket.AF_UNIX)
                self._listener.bind(str(self._path))
                self._listener.listen(128)
                threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        self._flowing.set()

    def restore_in(self, seconds: float) -> None:
        """The same, later, unless something else is asked for before."""
        self._later = threading.Timer(seconds, self.restore)
        self._later.daemon = True
        self._later.start()

    def flows(self) -> bool:
        """Whether the engine can be reached."""
        return self._listener is not None and self._flowing.is_set()

    def _not_later(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # it was cut
                return
            threading.Thread(target=self._serve, args=(listener, client), daemon=True).start()

    def _serve(self, listener: socket.socket, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX)
        with self._lock:
            self._open |= {client, engine}
            cut = listener is not self._listener
        try:
            if cut:
                return
            self._flowing.wait()
            engine.connect(self._engine)
            back = threading.Thread(target=self._pump, args=(engine, client), daemon=True)
            back.start()
            self._pump(client, engine)
            back.join()
        except OSError:
            pass
        finally:
            for one in (client, engine):
                _end(one)
            with self._lock:
                self._open -= {client, engine}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK):
                self._flowing.wait()
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)  # wakes whoever waits in it; closing alone does not
    one.close()
