"""``redlock`` on nodes that sync every write to disk before they answer, the documented remedy for
restarts: 'if we want to guarantee the lock safety in the face of any kind of instance restart, we
need to enable fsync=always in the persistence settings'.

The lock is the same, the servers are set up differently: a node that was killed, or lost its power,
comes back with every grant that it ever acknowledged. A disk that was lost is no restart, and the
clock is not helped either.
"""

from __future__ import annotations

from lockbench.locks.redis import redlock
from lockbench.locks.redis.expectations import FSYNC_DOC, REDLOCK
from lockbench.locks.shared.expectations import holds, with_changes

SYSTEM = redlock.SYSTEM.derived(
    name="redlock-fsync",
    topologies=("redlock-fsync",),
    source=FSYNC_DOC,
    expectations=with_changes(
        REDLOCK,
        dict.fromkeys(
            ("kill", "power-loss", "rolling-restart"),
            holds(FSYNC_DOC, "double-grant", "lost-update"),
        ),
    ),
)
