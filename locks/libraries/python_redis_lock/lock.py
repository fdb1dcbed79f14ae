"""python-redis-lock's ``Lock`` (https://python-redis-lock.readthedocs.io), from its package.

``python-redis-lock`` is ``Lock(client, name)``: no time to live. ``python-redis-lock-safe`` sets
the lease as ``expire`` in whole seconds, ``auto_renewal``, no retries, and a limit for requests.

The renewal thread of the library dies of its first error. Then the key runs out, somebody else gets
it, and the holder is told nothing.

``acquire`` first gets the key. Where the answers to an acquire are lost and nothing is sent again,
that is the first, and ``reply-lost`` leaves nothing to judge.

Does not guarantee: what ``redis-token`` does not.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.libraries.redis_py.lock import NO_LEASE, REDIS_ERRORS
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.shared.expectations import PAUSED, may_break, with_changes
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://python-redis-lock.readthedocs.io/en/latest/readme.html"
_NOT_TOLD = (
    "https://github.com/ionelmc/python-redis-lock/blob/master/src/redis_lock/__init__.py: "
    "_lock_renewer() calls extend() without catching anything, and nobody looks at its thread"
)

_SLOW = (
    f"{DOC}: a wait is one BLPOP, so no request may have a shorter limit than the longest wait; "
    "and acquire() does not look at the clock when SET is answered"
)

_UNTOLD = {
    **may_break(_NOT_TOLD, "stale-holder", "lost-update", kind="defect"),
    **may_break(_SLOW, "late-grant"),
}
_HELD_BACK = ("pause", "partition-drop", "partition-stall", "reply-lost")
_LOOKS_FIRST = (
    "https://github.com/ionelmc/python-redis-lock/blob/master/src/redis_lock/__init__.py: "
    "acquire() first gets the key, to see whether it is its own; while that answer is missing, "
    "nothing is set"
)
_ERRORS = dict.fromkeys(
    (
        "AlreadyAcquired",
        "AlreadyStarted",
        "InvalidTimeout",
        "NotAcquired",
        "NotExpirable",
        "TimeoutNotUsable",
        "TimeoutTooLarge",
    ),
    "https://python-redis-lock.readthedocs.io/en/latest/reference/redis_lock.html",
)
_PLAIN = Library(__file__)

_SYSTEM = System(
    name="python-redis-lock",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="BLPOP of a signal",
    source=DOC,
    connect=_PLAIN.connect,
    writes_besides="lock:KEY and lock-signal:KEY",
    prepare=_PLAIN.prepare,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire(blocking=False) returned False": "Denied: held",
        "acquire(timeout=…) returned False": "Denied: gave-up",
        "acquire() raised anything": "Unknown",
        "release() returned": "Released",
        "release() raised NotAcquired": "NotHeld",
        "release() raised anything else": "Unknown",
        "extend() raised NotAcquired": "NotHeld",
        "extend() raised anything else": "Unknown",
    },
    raises=REDIS_ERRORS | _ERRORS,
    not_owed={
        "paused_servers_make_a_release_unknown": (
            "a wait is one BLPOP, so no request may have a shorter limit than the longest wait"
        ),
        **ERRORS_SAY_LITTLE,
    },
    expectations=NO_LEASE,
    limited=False,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(
        _SYSTEM,
        extends=True,
        expectations={
            **with_changes(
                LEASE,
                dict.fromkeys(_HELD_BACK, _UNTOLD),
                dict.fromkeys(PAUSED, may_break(_SLOW, "late-grant")),
            ),
            **dict.fromkeys(("reset", "partition-reject"), _UNTOLD),
        },
        limited=True,
        asks_first=_LOOKS_FIRST,
    ),
)
