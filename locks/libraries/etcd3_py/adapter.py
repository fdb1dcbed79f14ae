"""etcd3-py's ``Lock``, as its user drives it; what is set stands in ``lock.py``. Requests have no
timeout. A client speaks to one endpoint alone; each is given one by lot.

The promise (etcd3-py 0.1.6): ``Lock.acquire`` (etcd3/stateful/lock.py) looks and waits first, then
asks for a lease, writes the key and starts a thread that keeps the lease alive at once
(etcd3/stateful/lease.py, ``keepalive``). The write renews nothing. So it runs from the grant of the
lease or from the newest keepalive that was answered, which may be before ``acquire`` returns, for
as long as that answer says; every keepalive is told.
"""

from __future__ import annotations

import math
import random
import time
from typing import Any

import etcd3
from etcd3.stateful.lock import EtcdLockAcquireTimeout
from lockbench_sidecar import (
    Acquired,
    Client,
    Freed,
    Granted,
    Released,
    Setup,
    Tell,
    refused,
    serve,
)


class Telling(etcd3.Client):  # type: ignore[misc]
    """A client that notes what its leases promise, and says when one was kept alive."""

    def __init__(self, host: str, port: int, tell: Tell) -> None:
        super().__init__(host, port)
        self._tell = tell
        self.holds: dict[int, str] = {}  # lease → hold
        self.promises: dict[int, tuple[int, int]] = {}  # lease → sent, valid until

    def lease_grant(self, TTL: int, ID: int = 0) -> Any:  # noqa: N803 - the library's own names
        sent_ns = time.monotonic_ns()
        lease = super().lease_grant(TTL, ID)
        self.promises[lease.ID] = sent_ns, sent_ns + int(lease.TTL) * 1_000_000_000
        return lease

    def lease_keep_alive_once(self, ID: int) -> Any:  # noqa: N803 - the library's own name
        sent_ns = time.monotonic_ns()
        answer = super().lease_keep_alive_once(ID)
        left_s = int(getattr(answer, "TTL", 0) or 0)
        if left_s > 0:
            until_ns = sent_ns + left_s * 1_000_000_000
            self.promises[ID] = sent_ns, until_ns
            # Only now: a hold that is not known yet is granted with what was just noted.
            if (hold := self.holds.get(ID)) is not None:
                self._tell.extended(hold, sent_ns=sent_ns, valid_until_ns=until_ns)
        return answer


class Etcd3Py(Client):
    """One client: one ``Client``, one ``Lock`` per hold."""

    gave_up = (EtcdLockAcquireTimeout,)

    def __init__(self, setup: Setup) -> None:
        host, port = random.choice(setup.nodes)
        self._etcd = Telling(host, port, setup.tell)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        lock = self._etcd.Lock(key, lock_ttl=math.ceil(ttl_s))
        gotten = lock.acquire(timeout=wait_s) if wait_s > 0 else lock.acquire(block=False)
        if gotten is None:
            return refused(wait_s, "acquire() returned None")
        self._etcd.holds[lock.lease.ID] = hold
        return Granted(*self._etcd.promises[lock.lease.ID], lock=lock)

    def release(self, hold: str, lock: Any) -> Freed:
        """``release`` revokes the lease; it returns nothing."""
        self._etcd.holds.pop(lock.lease.ID, None)
        self._etcd.promises.pop(lock.lease.ID, None)
        lock.release()
        return Released()

    def close(self) -> None:
        self._etcd.close()


if __name__ == "__main__":
    serve("etcd3-py", Etcd3Py)
