"""The lock of known cost, as a lock from outside the package: speaks to ``known_cost_server``."""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from lockbench.locks.base import (
    Acquired,
    Address,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
)


class KnownCost:
    """One client: one connection, made anew once it is broken."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        del ttl_s, observer  # a hold lasts as long as its connection
        self._node = nodes[0]
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        sent_ns = time.monotonic_ns()
        try:
            self._ask(f"acquire {key} {hold_id}\n", self._timeout_s + wait_s)
        except OSError as error:
            self.close()
            return Unknown(f"acquire: {error!r}")
        return Granted(Hold(hold_id, key), None, sent_ns, None)

    def release(self, hold: Hold) -> Freed:
        try:
            answer = self._ask(f"release {hold.key} {hold.id}\n", self._timeout_s)
        except OSError as error:
            self.close()
            return Unknown(f"release: {error!r}")
        return Released() if answer == b"released\n" else NotHeld()

    def close(self) -> None:
        if self._socket is not None:
            with suppress(OSError):
                self._socket.close()
            self._socket = None

    def _ask(self, line: str, limit_s: float) -> bytes:
        if self._socket is None:
            self._socket = socket.create_connection(self._node, self._timeout_s)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(limit_s)
        self._socket.send(line.encode("ascii"))  # shorter than any buffer
        answer = self._socket.recv(64)
        if not answer:
            raise ConnectionResetError("the service has closed the connection")
        return answer


SYSTEM = System(
    name="known-cost",
    topologies=("redis",),
    family="known-cost",
    fence=None,
    waits_by="the answer",
    source="perf/known_cost_server.py",
    connect=KnownCost,
    outcomes={},
    limited=False,
)
