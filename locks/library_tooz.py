"""tooz's lock (https://docs.openstack.org/tooz/latest/user/tutorial/lock.html) on its ZooKeeper
driver, from its package.

``tooz`` is ``get_coordinator("zookeeper://…")`` and ``get_lock(name)``: a session of 10 s, which is
the lease of its cases. ``tooz-safe`` makes the session as long as the lease and retries no command.
It wraps kazoo's ``Lock``; ``acquired`` is what the process remembers, and nobody is told of a loss.

Does not guarantee: what ``kazoo`` does not.
"""

from __future__ import annotations

from dataclasses import replace

from locks import library_kazoo
from locks.base import System
from locks.library import Library

DOC = "https://docs.openstack.org/tooz/latest/user/tutorial/lock.html"

_PLAIN = Library("tooz")
_SAFE = Library("tooz", safe=True)

_SYSTEM = System(
    name="tooz",
    topologies=("zookeeper",),
    family="zookeeper",
    fence=None,
    waits_by="watch on the node before",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes=library_kazoo.OUTCOMES,
    expectations=library_kazoo.EXPECTATIONS,
    pace={"lease_ttl_s": 10.0},
)

SYSTEMS = (
    _SYSTEM,
    replace(
        _SYSTEM,
        name="tooz-safe",
        connect=_SAFE.connect,
        prepare=_SAFE.prepare,
        pace={},
    ),
)
