"""jetcd's ``Lock`` (https://github.com/etcd-io/jetcd), etcd's own lock service, behind the JVM
sidecar: a lease per acquire, kept alive by jetcd, and revoked afterwards.

The service has no try and no limit for a wait. A try waits 100 ms here; whoever gives up revokes
the lease, which takes its place in the queue away. ``unlock`` answers whether the key was there or
not. jetcd hands out the key of a hold and no fence.

The promise is the lease, from when the last acknowledged keep-alive was sent, or ``grant`` was
called, for the seconds that the server answered (``LeaseImpl.java``, ``grant``, ``sendKeepAlive``,
jetcd 0.8.7). jetcd keeps a lease alive each half second at most and each third of it at least; its
stream is answered in order. ``lock`` lengthens no lease, however long it waits. ``grant`` is asked
again where the server is unavailable, within the client timeout; by that the promise may be early,
until the first keep-alive is answered.

Each acquire first asks for its lease. Where the answers to an acquire are lost, that is the first;
nothing has been locked yet, and ``reply-lost`` leaves nothing to judge.

Does not guarantee: what ``etcd-concurrency`` does not, which is what the servers run.
"""

from __future__ import annotations

from lockbench.locks.base import ANY
from lockbench.locks.libraries.etcd_concurrency import lock as library_etcd_concurrency
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import JVM, JVM_IMAGE, LIMIT, THE_LEASE, Program

DOC = "https://github.com/etcd-io/jetcd"

_LEASE_FIRST = (
    f"{DOC}: a lock needs a lease, which is granted by a call of its own; while its answer is "
    "missing, nothing is locked"
)
_RAISES = {
    **dict.fromkeys(
        ("EtcdException", "ClosedClientException", "ClosedKeepAliveListenerException"),
        f"{DOC}/blob/main/jetcd-common/src/main/java/io/etcd/jetcd/common/exception/"
        "EtcdException.java: 'Base exception type for all exceptions produced by the etcd service'",
    ),
    **dict.fromkeys(
        ("TimeoutException", "InterruptedException", "CancellationException"),
        "https://docs.oracle.com/en/java/javase/21/docs/api/java.base/java/util/concurrent/"
        "CompletableFuture.html: get(timeout, unit), with which its user waits",
    ),
}
_PROGRAM = Program(
    library="io.etcd:jetcd-core",
    source="JetcdLock.java",
    call="getLockClient().lock(key, lease).get(wait), or within 100 ms for one try",
    client="a thread; the clients of one process share a jetcd Client",
    stands_on=("jetcd-grpc", "grpc-core", "vertx-grpc", "vertx-core"),
    settings={
        "interceptor": "notes when keep-alives are sent",
        "getLeaseClient().grant": f"{THE_LEASE}, in whole seconds; within {LIMIT}",
        **JVM,
    },
    beside="a lease per acquire, kept alive; revoked after unlock, and by whoever gives up",
)
_LIBRARY = ContainerLibrary(JVM_IMAGE, "jetcd", _PROGRAM)
_SYSTEM = library_etcd_concurrency.SYSTEMS[0]

SYSTEM = _SYSTEM.derived(
    name="jetcd",
    suites={"capacity": (ANY,)},
    fence=None,
    source=f"{DOC}; https://etcd.io/docs/v3.6/dev-guide/api_concurrency_reference_v3/",
    connect=_LIBRARY.connect,
    writes_besides="/lockbench/KEY",
    prepare=_LIBRARY.prepare,
    asks_first=_LEASE_FIRST,
    late_release="Unknown",  # unlock() returns all the same; revoke() does not find the lease
    outcomes={
        "grant() failed": "Denied: no-effect",
        "lock() returned": "Granted",
        "lock() was not answered within 100 ms, revoke() was": "Denied: held",
        "lock() was not answered within the wait, revoke() was": "Denied: gave-up",
        "lock() failed, revoke() did not": "Denied: gave-up",
        "revoke() failed": "Unknown",
        "unlock() and revoke() returned": "Released",
        "unlock() or revoke() failed": "Unknown",
    },
    raises=_RAISES,
)
