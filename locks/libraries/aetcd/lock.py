"""aetcd's ``Lock`` (https://aetcd.readthedocs.io), from its package.

``aetcd`` is ``client.lock(key, ttl)`` of a client without a limit for its requests; ``aetcd-safe``
sets the client timeout. The time to live is the lease in both; the library's default of 60 s would
make every fault twenty times as long. Nothing keeps it alive in the background.

A wait watches for the deletion of the key. Each try leaves a lease behind that nobody revokes; it
ends by itself. What is promised when stands in ``locks/libraries/aetcd/adapter.py``.

Does not guarantee: what ``etcd`` does not. ``acquire`` does not look at the clock.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.etcd.expectations import ETCD
from lockbench.locks.shared.expectations import may_be_late
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://aetcd.readthedocs.io/en/latest/reference/client.html#aetcd.client.Client.lock"
_SOURCE = "https://github.com/martyanov/aetcd/blob/master/aetcd/locks.py"
_LATE = f"{_SOURCE}: acquire() does not look at the clock when the transaction is answered"
_LEASE_FIRST = f"{_SOURCE}: every try begins with a lease; while that answer is missing, it waits"
_ERRORS = dict.fromkeys(
    (
        "ClientError",
        "ConnectionFailedError",
        "ConnectionTimeoutError",
        "DuplicateLeaseError",
        "InternalError",
        "InvalidArgumentError",
        "PreconditionFailedError",
        "RevisionCompactedError",
        "UnauthenticatedError",
        "WatchTimeoutError",
    ),
    "https://github.com/martyanov/aetcd/blob/master/aetcd/exceptions.py",
)
_PLAIN = Library(__file__)

_SYSTEM = System(
    name="aetcd",
    topologies=("etcd",),
    family="etcd",
    fence=None,
    waits_by="watch on the key",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    elsewhere=True,
    outcomes={
        "acquire() returned True": "Granted",
        "acquire(timeout=0) returned False": "Denied: held",
        "acquire() returned False, the wait is over": "Denied: gave-up",
        "release() returned True": "Released",
        "release() returned False": "NotHeld",
        "refresh() returned a TTL of 0": "NotHeld",
        "anything raised": "Unknown",
    },
    raises=_ERRORS,
    not_owed=ERRORS_SAY_LITTLE,
    expectations=may_be_late(ETCD, _LATE),
    asks_first=_LEASE_FIRST,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, extends=True),
)
