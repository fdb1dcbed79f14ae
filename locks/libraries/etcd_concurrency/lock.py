"""etcd's own mutex for Go, ``concurrency.Mutex`` of ``go.etcd.io/etcd/client/v3``, behind the Go
sidecar: a client, a session as long as the lease, and a ``Mutex`` per acquire.

``etcd-concurrency`` is that alone. ``Unlock`` deletes a key by its name and returns nil, whether
the key was there or not. ``etcd-concurrency-is-owner`` counts a grant and a release only when a
transaction that compares ``IsOwner()`` says so. That is what ``IsOwner`` is for, and all it can do:
it guards what is in the same etcd. The guarded resource of this bench is elsewhere, as a database
or a disk is; there the create revision that ``IsOwner`` compares is the fence.

``etcd-concurrency-shared-session`` is a control: the clients of one process share one session. A
key is named after its session's lease, so a second ``Lock`` finds its own key and returns.

The promise is the session's lease, from when the last acknowledged keep-alive was sent, or its
``Grant`` was sent, for the seconds that the server answered (``client/v3/lease.go``,
``sendKeepAliveLoop``, ``recvKeepAlive``, v3.6.16): the first keep-alive at once, then each third of
the lease, answered in order; a lease that is gone is answered with none. No transaction of ``Lock``
lengthens it (``concurrency/mutex.go``). ``Grant`` is asked again where the server is unavailable
(``retry.go``), each time for another lease; what was sent last is counted. The package looks
whether its key is there before it returns, not how long its lease still lives.
"""

from __future__ import annotations

from dataclasses import replace

from lockbench.locks.base import System
from lockbench.locks.etcd import mutex as etcd
from lockbench.locks.etcd.expectations import ETCD
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import (
    GO,
    GO_CLIENTS,
    GO_IMAGE,
    LIMIT,
    THE_LEASE,
    Program,
)
from lockbench.locks.shared.expectations import (
    CUT,
    MAY_BE_LATE,
    PAUSED,
    SLOW_LINKS,
    UNMOVED,
    breaks,
    may_break,
    may_grant_twice,
    with_changes,
    with_verdicts,
)

DOC = "https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency"
_MUTEX = "https://github.com/etcd-io/etcd/blob/main/client/v3/concurrency/mutex.go"
_LATE = f"{_MUTEX}: Lock looks whether its key is there, not how long the session's lease lives"
_UNLOCK = f"{_MUTEX}: Unlock deletes its key and returns nil where there was none"
_REENTERS = (
    f"{_MUTEX}: the key is the prefix and the session's lease, 'reuse key in case this session "
    "already holds the lock'"
)

_LEFT = (
    f"{_MUTEX}: Lock and TryLock return the error of their transaction and leave the key that it "
    "may have written, which stays while the session lives; "
    "https://github.com/etcd-io/etcd/pull/5199: 'if a session tries to reacquire the lock it will "
    "reassume its old place in the wait list'"
)

_LATE_UNLOCK = (
    "https://github.com/etcd-io/etcd/issues/22082 (open): a late Unlock deletes a newer lock of "
    "the same session, which has the same key"
)

OUTCOMES = {
    "Grant or NewSession returned an error": "Denied: no-effect",
    "Lock() or TryLock() returned nil": "Granted",
    "TryLock() returned ErrLocked": "Denied: held",
    "Lock() returned ErrSessionExpired": "Denied: no-effect",
    "Lock() returned another error and Key() is empty again": "Denied: gave-up",
    "Lock() or TryLock() returned another error": "Unknown",
    "Unlock() returned nil": "Released",
    "Unlock() returned ErrLockReleased": "NotHeld",
    "Unlock() returned another error": "Unknown",
}

# A Lock or an Unlock whose answer did not come leaves the key or not; the next Lock of the session
# finds it, and nobody else is granted it until then.
_UNANSWERED = {
    **may_break(_LATE, "late-grant"),
    **may_break(_REENTERS, "fence-order"),
    **may_break(_LEFT, "leaked-lock"),
}
_OF_OWNERS = {
    **with_changes(
        with_verdicts(ETCD, _UNANSWERED, *MAY_BE_LATE),
        dict.fromkeys(("reset", *CUT), may_grant_twice(_LATE_UNLOCK, kind="defect")),
    ),
    **UNMOVED,
}
_EXPECTATIONS = {
    **with_changes(
        with_verdicts(_OF_OWNERS, may_break(_UNLOCK, "false-release"), *MAY_BE_LATE),
        # Of a grant that came late nobody can say since when the key had been another's.
        dict.fromkeys(PAUSED, may_break(_UNLOCK, "linearizable")),
    ),
    **UNMOVED,
}

_PROGRAM = Program(
    library="go.etcd.io/etcd/client/v3",
    source="etcd.go",
    call="concurrency.NewMutex(session, prefix), then Lock(ctx), or TryLock(ctx) for one try",
    client="a goroutine with a clientv3.Client and a session of its own",
    stands_on=("google.golang.org/grpc",),
    settings={
        "clientv3.Config.DialTimeout": LIMIT,
        "clientv3.Config.DialOptions": "interceptors that note when keep-alives and grants of "
        "leases are sent",
        "concurrency.WithLease": f"{THE_LEASE}, in whole seconds",
        "context.WithTimeout": f"Lock: the wait; TryLock and Unlock: {LIMIT}",
        **GO,
    },
)
_COMPARES = "a grant and a release count only in a transaction that compares IsOwner()"
_ONE_SESSION = "a goroutine; the clients of one process share one session"
_PLAIN = ContainerLibrary(GO_IMAGE, "etcd-concurrency", _PROGRAM)
_IS_OWNER = ContainerLibrary(
    GO_IMAGE, "etcd-concurrency-is-owner", replace(_PROGRAM, beside=_COMPARES)
)
_SHARED = ContainerLibrary(
    GO_IMAGE, "etcd-concurrency-shared-session", replace(_PROGRAM, client=_ONE_SESSION)
)

_SYSTEM = System(
    name="etcd-concurrency",
    topologies=("etcd",),
    family="etcd",
    fence="create revision of the holder's key",
    waits_by="watch on the key created just before",
    source=DOC,
    connect=_PLAIN.connect,
    writes_besides="/lockbench/KEY",
    prepare=_PLAIN.prepare,
    outcomes=OUTCOMES,
    not_owed=etcd.QUEUES_BY_PREFIX,
    late_release="Released",  # Unlock() returns nil where there was no key
    expectations=_EXPECTATIONS,
    client_family=GO_CLIENTS,
)

# Where two share a session.
_FOLLOWS = ("lost-update", "stale-holder", "wrong-release", "late-grant", "fence-order")

SYSTEMS = (
    _SYSTEM,
    _SYSTEM.derived(
        name="etcd-concurrency-is-owner",
        variant=True,
        late_release="NotHeld",
        represents=True,
        connect=_IS_OWNER.connect,
        prepare=_IS_OWNER.prepare,
        outcomes={
            **OUTCOMES,
            "the transaction does not succeed, after Lock()": "Denied: no-effect",
            "the transaction does not succeed, with the delete": "NotHeld",
        },
        expectations=_OF_OWNERS,
    ),
    _SYSTEM.derived(
        name="etcd-concurrency-shared-session",
        variant=True,
        connect=_SHARED.connect,
        prepare=_SHARED.prepare,
        expectations={
            **with_verdicts(
                _EXPECTATIONS,
                {
                    **breaks(_REENTERS, "double-grant", kind="control"),
                    **may_break(_REENTERS, *_FOLLOWS, kind="control"),
                },
                "none",
                *SLOW_LINKS,
            ),
            **UNMOVED,
        },
    ),
)
