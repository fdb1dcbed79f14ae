"""redlock-ng's ``Redlock`` (https://github.com/alwaysvivek/redlock), from its package.

``redlock-ng`` is ``Redlock(RedlockConfig(masters=…))``: nodes one after the other, 0.1 s each, four
attempts. Its user always says the time to live; here it is the lease. ``redlock-ng-safe`` makes one
attempt.

``with`` runs its block without the lock too, and hands out ``valid=False``; its documentation looks
at that, and so does this lock. Whoever does not look runs unlocked.

Does not guarantee: what ``redlock`` does not. It measures an attempt by the wall clock. ``extend``
does not measure at all: when nodes are slow it returns True though no key is left. ``release`` says
nothing, whatever happened.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.redis.expectations import REDLOCK
from lockbench.locks.shared.expectations import silent_release
from lockbench.locks.shared.library import Library, as_safe

DOC = "https://github.com/alwaysvivek/redlock"

_PLAIN = Library(__file__, extends=True)

_SYSTEM = System(
    name="redlock-ng",
    topologies=("redlock",),
    family="redis",
    fence=None,
    waits_by="polling, four attempts with pauses of 100 to 300 ms, again and again",
    source=DOC,
    connect=_PLAIN.connect,
    elsewhere=True,
    prepare=_PLAIN.prepare,
    outcomes={
        "lock.valid is True": "Granted",
        "lock.valid is False, one try": "Denied: held",
        "lock.valid is False, the wait is over": "Denied: gave-up",
        "release() returned": "Released",
        "extend() returned True": "Granted",
        "extend() returned False": "Unknown",
        "anything raised": "Unknown",
    },
    raises={},  # its README names none
    late_release="Released",  # release() returns nothing, whatever happened
    not_owed={
        "paused_servers_make_a_release_unknown": "release() returns nothing, whatever happened",
        "a_server_that_is_not_there_has_no_effect": (
            "lock.valid is False for a node in error as for a node that refuses"
        ),
    },
    expectations=silent_release(REDLOCK, f"{DOC}, src/redlock/lock.py: release() returns nothing"),
)

SYSTEMS = (_SYSTEM, as_safe(_SYSTEM, waits_by="polling, pauses of 100 to 300 ms"))
