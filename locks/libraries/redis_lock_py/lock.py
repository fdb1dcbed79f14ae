"""redis-lock-py's ``RedisLock`` (https://github.com/miintto/redis-lock-py), from its package.

``redis-lock-py`` is ``RedisLock(client, name)``: no time to live. ``redis-lock-py-safe`` sets the
lease as ``expire_timeout`` in whole seconds, no retries, and a limit for every request. Its waits
are measured by the wall clock.

Does not guarantee: what ``redis-token`` does not.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.libraries.redis_py.lock import NO_LEASE, REDIS_ERRORS
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://github.com/miintto/redis-lock-py"

_ERRORS = dict.fromkeys(
    ("InvalidArgsError", "LockNotOwnedError", "AcquireFailedError", "ExtendFailedError"),
    f"{DOC}/blob/master/redis_lock/exceptions.py",
)
_PLAIN = Library(__file__)

_SYSTEM = System(
    name="redis-lock-py",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="publish and subscribe",
    source=DOC,
    connect=_PLAIN.connect,
    writes_besides="rlock-channel:KEY",
    prepare=_PLAIN.prepare,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire() returned False, one try": "Denied: held",
        "acquire() returned False, the wait is over": "Denied: gave-up",
        "acquire() raised anything": "Unknown",
        "release() returned": "Released",
        "release() raised LockNotOwnedError": "NotHeld",
        "release() raised anything else": "Unknown",
        "extend() raised ExtendFailedError": "NotHeld",
        "extend() raised anything else": "Unknown",
    },
    raises=REDIS_ERRORS | _ERRORS,
    not_owed=ERRORS_SAY_LITTLE,
    expectations=NO_LEASE,
    limited=False,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, extends=True, expectations=LEASE, limited=True),
)
