"""pottery's ``Redlock`` (https://github.com/brainix/pottery#redlock), from its package.

``pottery`` is ``Redlock(key=…, masters=…)``: 10 s of time to live, which is the lease of its cases
(2 s in explorations), and redis-py's retries. ``pottery-safe`` has the usual lease, exceptions for
errors, no retries and a limit for every request.

Does not guarantee: what ``redlock`` does not. ``extend`` does not look at the clock: when answers
are late it returns normally though no key is left.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.libraries.redis_py.lock import REDIS_ERRORS, sent_again
from lockbench.locks.redis.expectations import LOCK_DOC, REDLOCK
from lockbench.locks.shared.expectations import PAUSED, may_break, with_changes
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://github.com/brainix/pottery#redlock"
_RETRIED = (
    f"{LOCK_DOC}#performance-crash-recovery-and-fsync: a restarted node that forgot a grant gives "
    "it away again; but pottery leaves slow nodes to its threads, whose retries of SET may take a "
    "node again that has come back"
)

_BEFORE_THE_LAST = may_break(
    "https://github.com/brainix/pottery/blob/master/pottery/executor.py: acquire() looks at the "
    "clock and returns as soon as a majority has answered, so a pause at an answer of the others "
    "comes after the look",
    "late-grant",
)
_REDLOCK = with_changes(REDLOCK, dict.fromkeys(PAUSED, _BEFORE_THE_LAST))

_ERRORS = dict.fromkeys(
    (
        "QuorumNotAchieved",
        "QuorumIsImpossible",
        "TooManyExtensions",
        "ExtendUnlockedLock",
        "ReleaseUnlockedLock",
    ),
    "https://github.com/brainix/pottery/blob/master/pottery/exceptions.py",
)
_PLAIN = Library(__file__, extends=True)

_SYSTEM = System(
    name="pottery",
    topologies=("redlock",),
    family="redis",
    fence=None,
    waits_by="polling, pauses of up to 200 ms",
    source=DOC,
    connect=_PLAIN.connect,
    writes_besides="redlock:KEY",
    prepare=_PLAIN.prepare,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire(blocking=False) returned False": "Denied: held",
        "acquire(timeout=…) returned False": "Denied: gave-up",
        "acquire() raised anything": "Unknown",
        "release() returned": "Released",
        "release() raised ReleaseUnlockedLock, no node in error": "NotHeld",
        "release() raised ReleaseUnlockedLock, nodes in error": "Unknown",
        "release() raised anything else": "Unknown",
        "extend() returned": "Granted",
        "extend() raised ExtendUnlockedLock, no node in error": "NotHeld",
        "extend() raised ExtendUnlockedLock, nodes in error": "Unknown",
        "extend() raised anything else": "Unknown",
    },
    raises=REDIS_ERRORS | _ERRORS,
    not_owed={
        **ERRORS_SAY_LITTLE,
        "a_hold_lives_on_while_it_is_kept_alive": (
            "it extends a lock three times, then it raises TooManyExtensions"
        ),
    },
    expectations=sent_again(with_changes(_REDLOCK, {"wipe": may_break(_RETRIED, "double-grant")})),
    pace={"lease_ttl_s": 10.0},
)

SYSTEMS = (_SYSTEM, as_safe(_SYSTEM, expectations=_REDLOCK))
