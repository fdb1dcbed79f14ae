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

Does not guarantee: what ``zookeeper`` does not. ``release`` of a node that is gone returns. Whoever
is frozen between the answer and the return has the grant when its session may be over.
"""

from __future__ import annotations

from dataclasses import replace

from locks import zookeeper
from locks.base import Expectation, System
from locks.client_container import ContainerLibrary
from locks.library_etcd_concurrency import MAY_BE_LATE, UNMOVED
from locks.library_redisson import IMAGE

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
_EXPECTATIONS = {
    **{
        fault: {
            **zookeeper.EXPECTATIONS.get(fault, {}),
            "double-grant": Expectation("may-break", _OLD_NODE, "defect"),
            "lost-update": Expectation("may-break", _OLD_NODE, "defect"),
            "false-release": Expectation("may-break", _GUARANTEED, "documented-limit"),
        }
        for fault in dict.fromkeys((*zookeeper.EXPECTATIONS, *MAY_BE_LATE))
    },
    **UNMOVED,
}
for _fault in ("client-pause", "client-gc"):
    _EXPECTATIONS[_fault] = {
        **_EXPECTATIONS[_fault],
        "late-grant": Expectation("may-break", _NOT_LOOKED_AT, "documented-limit"),
    }
# Told that the connection was lost, its holder acts on all the same: nobody stops it.
_TOLD = Expectation("may-break", DOC, "documented-limit")

# What the library says to its user, and what the user must take it for.
OUTCOMES = {
    "acquire() returned true": "Granted",
    "acquire(0) returned false": "Denied: held",
    "acquire(wait) returned false": "Denied: gave-up",
    "acquire() threw anything": "Unknown",
    "release() returned": "Released",
    "release() threw IllegalMonitorStateException": "NotHeld",
    "release() threw anything else": "Unknown",
}

_MUTEX = ContainerLibrary(IMAGE, "curator-mutex")
_DEAF = ContainerLibrary(IMAGE, "curator-mutex-no-listener")
_SEMAPHORE = ContainerLibrary(IMAGE, "curator-semaphore")
_READ_WRITE = ContainerLibrary(IMAGE, "curator-read-write", shares=True)

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
    expectations=_EXPECTATIONS,
)
_SYSTEM = replace(
    _DEAF_SYSTEM,
    name="curator-mutex",
    connect=_MUTEX.connect,
    prepare=_MUTEX.prepare,
    expectations={
        **{fault: {"stale-holder": _TOLD, **verdicts} for fault, verdicts in _EXPECTATIONS.items()},
        **UNMOVED,
    },
)

SYSTEMS = (
    _SYSTEM,
    _DEAF_SYSTEM,
    replace(
        _SYSTEM,
        name="curator-semaphore",
        waits_by="watch on the children of the semaphore",
        source="https://curator.apache.org/docs/recipes-shared-semaphore",
        connect=_SEMAPHORE.connect,
        prepare=_SEMAPHORE.prepare,
        outcomes={**OUTCOMES, "acquire() returned a lease": "Granted"},
        kind="semaphore",
        permits=3,
    ),
    replace(
        _SYSTEM,
        name="curator-read-write",
        waits_by="watch on the node just before; of a reader, on the writer just before",
        source="https://curator.apache.org/docs/recipes-shared-reentrant-read-write-lock",
        connect=_READ_WRITE.connect,
        prepare=_READ_WRITE.prepare,
        kind="read-write",
    ),
)
