"""sherlock's ``RedisLock`` (https://sher-lock.readthedocs.io), from its package.

``sherlock`` is ``RedisLock(name, client=client, expire=None)``, the lock that does not expire, as
its docstring offers it. Its script compares the text "-1" with a number, so it always sets a time:
of -1 s, and the key is gone before ``acquire`` returns. ``sherlock-safe`` sets the lease as
``expire`` in whole seconds, and a limit for every request; the library's default of 60 s would make
every fault twenty times as long.

Waits count their pauses instead of looking at the clock: one of 0.3 s is given up after 0.2 s. With
part of a second in ``expire`` the key stays for ever (``adapter.py``); nothing here asks for it.

Does not guarantee: what ``redis-token`` does not.
"""

from __future__ import annotations

from lockbench.locks.base import ANY, Expectation, System
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.shared.expectations import UNMINDED, breaks, may_be_late, may_break
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://sher-lock.readthedocs.io/en/latest/"
_SOURCE = "https://github.com/py-sherlock/sherlock/blob/master/sherlock/lock.py"
_GONE = (
    f"{_SOURCE}: RedisLock says that with expire=None it 'will not expire', and its script "
    "compares ARGV[2], a text, with the number -1, so it calls EXPIRE with -1 and deletes the key"
)
_NO_HOLDER = {
    ANY: Expectation("n/a", "nobody holds the key for longer than its script runs, without a fault")
}
_LATE = f"{_SOURCE}: acquire() does not look at the clock when the script is answered"
_PLAIN = Library(__file__)

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
    not_owed={
        "a_wait_that_ran_out_leaves_nothing_behind": (
            "a wait counts its pauses, not the clock: the last one is given up beforehand"
        ),
        **ERRORS_SAY_LITTLE,
    },
    expectations={
        **dict.fromkeys((*LEASE, *UNMINDED), _NO_HOLDER),
        "none": {
            **may_break(_GONE, ANY, kind="defect"),
            **breaks(_GONE, "double-grant", kind="defect"),
        },
    },
    limited=False,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, extends=True, expectations=may_be_late(LEASE, _LATE), limited=True),
)
