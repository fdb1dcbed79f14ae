"""etcd3gw's ``Lock`` (https://docs.openstack.org/etcd3gw/latest/), from its package.

``etcd3gw`` is ``with client.lock(name)``: ``with`` calls ``acquire`` and ignores its False, so the
block runs while another holds the lock, without any fault. Requests have no limit. ``etcd3gw-safe``
looks at what ``acquire`` returns and sets the client timeout.

The time to live is the lease in both; the library's default of 30 s would make every fault ten
times as long, and is what ``--ttl 30`` sets: under ``client-pause`` the same promises break. The
library does not wait; its user asks again. What is promised when stands in
``locks/libraries/etcd3gw/adapter.py``.

Does not guarantee: what ``etcd`` does not. ``acquire`` does not look at the clock: a slow answer is
handed out as a grant though its lease may be over.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.etcd.expectations import ETCD
from lockbench.locks.shared.expectations import (
    UNMINDED,
    breaks,
    may_be_late,
    may_break,
    with_verdicts,
)
from lockbench.locks.shared.library import ERRORS_SAY_LITTLE, Library, as_safe

DOC = "https://docs.openstack.org/etcd3gw/latest/"
_WITH = (
    "https://opendev.org/openstack/etcd3gw/src/branch/master/etcd3gw/lock.py: __enter__ calls "
    "acquire() and returns the lock, whatever acquire() returned"
)
_LOOKS_FREED = (
    f"{_WITH}. release() deletes nothing but its own value; but who enters while another holds the "
    "lock, just after a late holder has left, looks as if that had freed it"
)

_LEASE_FIRST = (
    "https://opendev.org/openstack/etcd3gw/src/branch/master/etcd3gw/lock.py: acquire() begins "
    "with a lease; while that answer is missing, nothing is locked"
)

_LATE = (
    "https://opendev.org/openstack/etcd3gw/src/branch/master/etcd3gw/lock.py: acquire() returns "
    "what the transaction answered, and does not look how long ago it asked for the lease"
)

_ERRORS = dict.fromkeys(
    (
        "ApiVersionDiscoveryFailedError",
        "ConnectionFailedError",
        "ConnectionTimeoutError",
        "Etcd3Exception",
        "InternalServerError",
        "PreconditionFailedError",
        "WatchTimedOut",
    ),
    "https://opendev.org/openstack/etcd3gw/src/branch/master/etcd3gw/exceptions.py",
)
_PLAIN = Library(__file__, extends=True)

_SYSTEM = System(
    name="etcd3gw",
    topologies=("etcd",),
    family="etcd",
    fence=None,
    waits_by="nothing",
    source=DOC,
    connect=_PLAIN.connect,
    writes_besides="/locks/KEY",
    prepare=_PLAIN.prepare,
    outcomes={
        "with was entered": "Granted",
        "with was left": "Released",
        "acquire() returned True": "Granted",
        "acquire() returned False, one try": "Denied: held",
        "acquire() returned False, the wait is over": "Denied: gave-up",
        "release() returned True": "Released",
        "release() returned False": "NotHeld",
        "refresh() returned -1": "NotHeld",
        "anything raised": "Unknown",
    },
    raises=_ERRORS,
    not_owed=ERRORS_SAY_LITTLE,
    expectations=with_verdicts(
        ETCD,
        {
            **breaks(_WITH, "double-grant", kind="defect"),
            **may_break(_WITH, "lost-update", "stale-holder", kind="defect"),
            **may_break(_LOOKS_FREED, "wrong-release", kind="defect"),
            **may_break(f"{DOC}: no timeout is set", "late-grant", kind="defect"),
        },
        *UNMINDED,
    ),
    asks_first=_LEASE_FIRST,
)

SYSTEMS = (
    _SYSTEM,
    as_safe(
        _SYSTEM,
        represents=True,
        waits_by="polling every 100 ms",
        expectations=may_be_late(ETCD, _LATE),
    ),
)
