"""sherlock's ``RedisLock`` (https://sher-lock.readthedocs.io), from its package.

``sherlock`` is ``RedisLock(name, client=client, expire=seconds)`` of a client as it comes, without
a limit for its requests; ``sherlock-safe`` sets the client timeout. The time to live is the lease
in both, in whole seconds; the library's default of 60 s would make every fault twenty times as
long.

Three defects of 0.4.1 are in the track record. ``expire=None``, which its docstring offers, cannot
be run here: the key is gone before ``acquire`` returns, and no release ever succeeds. With part of
a second in ``expire`` the key stays for ever; nothing here asks for it. A wait counts its pauses
instead of looking at the clock: one of 0.3 s is given up after 0.2 s.

Does not guarantee: what ``redis-token`` does not.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.libraries.redis_py.lock import REDIS_ERRORS
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.shared.expectations import may_be_late
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://sher-lock.readthedocs.io/en/latest/"
_SOURCE = "https://github.com/py-sherlock/sherlock/blob/master/sherlock/lock.py"
_LATE = f"{_SOURCE}: acquire() does not look at the clock when the script is answered"
_ERRORS = dict.fromkeys(("LockException", "LockTimeoutException"), DOC)
_PLAIN = Library(__file__, extends=True)

_SYSTEM = System(
    name="sherlock",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="polling every 100 ms",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire(blocking=False) returned False": "Denied: held",
        "acquire() raised LockTimeoutException": "Denied: gave-up",
        "acquire() raised anything else": "Unknown",
        "release() returned": "Released",
        "release() raised LockException": "NotHeld",
        "release() raised anything else": "Unknown",
        "renew() returned False": "NotHeld",
        "renew() raised anything else": "Unknown",
    },
    raises=REDIS_ERRORS | _ERRORS,
    not_owed={
        "a_wait_that_ran_out_leaves_nothing_behind": (
            "a wait counts its pauses, not the clock: the last one is given up beforehand"
        ),
        **ERRORS_SAY_LITTLE,
    },
    expectations=may_be_late(LEASE, _LATE),
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM),
)
