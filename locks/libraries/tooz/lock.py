"""tooz's lock (https://docs.openstack.org/tooz/latest/user/tutorial/lock.html) on its ZooKeeper
driver, from its package.

``tooz`` is ``get_coordinator("zookeeper://…")`` and ``get_lock(name)``: a session of 10 s, which is
the lease of its cases. ``tooz-safe`` has a shorter session and retries no command. Explorations
give both the shorter one. It wraps kazoo's ``Lock``; ``acquired`` is what the process remembers,
and nobody is told of a loss. The promise is that of ``kazoo``: in tooz 9.1.0
(tooz/drivers/zookeeper.py) heartbeats are kazoo's own.

Does not guarantee: what ``kazoo`` does not.
"""

from __future__ import annotations

from lockbench.locks.libraries.kazoo import lock as library_kazoo
from lockbench.locks.shared.library import Library, as_safe
from lockbench.locks.zookeeper import mutex as zookeeper

DOC = "https://docs.openstack.org/tooz/latest/user/tutorial/lock.html"

# Not those of kazoo, which it is built on and of which its user sees nothing.
_RAISES = dict.fromkeys(
    (
        "ToozError",
        "ToozConnectionError",
        "OperationTimedOut",
        "LockAcquireFailed",  # a ToozError
    ),
    "https://docs.openstack.org/tooz/latest/reference/index.html#exceptions",
)
_PLAIN = Library(__file__)

_SYSTEM = library_kazoo.SYSTEMS[0].derived(
    name="tooz",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    raises=_RAISES,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, pace=zookeeper.OUTLIVES_A_RESTART),
)
