"""The ``Lock`` of redis-py's asyncio client
(https://redis.readthedocs.io/en/stable/lock.html), from its package.

It is the ``Lock`` of ``redis-py`` written once more: the same commands, the same defaults, and so
the same expectations. ``redis-py-asyncio`` is ``client.lock(name)``, ``redis-py-asyncio-safe`` sets
the lease as ``timeout``, no retries and a limit for every request.

Does not guarantee: what ``redis-py`` does not.
"""

from __future__ import annotations

from lockbench.locks.libraries.redis_py import lock as library_redis_py
from lockbench.locks.shared.library import Library, as_safe

_PLAIN = Library(__file__)

_SYSTEM = library_redis_py.SYSTEMS[0].derived(
    name="redis-py-asyncio",
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    elsewhere=True,
    variant=True,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, extends=True, expectations=library_redis_py.WITH_LEASE, limited=True),
)
