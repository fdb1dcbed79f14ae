"""etcd3gw's ``Lock``, as its user drives it; what is set stands in ``lock.py``.

A block that ``with`` runs is Granted, whether the lock was acquired or not. The lock does not wait,
so a wait asks again every tenth of a second. A client speaks to one endpoint alone; each is given
one by lot.

The promise (etcd3gw 2.7.0): ``Lock.acquire`` (etcd3gw/lock.py) asks for a lease first and then for
the key in one transaction, which renews nothing; so the promise runs from when the lease was asked
for. The client's first request of all, for the version (etcd3gw/client.py, api_path), is before it.
The library drops the time to live that the server answered, and so the one that was asked for
counts; below one and a half election timeouts, 2 s here, the server grants more. ``refresh``
(etcd3gw/lease.py) is one keepalive and returns the whole time to live of its answer.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

from etcd3gw.client import Etcd3Client
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

POLL_S = 0.1


class Noting(Etcd3Client):
    """A client that notes when it last asked for a lease, or to keep one alive."""

    sent_ns = 0

    def post(self, url: str, *args: Any, **more: Any) -> Any:
        if "/lease/" in url:
            self.sent_ns = time.monotonic_ns()
        return super().post(url, *args, **more)


class Etcd3Gw(Client):
    """One client: one ``Etcd3Client``, one ``Lock`` per try."""

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        host, port = random.choice(setup.nodes)
        self._etcd = Noting(host, port, timeout=setup.timeout_s if setup.safe else None)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """``with client.lock(…)``, or ``acquire`` until it is True."""
        over = time.monotonic() + wait_s
        while True:
            lock = self._etcd.lock(key, ttl=math.ceil(ttl_s))
            if not self._safe:
                lock.__enter__()
            if not self._safe or lock.acquire():
                sent_ns = self._etcd.sent_ns
                until_ns = sent_ns + math.ceil(ttl_s) * 1_000_000_000
                return Granted(sent_ns, until_ns, lock=lock)
            if time.monotonic() >= over:
                return refused(wait_s, "acquire() returned False")
            time.sleep(max(0.0, min(POLL_S, over - time.monotonic())))

    def release(self, hold: str, lock: Any) -> Freed:
        """The end of the ``with``, which says nothing; or ``release``, whose False is NotHeld."""
        if not self._safe:
            lock.__exit__(None, None, None)
            return Released()
        return Released() if lock.release() else NotHeld()

    def extend(self, hold: str, lock: Any, ttl_s: float) -> Extended:
        """``refresh``: a time to live of -1 says that the lease is gone."""
        left_s = lock.refresh()
        if left_s < 0:
            return NotHeld()
        sent_ns = self._etcd.sent_ns
        return Granted(sent_ns, sent_ns + left_s * 1_000_000_000)

    def close(self) -> None:
        self._etcd.session.close()


if __name__ == "__main__":
    serve("etcd3gw", Etcd3Gw)
