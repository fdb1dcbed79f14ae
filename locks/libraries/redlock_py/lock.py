"""redlock-py's ``Redlock`` (https://github.com/SPSCommerce/redlock-py), from its package, at its
defaults: a lock that is known to be broken.

One of five nodes down is enough: ``lock`` has a majority, and raises MultipleRedlockException all
the same; the keys stay on the other four until their time is over, and nobody gets the lock. Its
user always says the time to live; here it is the lease.

Does not guarantee: progress with a majority, which Redlock promises; what ``redlock`` does not. It
measures an attempt by the wall clock. ``unlock`` says nothing, whatever happened.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.redis.expectations import REDLOCK
from lockbench.locks.shared.expectations import silent_release
from lockbench.locks.shared.lease import LIVES_ON
from lockbench.locks.shared.library import Library

DOC = "https://github.com/SPSCommerce/redlock-py"


_ERRORS = dict.fromkeys(
    ("CannotObtainLock", "MultipleRedlockException"), f"{DOC}/blob/master/redlock/__init__.py"
)
_LIBRARY = Library(__file__)

SYSTEM = System(
    name="redlock-py",
    topologies=("redlock",),
    family="redis",
    fence=None,
    waits_by="polling, three attempts with pauses of 200 ms, again and again",
    source=DOC,
    connect=_LIBRARY.connect,
    elsewhere=True,
    prepare=_LIBRARY.prepare,
    outcomes={
        "lock() returned a Lock": "Granted",
        "lock() returned False, one try": "Denied: held",
        "lock() returned False, the wait is over": "Denied: gave-up",
        "lock() raised MultipleRedlockException": "Unknown",
        "lock() raised anything else": "Unknown",
        "unlock() returned": "Released",
        "unlock() raised anything": "Unknown",
    },
    raises=_ERRORS,
    late_release="Released",  # unlock() returns nothing, whatever happened
    not_owed={LIVES_ON: "its keys live as long as its user says, and it cannot extend them"},
    untested="it runs at its defaults alone, so a call lasts as long as its retries",
    expectations=silent_release(
        REDLOCK, f"{DOC}/blob/master/redlock/__init__.py: unlock() returns nothing"
    ),
)
