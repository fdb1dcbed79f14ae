"""Curator's locks (https://curator.apache.org/docs/recipes), behind the JVM sidecar: a
``CuratorFramework`` per client with a session as long as the lease and ``ExponentialBackoffRetry
(1000, 3)``, and a lock object per acquire.

``curator-mutex``              ``InterProcessMutex``, with the connection state listener that its
                               documentation demands: SUSPENDED and LOST end what is held
``curator-mutex-no-listener``  without it
``curator-semaphore``          ``InterProcessSemaphoreV2`` with three leases
``curator-read-write``         ``InterProcessReadWriteLock``

The promise is the session: the send time of its last message that counts
(``locks/libraries/shared/zookeeper_touches.py``), be it the opening, a request of Curator's or a
heartbeat of ZooKeeper's client, plus the timeout that the server agreed to. The create and the list
of children that an acquire ends with are such messages (``LockInternals.java``,
``internalLockLoop`` and ``getSortedChildren``; ``InterProcessSemaphoreV2.java``,
``internalAcquire1Lease``; Curator 5.9.0). The times are seen by an extension of ZooKeeper's own
connection (``ClientCnxnSocketNIO.java``, ``doIO``; ZooKeeper 3.9.3), which sends nothing. A hold is
lengthened by the session alone that it was granted in. The client gives a silent server up after
two thirds of the session (``ClientCnxn.java``, ``onConnected``), so no answer is older. Curator
tells no fence; the czxid of its node would be one.

Does not guarantee: what ``zookeeper`` does not. The semaphore may return a lease whose session is
over (docs/track/curator-semaphore-late.md). ``release`` of a node that is gone returns. Whoever
is frozen between the answer and the return has the grant when its session may be over.
"""

from __future__ import annotations

from dataclasses import replace

from lockbench.locks.base import ANY, System
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import JVM, JVM_IMAGE, LIMIT, THE_LEASE, Program
from lockbench.locks.shared.expectations import (
    MAY_BE_LATE,
    PAUSED,
    UNMOVED,
    Faults,
    may_break,
    with_changes,
    with_verdicts,
)
from lockbench.locks.zookeeper.expectations import ZOOKEEPER

DOC = "https://curator.apache.org/docs/recipes-shared-reentrant-lock"
_OLD_NODE = (
    "https://github.com/apache/curator/issues/1121 (CURATOR-604): a create that is tried again in "
    "a new session finds the dying node of the last one, and takes it for its own"
)
_GUARANTEED = (
    "https://curator.apache.org/apidocs/org/apache/curator/framework/recipes/locks/"
    "InterProcessMutex.html: release deletes its node, and does not mind that it is gone"
)
_NOT_LOOKED_AT = (
    "https://curator.apache.org/docs/recipes-shared-reentrant-lock (error handling): whoever does "
    "not listen to the state of the connection learns nothing of its session"
)
_EXPECTATIONS = with_changes(
    with_verdicts(
        ZOOKEEPER,
        {
            **may_break(_OLD_NODE, "double-grant", "lost-update", kind="defect"),
            **may_break(_GUARANTEED, "false-release"),
        },
        *MAY_BE_LATE,
    ),
    dict.fromkeys(PAUSED, may_break(_NOT_LOOKED_AT, "late-grant")),
    UNMOVED,
)


_NOT_LOOKED_AGAIN = (
    "InterProcessSemaphoreV2.java of 5.9.0, internalAcquire1Lease: once it has its permit it gives "
    "back the mutex that it took for that, waits for the answer in whatever session comes, and "
    "does not look at its node again (docs/track/curator-semaphore-late.md)"
)


def _stale(source: str) -> Faults:
    """With a holder that goes on after its session has ended, where nothing else was said of it."""
    stale = with_verdicts(_EXPECTATIONS, may_break(source, "stale-holder"))
    return {**with_changes(stale, _EXPECTATIONS), **UNMOVED}


_API = "https://curator.apache.org/apidocs/org/apache/curator/framework/recipes/locks"
_THROWS = (
    f"{_API}/InterProcessLock.html: 'Exception – ZK errors, connection interruptions', which are "
    "https://zookeeper.apache.org/doc/r3.9.3/apidocs/zookeeper-server/org/apache/zookeeper/"
    "KeeperException.html"
)
_RAISES = {
    **dict.fromkeys(
        (
            "APIErrorException",
            "AuthFailedException",
            "BadVersionException",
            "ConnectionLossException",
            "CuratorConnectionLossException",  # one of these
            "NoAuthException",
            "NodeExistsException",
            "NoNodeException",
            "NotEmptyException",
            "OperationTimeoutException",
            "RequestTimeoutException",
            "SessionExpiredException",
            "SessionMovedException",
            "SystemErrorException",
        ),
        _THROWS,
    ),
    **dict.fromkeys(
        ("IllegalMonitorStateException", "InterruptedException"),
        f"{_API}/InterProcessMutex.html: release",
    ),
}

OUTCOMES = {
    "acquire() returned true": "Granted",
    "acquire(0) returned false": "Denied: held",
    "acquire(wait) returned false": "Denied: gave-up",
    "acquire() threw anything": "Unknown",
    "release() returned": "Released",
    "release() threw IllegalMonitorStateException": "NotHeld",
    "release() threw anything else": "Unknown",
}

_PROGRAM = Program(
    library="org.apache.curator:curator-recipes",
    source="CuratorLocks.java",
    call="new InterProcessMutex(curator, path).acquire(wait, MILLISECONDS)",
    client="a thread with a CuratorFramework, and so a session, of its own",
    stands_on=("curator-framework", "curator-client", "zookeeper"),
    settings={
        "CuratorFrameworkFactory.newClient": f"session timeout: {THE_LEASE}; connection timeout: "
        f"{LIMIT}; retries: ExponentialBackoffRetry(1000, 3)",
        "ListeningSocket.telling": "a configuration whose connections note when answered messages "
        "were sent, and send nothing",
        "getConnectionStateListenable": "a listener that ends what is held at SUSPENDED and LOST",
        **JVM,
    },
)
_UNHEARD = {k: v for k, v in _PROGRAM.settings.items() if k != "getConnectionStateListenable"}
_MUTEX = ContainerLibrary(JVM_IMAGE, "curator-mutex", _PROGRAM)
_DEAF = ContainerLibrary(
    JVM_IMAGE, "curator-mutex-no-listener", replace(_PROGRAM, settings=_UNHEARD)
)
_PERMIT = "new InterProcessSemaphoreV2(curator, path, 3).acquire(wait, …)"
_EITHER = "new InterProcessReadWriteLock(curator, path), then readLock() or writeLock()"
_SEMAPHORE = ContainerLibrary(JVM_IMAGE, "curator-semaphore", replace(_PROGRAM, call=_PERMIT))
_READ_WRITE = ContainerLibrary(
    JVM_IMAGE, "curator-read-write", replace(_PROGRAM, call=_EITHER), shares=True
)

_DEAF_SYSTEM = System(
    name="curator-mutex-no-listener",
    topologies=("zookeeper",),
    family="zookeeper",
    fence=None,
    waits_by="watch on the node just before",
    source=DOC,
    connect=_DEAF.connect,
    prepare=_DEAF.prepare,
    outcomes=OUTCOMES,
    raises=_RAISES,
    expectations=_stale(_NOT_LOOKED_AT),
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "acquire() throws ConnectionLossException, whether anything was sent or not"
        )
    },
    late_release="Released",  # release() does not mind that its node is gone
    # ExponentialBackoffRetry.java of 5.9.0: of (1000, 3) the pauses are 1, up to 3 and up to 7 s,
    # for a request and once more for what LockInternals.java tries again when its node is gone.
    # ClientCnxn.java of ZooKeeper 3.9.3, run: up to a second before it connects again.
    recovers_s=25.0,
    gives_up_s=40.0,  # it needs some 25 for both
)
_SYSTEM = _DEAF_SYSTEM.derived(
    name="curator-mutex",
    suites={"capacity": (ANY,)},
    connect=_MUTEX.connect,
    prepare=_MUTEX.prepare,
    # Told that the connection was lost, its holder acts on all the same: nobody stops it.
    expectations=_stale(DOC),
)

SYSTEMS = (
    _SYSTEM,
    _DEAF_SYSTEM.derived(variant=True, untested="its class is tested as curator-mutex"),
    _SYSTEM.derived(
        name="curator-semaphore",
        waits_by="watch on the children of the semaphore",
        source="https://curator.apache.org/docs/recipes-shared-semaphore",
        connect=_SEMAPHORE.connect,
        prepare=_SEMAPHORE.prepare,
        expectations=with_changes(
            _stale(DOC),
            dict.fromkeys(
                MAY_BE_LATE,
                may_break(_NOT_LOOKED_AGAIN, "late-grant", "linearizable", kind="defect"),
            ),
        ),
        outcomes={**OUTCOMES, "acquire() returned a lease": "Granted"},
        raises={**_RAISES, "IOException": f"{_API}/Lease.html: close"},
        variant=True,
        untested="a semaphore of three permits; with one it would owe what a mutex owes",
        kind="semaphore",
        permits=3,
    ),
    _SYSTEM.derived(
        name="curator-read-write",
        waits_by="watch on the node just before; of a reader, on the writer just before",
        source="https://curator.apache.org/docs/recipes-shared-reentrant-read-write-lock",
        connect=_READ_WRITE.connect,
        prepare=_READ_WRITE.prepare,
        variant=True,
        kind="read-write",
    ),
)
