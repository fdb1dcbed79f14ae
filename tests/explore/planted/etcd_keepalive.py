"""An extend on etcd that does not read the time to live in the answer: of a lease that has ended,
etcd answers a keepalive too, without one.

Shown where a holder extends when its lease is over and another has the key: both are promised it.
double-grant.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from lockbench.locks.base import Address, Observer
from lockbench.locks.etcd import mutex
from lockbench.locks.etcd.mutex import Etcd


class Wrong(Etcd):
    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        self._ttl_ns = math.ceil(ttl_s) * 1_000_000_000

    def _keep_alive(self, lease: int) -> int:
        self._post("lease/keepalive", {"ID": lease})
        return self._ttl_ns


RIGHT = mutex.SYSTEM.derived(name="right-etcd-keepalive")
WRONG = RIGHT.derived(name="wrong-etcd-keepalive", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
