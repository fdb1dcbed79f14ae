"""``redlock`` on nodes that stay away after a crash for longer than the longest time to live, the
documented remedy for nodes that forget: 'we just need to make an instance, after a crash,
unavailable for at least a bit more than the max TTL we use'.

The lock is the same, the servers are started differently. So a node may come back without any data:
every hold that it knew of is over. What it costs: for that long, a majority that crashed together
is away. Clocks are not helped.
"""

from __future__ import annotations

from lockbench.locks.redis import redlock
from lockbench.locks.redis.expectations import LOCK_DOC, REDLOCK
from lockbench.locks.shared.expectations import holds, with_changes

_DELAYED = (
    f"{LOCK_DOC}#performance-crash-recovery-and-fsync: 'Using delayed restarts it is basically "
    "possible to achieve safety even without any kind of Redis persistence available'"
)

SYSTEM = redlock.SYSTEM.derived(
    name="redlock-delayed-restart",
    topologies=("redlock-delayed-restart",),
    source=_DELAYED,
    expectations=with_changes(
        REDLOCK,
        dict.fromkeys(
            ("kill", "wipe", "power-loss", "rolling-restart"),
            holds(_DELAYED, "double-grant", "lost-update"),
        ),
    ),
)
