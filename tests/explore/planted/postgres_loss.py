"""An advisory lock on PostgreSQL whose holder is not told that its session has ended.

Shown where a free key is acquired and the connection is reset after the answer: the server gives
the key to another, and the holder goes on. double-grant.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.locks.base import Address, NoObserver, Observer
from lockbench.locks.postgres import advisory
from lockbench.locks.postgres.advisory import PostgresAdvisory


class Wrong(PostgresAdvisory):
    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=NoObserver())


RIGHT = advisory.SYSTEM.derived(name="right-postgres-loss")
# That a holder hears of a reset late is declared of the right one, and takes less time there.
WRONG = RIGHT.derived(name="wrong-postgres-loss", connect=Wrong, expectations={})
SYSTEMS = (RIGHT, WRONG)
