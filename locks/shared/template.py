"""A process that has imported a library's adapter and forks sidecars of it.

Importing a library takes some tenths of a second of CPU. Whoever starts hundreds of sidecars of one
library (``explore``) pays for that once.

Guarantees: a sidecar is a process of its own, forked by a single thread before any client was made.
It belongs to the process group of whoever asked for it, so a signal to that group reaches it too.

Does not guarantee that it dies with whoever asked: it ends with its stream, as all adapters do.
"""

from __future__ import annotations

import os
import select
import socket
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lockbench.clusters.engine.owner import die_with_parent
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import psutil
else:
    psutil = lazy("psutil")

# In the environment of the template, and of those that ask it: where it listens.
TEMPLATE: Final = "LOCKBENCH_TEMPLATE"
START_S: Final = 60.0
READ_BYTES: Final = 64
READY: Final = b"ready\n"


class Template:
    """A context manager. ``command`` starts the adapter. ``path`` is where it listens, None where
    it cannot fork: its adapter ended, has more than one thread or does not use ``serve``."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lockbench-template-")
        path = str(Path(self._folder.name, "asked"))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen()
            self._process = subprocess.Popen(
                command,
                env=dict(environment) | {TEMPLATE: path},
                stdin=listener.fileno(),
                stdout=subprocess.PIPE,
                process_group=0,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no locks
            )
        self.path = path if self._is_ready() else None

    def __enter__(self) -> Template:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._folder.cleanup()

    def _is_ready(self) -> bool:
        assert self._process.stdout is not None
        poller = select.poll()
        poller.register(self._process.stdout, select.POLLIN)
        return bool(poller.poll(1000 * START_S)) and self._process.stdout.readline() == READY


def forked(path: str, stream: int) -> psutil.Process:
    """A new sidecar of the template at ``path``, which is spoken to over ``stream``; what it prints
    goes to this process' standard error. It is no child of this process. Raises OSError."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(path)
        socket.send_fds(channel, [str(os.getpgrp()).encode()], [stream, 2])
        answer = channel.recv(READ_BYTES)
    if not answer:
        raise OSError("the template of the sidecars has ended")
    try:
        return psutil.Process(int(answer))
    except psutil.NoSuchProcess as error:
        raise OSError("a forked sidecar ended at once") from error
