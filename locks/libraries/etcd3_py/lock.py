"""etcd3-py's ``Lock`` (https://github.com/Revolution1/etcd3-py), from its package, at its defaults:
included as a known-broken control.

It looks whether the key is there, and if not, or when it is deleted, writes it unless it already
has *its own* value. So whoever looks before another has written overwrites, and all of them hold
the lock, without any fault.

The time to live is the lease; the library's default of 60 s would make every fault twenty times as
long, and is what ``--ttl 60`` sets: under ``client-pause`` the same promises break. A thread
keeps the lease alive. What is promised when stands in ``locks/libraries/etcd3_py/adapter.py``.

Does not guarantee: mutual exclusion.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.etcd.expectations import ETCD
from lockbench.locks.shared.expectations import UNMINDED, breaks, may_break, with_verdicts
from lockbench.locks.shared.library import Library

DOC = "https://github.com/Revolution1/etcd3-py"
_OVERWRITES = (
    f"{DOC}/blob/master/etcd3/stateful/lock.py: acquire() puts the key unless its value is the "
    "client's own, so it overwrites another's"
)

_LOOKS_FIRST = (
    f"{DOC}/blob/master/etcd3/stateful/lock.py: acquire() first looks whether the key is there; "
    "while that answer is missing, nothing is written"
)
_RAISES = {
    **dict.fromkeys(
        ("EtcdLockAcquireTimeout", "EtcdLockError"), f"{DOC}/blob/master/etcd3/stateful/lock.py"
    ),
    # It passes on what its client meets; its Watcher raises this ConnectionError itself.
    **dict.fromkeys(
        ("ConnectionError", "ConnectTimeout", "ReadTimeout"),
        f"{DOC}: 'Sync client based on requests'; "
        "https://requests.readthedocs.io/en/latest/api/#exceptions",
    ),
    # A server that is killed amid an answer; it is one of those.
    "ChunkedEncodingError": (
        "https://requests.readthedocs.io/en/latest/user/quickstart/#errors-and-exceptions: 'All "
        "exceptions that Requests explicitly raises inherit from RequestException'"
    ),
    **dict.fromkeys(
        (
            "Etcd3Exception",
            "ErrKeyNotFound",
            "ErrLeaseExist",
            "ErrLeaseNotFound",
            "ErrNoLeader",
            "ErrNotLeader",
            "ErrStopped",
            "ErrTimeout",
            "ErrTimeoutDueToConnectionLost",
            "ErrTimeoutDueToLeaderFail",
            "ErrTooManyRequests",
            "ErrUnhealthy",
            "ErrUnknownError",
        ),
        f"{DOC}/blob/master/etcd3/errors/go_etcd_rpctypes_error.py",
    ),
}
_LIBRARY = Library(__file__)

SYSTEM = System(
    name="etcd3-py",
    topologies=("etcd",),
    family="etcd",
    fence=None,
    waits_by="watch on the key",
    source=DOC,
    connect=_LIBRARY.connect,
    prepare=_LIBRARY.prepare,
    outcomes={
        "acquire() returned the lock": "Granted",
        "acquire(block=False) returned None": "Denied: held",
        "acquire() raised EtcdLockAcquireTimeout": "Denied: gave-up",
        "acquire() raised anything else": "Unknown",
        "release() returned": "Released",
        "release() raised anything": "Unknown",
    },
    raises=_RAISES,
    expectations=with_verdicts(
        ETCD,
        {
            **breaks(_OVERWRITES, "double-grant", kind="control"),
            **may_break(
                _OVERWRITES,
                *("lost-update", "stale-holder", "wrong-release", "late-grant"),
                kind="control",
            ),
        },
        *UNMINDED,
    ),
    asks_first=_LOOKS_FIRST,
)
