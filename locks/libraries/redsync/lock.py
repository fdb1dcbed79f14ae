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

from lockbench.locks.base import System
from lockbench.locks.redis.expectations import REDLOCK
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import (
    GO,
    GO_CLIENTS,
    GO_IMAGE,
    LIMIT,
    THE_LEASE,
    Program,
)
from lockbench.locks.shared.expectations import UNMOVED
from lockbench.locks.shared.library import as_safe

DOC = "https://pkg.go.dev/github.com/go-redsync/redsync/v4"

PROGRAM = Program(
    library="github.com/go-redsync/redsync/v4",
    source="redsync.go",
    call="NewMutex(key, WithExpiry(lease)), then LockContext(ctx), or TryLock() for one try",
    client="a goroutine with a redis.Client per server of its own",
    stands_on=("github.com/redis/go-redis/v9",),
    settings={
        "redsync.WithExpiry": THE_LEASE,
        "context.WithTimeout": "LockContext: the wait",
        **GO,
    },
    safe={
        "redis.Options.DialTimeout": LIMIT,
        "redis.Options.ReadTimeout": LIMIT,
        "redis.Options.WriteTimeout": LIMIT,
        "redis.Options.MaxRetries": "-1, which is none",
        "redis.Options.ContextTimeoutEnabled": "true",
    },
)
_PLAIN = ContainerLibrary(GO_IMAGE, "redsync", PROGRAM, extends=True)

_SYSTEM = System(
    name="redsync",
    topologies=("redlock", "redis"),
    family="redis",
    fence=None,
    waits_by="polling, pauses of 50 to 250 ms, 32 tries",
    source=DOC,
    connect=_PLAIN.connect,
    elsewhere=True,
    prepare=_PLAIN.prepare,
    outcomes={
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
    },
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "Lock() whose context ends says ErrFailed, whatever its tries have met"
        ),
    },
    expectations={**REDLOCK, **UNMOVED},
)

SYSTEMS = (_SYSTEM, as_safe(_SYSTEM, client_family=GO_CLIENTS))
