"""How the Docker engine of another host is reached: its socket is here already, or a command makes
one that leads there (``ssh -N -L {socket}:/var/run/docker.sock a``).

The command has no terminal, so it can ask for nothing. It dies with the thread that has started it.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Final

from lockbench.clusters.base import Host
from lockbench.clusters.engine import owner
from lockbench.clusters.engine.connection import EngineUnreachable
from lockbench.clusters.engine.docker import Engine

UNIX: Final = "unix://"
SOCKET: Final = "{socket}"
FOLDER: Final = "lockbench-host-"
OWNER: Final = "owner"
UP_LIMIT_S: Final = 20.0
END_S: Final = 2.0
POLL_S: Final = 0.02
WORDS_MAX: Final = 200


class Forward:
    """The way to one host's engine. Its command, if it has one, has started with this."""

    def __init__(self, host: Host, log: Path | None = None) -> None:
        """``log`` gets what the command says. Raises EngineUnreachable."""
        self.host = host
        self.name = f"forward-{host.name}"
        self._url = host.engine
        self._process: subprocess.Popen[bytes] | None = None
        if host.engine.startswith(UNIX):
            return
        # Short, because the path of a socket may have 107 bytes.
        self._folder = Path(tempfile.mkdtemp(prefix=FOLDER))
        (self._folder / OWNER).write_text(owner.me())
        self._socket = self._folder / "s"
        self._log = log or self._folder / "log"
        self._url = f"{UNIX}{self._socket}"
        words = [word.replace(SOCKET, str(self._socket)) for word in shlex.split(host.engine)]
        try:
            with self._log.open("ab") as said:
                self._process = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                    start_new_session=True,
                    env=os.environ | {"SSH_ASKPASS_REQUIRE": "never"},
                    preexec_fn=owner.die_with_parent,  # noqa: PLW1509 - it calls the kernel alone
                )
        except OSError as error:
            rmtree(self._folder, ignore_errors=True)
            why = f"{words[0]}: {error.strerror}"
            raise EngineUnreachable(f"host {host.name} cannot be reached: {why}") from error

    @property
    def pid(self) -> int | None:
        """Of the command; None where there is none."""
        return None if self._process is None else self._process.pid

    def engine(self) -> Engine:
        """The engine at its end. Raises EngineError."""
        until = time.monotonic() + UP_LIMIT_S
        while True:
            try:
                return Engine(self._url, self.host.name)
            except EngineUnreachable as error:
                if self._process is None:
                    raise
                if (code := self._ended_with()) is not None:
                    raise EngineUnreachable(
                        f"host {self.host.name} cannot be reached: its command ended with {code}"
                        f"{self._said()}"
                    ) from error
                if time.monotonic() > until:
                    raise EngineUnreachable(
                        f"host {self.host.name} cannot be reached: its command made no socket that"
                        f" an engine answers at in {UP_LIMIT_S:.0f} s{self._said()}"
                    ) from error
            time.sleep(POLL_S)

    def close(self) -> None:
        """End the command, with what it has started; twice is no error."""
        if self._process is None or self._process.returncode is not None:
            return
        for signal_ in (signal.SIGTERM, signal.SIGKILL):
            # It leads a session of its own, whose number is nobody else's until it is waited for.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal_)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(END_S)
                break
        rmtree(self._folder, ignore_errors=True)

    def _ended_with(self) -> int | None:
        """The command's exit code, minus the number of a signal; it is not waited for, so that its
        number stays its own."""
        assert self._process is not None
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        ended = os.waitid(os.P_PID, self._process.pid, options)
        if ended is None:
            return None
        return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status

    def _said(self) -> str:
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").split("\n")
            if last := [line.strip() for line in lines if line.strip()]:
                return f" ({last[-1][:WORDS_MAX]})"
        return ""


@contextmanager
def reached(host: Host) -> Iterator[Engine]:
    """The engine of a host. Raises EngineError."""
    way = Forward(host)
    try:
        with way.engine() as engine:
            yield engine
    finally:
        way.close()


def remove_left() -> list[str]:
    """Remove the folders of processes that have ended; their paths."""
    removed = []
    for file in Path(tempfile.gettempdir()).glob(f"{FOLDER}*/{OWNER}"):
        with suppress(OSError):
            if file.parent.stat().st_uid == os.getuid() and owner.is_dead(file.read_text()):
                rmtree(file.parent)
                removed.append(str(file.parent))
    return removed
