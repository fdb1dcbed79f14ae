"""redsync (https://github.com/go-redsync/redsync), Redlock for Go, behind the Go sidecar, over
go-redis.

``redsync`` is ``redsync.New(pools…).NewMutex(name, WithExpiry(lease))`` over ``redis.NewClient``,
both at their defaults: 32 tries with pauses of 50 to 250 ms, every command sent up to four times, 3
to 5 s for a silent server. redsync gives a node a twentieth of the expiry, by a context; go-redis
does not look at a context's deadline while a command is under way unless ``ContextTimeoutEnabled``
is set. ``redsync-safe`` sets it, the client timeout, and no retries.

The promise is the library's own ``Until()``: from before a try asks its servers, all at once, plus
the expiry, minus a hundredth of it (``mutex.go``, ``lockContext`` and ``ExtendContext``, v4.18.1).
Each server that agreed set the key later than that. A ``SET NX`` that go-redis sends again finds
its own key and counts as refused; a script of ``Extend`` that is sent again sets the expiry anew,
and the promise is early by what came before.

Does not guarantee: what ``redlock`` does not. It offers no fence.
"""

from __future__ import annotations

from locks import redlock
from locks.base import System
from locks.client_container import ContainerLibrary
from locks.library import as_safe
from locks.library_etcd_concurrency import IMAGE, UNMOVED

DOC = "https://pkg.go.dev/github.com/go-redsync/redsync/v4"

# What the library says to its user, and what the user must take it for.
OUTCOMES = {
    "Lock() or TryLock() returned nil": "Granted",
    "TryLock() returned ErrTaken or only ErrNodeTaken": "Denied: held",
    "Lock() returned ErrTaken or only ErrNodeTaken": "Denied: gave-up",
    "Lock() returned ErrFailed": "Denied: gave-up",
    "Lock() or TryLock() returned errors, no node could be dialled": "Denied: no-effect",
    "Lock() or TryLock() returned other errors": "Unknown",
    "Unlock() returned true": "Released",
    "Unlock() returned false, no node with an error of its own": "NotHeld",
    "Unlock() returned false and other errors": "Unknown",
    "Extend() returned true": "Granted",
    "Extend() returned false, no node with an error of its own": "NotHeld",
    "Extend() returned false and other errors, or ErrExtendFailed": "Unknown",
}

_PLAIN = ContainerLibrary(IMAGE, "redsync", extends=True)

_SYSTEM = System(
    name="redsync",
    topologies=("redlock", "redis"),
    family="redis",
    fence=None,
    waits_by="polling, pauses of 50 to 250 ms, 32 tries",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes=OUTCOMES,
    expectations={**redlock.EXPECTATIONS, **UNMOVED},
)

SYSTEMS = (_SYSTEM, as_safe(_SYSTEM, ContainerLibrary(IMAGE, "redsync", safe=True, extends=True)))
