"""tooz's lock on its ZooKeeper driver, as its user drives it; what is set stands in ``lock.py``.

The driver is kazoo's ``Lock`` inside, whose LockTimeout comes through when a wait is over.
"""

from __future__ import annotations

import math
import secrets
from typing import Any
from urllib.parse import quote

from kazoo.exceptions import LockTimeout
from kazoo_session import Session, watched
from lockbench_sidecar import Acquired, Client, Freed, Setup, refused, serve
from tooz.coordination import get_coordinator


class Tooz(Client):
    """One client: one coordinator, one lock per hold."""

    gave_up = (LockTimeout,)

    def __init__(self, setup: Setup) -> None:
        self._session = Session(setup)
        hosts = ",".join(f"{host}:{port}" for host, port in setup.nodes)
        how: dict[str, Any] = {"timeout": str(math.ceil(setup.ttl_s))}
        if setup.safe:
            # One try. kazoo counts before it compares, so that 0 would be without end.
            how["command_retry"] = {"max_tries": 1}
        member = f"lockbench-{secrets.token_hex(8)}".encode()
        self._coordinator: Any = get_coordinator(f"zookeeper://{hosts}", member, **how)
        watched(self._coordinator._coord, self._session)  # noqa: SLF001 - its kazoo client
        self._coordinator.start(start_heart=True)

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        lock = self._coordinator.get_lock(quote(key, safe="").encode())
        gotten = lock.acquire(timeout=wait_s) if wait_s > 0 else lock.acquire(blocking=False)
        if not gotten:
            return refused(wait_s, "acquire() returned False")
        return self._session.granted(hold, lock)

    def release(self, hold: str, lock: Any) -> Freed:
        return self._session.release(hold, lock)

    def close(self) -> None:
        self._coordinator.stop()


if __name__ == "__main__":
    serve("tooz", Tooz)
