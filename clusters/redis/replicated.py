"""What Sentinel and Redis Cluster share: asynchronous replication, and promotion by the servers.

The servers know each other from their first start, as they would after a restart. Until everything
is verified they wait for `PATIENT_MS` before they call anybody down, so that nothing is failed over
while the cluster comes up. Then the declared limit is set.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod

from lockbench.clusters.redis.nodes import SETTINGS as REDIS_SETTINGS
from lockbench.clusters.redis.nodes import RedisPods
from lockbench.clusters.wire import ProbeFailed

ASK_LIMIT_S = 0.5
PATIENT_MS = 30_000

SETTINGS = {
    **REDIS_SETTINGS,
    "repl-diskless-sync-delay": "0",
    "repl-ping-replica-period": "1",
    "repl-timeout": "5",
}


class ReplicatedRedis(RedisPods):
    """Redis servers of which some follow others. ``Promotable``."""

    elects = True

    @abstractmethod
    def primary(self) -> int | None: ...

    @abstractmethod
    def begin_failover(self, node: int) -> None:
        """Ask for the promotion of this node, where none is under way. Raises OSError or
        ProbeFailed."""

    def promotes_nobody(self) -> str | None:
        return None

    def promote(self, node: int, timeout_s: float) -> None:
        """Wait for the failover of the servers, and begin one where none is under way."""

        def attempt() -> None:
            if self.primary() != node:
                self.begin_failover(node)
                raise ProbeFailed("the others do not call it the primary")

        self._poll(attempt, timeout_s, f"{self.node_name(node)} was not promoted in {timeout_s} s")

    def _id(self, what: object) -> str:
        """Forty digits, as a server draws them itself."""
        return hashlib.sha1(f"{self.id}-{what}".encode(), usedforsecurity=False).hexdigest()
