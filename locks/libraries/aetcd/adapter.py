"""aetcd's ``Lock``, as its user drives it; what is set stands in ``lock.py``.

One loop in a thread of its own runs the calls of all clients. A client speaks to one endpoint
alone; each is given one by lot.

The promise (``aetcd/locks.py`` of 1.0.0): every try asks for a lease first and then for the key in
one transaction, which renews nothing; so it runs from when the last lease was asked for, for the
time to live that the server answered. ``refresh`` is one keepalive and returns the whole time to
live of its answer, 0 where the lease is gone.
"""

from __future__ import annotations

import asyncio
import math
import random
import threading
import time
from collections.abc import Coroutine
from functools import cache
from typing import Any, TypeVar

import aetcd
from lockbench_sidecar import (
    Acquired,
    Client,
    Extended,
    Freed,
    Granted,
    NotHeld,
    Released,
    Setup,
    refused,
    serve,
)

T = TypeVar("T")


class Noting(aetcd.Client):  # type: ignore[misc]
    """A client that notes when it last asked for a lease, or to keep one alive."""

    sent_ns = 0

    async def lease(self, *args: Any, **more: Any) -> Any:
        await self.connect()
        self.sent_ns = time.monotonic_ns()
        return await super().lease(*args, **more)

    async def refresh_lease(self, lease_id: int) -> Any:
        self.sent_ns = time.monotonic_ns()
        return await super().refresh_lease(lease_id)


class Aetcd(Client):
    """One client: one ``aetcd.Client``, one ``Lock`` per hold."""

    def __init__(self, setup: Setup) -> None:
        host, port = random.choice(setup.nodes)
        timeout_s = setup.timeout_s if setup.safe else None

        async def made() -> Noting:
            return Noting(host, port, timeout=timeout_s)

        self._etcd = _run(made())

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        lock = self._etcd.lock(key.encode(), ttl=math.ceil(ttl_s))
        if not _run(lock.acquire(timeout=wait_s)):
            return refused(wait_s, "acquire() returned False")
        return self._granted(lock.lease.ttl, lock)

    def release(self, hold: str, lock: Any) -> Freed:
        return Released() if _run(lock.release()) else NotHeld()

    def extend(self, hold: str, lock: Any, ttl_s: float) -> Extended:
        """``refresh``."""
        left_s = _run(lock.refresh()).TTL
        return self._granted(left_s) if left_s > 0 else NotHeld()

    def close(self) -> None:
        _run(self._etcd.close())

    def _granted(self, ttl_s: int, lock: Any = None) -> Granted:
        sent_ns = self._etcd.sent_ns
        return Granted(sent_ns, sent_ns + ttl_s * 1_000_000_000, lock=lock)


@cache
def _loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()
    return loop


def _run(call: Coroutine[Any, Any, T]) -> T:
    return asyncio.run_coroutine_threadsafe(call, _loop()).result()


if __name__ == "__main__":
    serve("aetcd", Aetcd)
