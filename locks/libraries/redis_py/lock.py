"""redis-py's own ``Lock`` (https://redis.readthedocs.io/en/stable/lock.html), from its package.

``redis-py`` is what ``client.lock(name)`` gives: no time to live, a wait that polls every 0.1 s,
and a client that sends a command up to ten times more when its answer is lost. The second SET finds
the first one's key, and ``acquire`` returns False while its own key lives, for ever. The second
release finds no key, and raises LockNotOwnedError for what the first one has released.

``redis-py-safe`` sets the lease as ``timeout``, no retries and a limit for every request.

Does not guarantee: what ``redis-token`` does not.
"""

from __future__ import annotations

from lockbench.locks.base import ANY, System
from lockbench.locks.redis.expectations import LEASE, no_lease
from lockbench.locks.shared.expectations import (
    ANSWERS_LOST,
    PAUSED,
    RESTARTED,
    Faults,
    may_break,
    with_changes,
)
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://redis.readthedocs.io/en/stable/lock.html"
_NEVER_ENDS = f"{DOC}: 'timeout … By default, it will remain locked until release() is called'"
_SENT_AGAIN = may_break(
    "https://github.com/redis/redis-py/blob/master/redis/client.py: the default retry sends a "
    "command again, up to ten times, when its answer is lost; SET NX then finds the key of the "
    "first one, and the script that releases finds none",
    "linearizable",
    kind="defect",
)

_NO_CLOCK = may_break(
    "https://github.com/redis/redis-py/blob/master/redis/lock.py: acquire() returns True when "
    "SET is answered, and looks at no clock",
    "late-grant",
)

# Of the client of redis-py that its user gives to a lock.
REDIS_ERRORS = dict.fromkeys(
    (
        "RedisError",
        "ConnectionError",
        "TimeoutError",
        "AuthenticationError",
        "AuthorizationError",
        "BusyLoadingError",
        "MaxConnectionsError",
        "InvalidResponse",
        "DataError",
        "ResponseError",
        "NoScriptError",
        "NoPermissionError",
        "OutOfMemoryError",
        "ReadOnlyError",
        "LockError",
        "LockNotOwnedError",
    ),
    "https://redis.readthedocs.io/en/stable/exceptions.html",
)


def sent_again(usual: Faults) -> Faults:
    """``usual``, of a client with redis-py's default retries."""
    return with_changes(usual, dict.fromkeys((*ANSWERS_LOST, *RESTARTED, "wipe"), _SENT_AGAIN))


NO_LEASE: Faults = sent_again(no_lease(_NEVER_ENDS))
WITH_LEASE: Faults = with_changes(LEASE, dict.fromkeys(PAUSED, _NO_CLOCK))

_PLAIN = Library(__file__)

_SYSTEM = System(
    name="redis-py",
    suites={"capacity": (ANY,)},
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="polling every 100 ms",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    elsewhere=True,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire(blocking=False) returned False": "Denied: held",
        "acquire(blocking_timeout=…) returned False": "Denied: gave-up",
        "acquire() raised anything": "Unknown",
        "release() returned": "Released",
        "release() raised LockError": "NotHeld",
        "release() raised anything else": "Unknown",
        "extend() raised LockError": "NotHeld",
        "extend() raised anything else": "Unknown",
    },
    raises=REDIS_ERRORS,
    not_owed={
        "a_wait_that_ran_out_leaves_nothing_behind": (
            "it gives up as soon as the next poll would come after the wait"
        ),
        **ERRORS_SAY_LITTLE,
    },
    expectations=NO_LEASE,
    limited=False,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, extends=True, represents=True, expectations=WITH_LEASE, limited=True),
)
