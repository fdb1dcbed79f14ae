"""kazoo's own ``Lock``, as its user drives it; what is set stands in ``lock.py``.

``release`` returns True for a node that is gone already, and so it is Released here.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo_session import Session, watched
from lockbench_sidecar import Acquired, Client, Freed, Setup, refused, serve

ROOT = "/lockbench-kazoo"


class Kazoo(Client):
    """One client: one session, one ``Lock`` per hold."""

    gave_up = (LockTimeout,)

    def __init__(self, setup: Setup) -> None:
        self._session = Session(setup)
        how: dict[str, Any] = {"timeout": setup.ttl_s}
        if setup.safe:
            # One try. kazoo counts before it compares, so that 0 would be without end.
            how["command_retry"] = KazooRetry(max_tries=1)
        hosts = ",".join(f"{host}:{port}" for host, port in setup.nodes)
        self._zk = watched(KazooClient(hosts=hosts, **how), self._session)
        if setup.safe:
            self._zk.add_listener(self._changed)
        self._zk.start()

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        lock = self._zk.Lock(f"{ROOT}/{quote(key, safe='')}", hold)
        gotten = lock.acquire(timeout=wait_s) if wait_s > 0 else lock.acquire(blocking=False)
        if not gotten:
            return refused(wait_s, "acquire() returned False")
        return self._session.granted(hold, lock)

    def release(self, hold: str, lock: Any) -> Freed:
        return self._session.release(hold, lock)

    def close(self) -> None:
        self._zk.stop()
        self._zk.close()

    def _changed(self, state: str) -> None:
        if state == KazooState.LOST:
            self._session.lost()


if __name__ == "__main__":
    serve("kazoo", Kazoo)
