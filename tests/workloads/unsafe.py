"""Locks that need no server: one that grants everything, and one that is a file lock."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from locks.base import Acquired, Address, Denied, Freed, Granted, Hold, Observer, Released

RETRY_S = 0.002


class Everybody:
    """Grants the lock to whoever asks."""

    topologies: ClassVar = ("redis",)

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        del nodes, timeout_s, ttl_s, observer

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        sent_ns = time.monotonic_ns()
        return Granted(Hold(hold_id, key), None, sent_ns, sent_ns + int(1e9 * ttl_s))

    def release(self, hold: Hold) -> Freed:
        return Released()

    def close(self) -> None:
        """Nothing is open."""


class OneAtATime(Everybody):
    """A file that only one process may lock; without a limit in time."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        # A folder of this load: every load has a master port of its own.
        name = f"lockbench-test-{os.environ['LOCKBENCH_LOAD'].replace('/', '-')}-{key}"
        file = os.open(Path(tempfile.gettempdir()) / name, os.O_RDWR | os.O_CREAT)
        end = time.monotonic() + wait_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > end:
                    os.close(file)
                    return Denied("gave-up: held")
                time.sleep(RETRY_S)
            else:
                return Granted(Hold(hold_id, key, file), None, time.monotonic_ns(), None)

    def release(self, hold: Hold) -> Freed:
        os.close(hold.handle)
        return Released()
