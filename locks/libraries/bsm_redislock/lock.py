"""bsm/redislock (https://github.com/bsm/redislock) on one Redis, behind the Go sidecar.

``bsm-redislock`` is ``redislock.New(redis.NewClient(…)).Obtain(ctx, key, lease, …)``: one try, or a
linear back-off of 100 ms, as its README has it. ``bsm-redislock-safe`` sets the client timeout and
no retries of commands.

A token that is there already counts as obtained (its script compares it), so go-redis sending a
command again after a lost reply does no harm.

The promise is the lease, from when the script that was answered was written to a connection: that
of ``Obtain`` sets it with the key, also for its own token, and that of ``Refresh`` for its own
value alone (``redislock.go``, ``luaObtain``, ``luaRefresh``, v0.9.4). go-redis sends a command up
to four times (``redis.go``, ``processWithRetry``, v9.23.0); each time sets the lease anew, and the
last one is what was answered. Before v0.9.4 ``Obtain`` is ``SET`` with ``NX``, and the same holds:
only a first one can be answered with OK.

Does not guarantee: what ``redis-token`` does not. It offers no fence.
"""

from __future__ import annotations

from dataclasses import replace

from lockbench.locks.base import System
from lockbench.locks.libraries.redsync import lock as redsync
from lockbench.locks.redis.expectations import LEASE
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.client_programs import GO, GO_CLIENTS, GO_IMAGE
from lockbench.locks.shared.expectations import UNMOVED, may_be_late
from lockbench.locks.shared.library import as_safe

DOC = "https://pkg.go.dev/github.com/bsm/redislock"
_LATE = (
    "https://github.com/bsm/redislock/blob/main/redislock.go: Obtain returns the lock when the "
    "script has set the key, and does not look how long ago it was sent"
)

_PROGRAM = replace(
    redsync.PROGRAM,
    library="github.com/bsm/redislock",
    source="redislock.go",
    call="Obtain(ctx, key, lease, options)",
    client="a goroutine with a redis.Client of its own",
    settings={
        "redislock.LinearBackoff": "100 ms between tries; one try: no options",
        "context.WithTimeout": "Obtain: the wait",
        "AddHook": "a hook of go-redis that notes when a script is written to a connection",
        **GO,
    },
)
_PLAIN = ContainerLibrary(GO_IMAGE, "bsm-redislock", _PROGRAM, extends=True)

_SYSTEM = System(
    name="bsm-redislock",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="polling every 100 ms",
    source=DOC,
    connect=_PLAIN.connect,
    elsewhere=True,
    prepare=_PLAIN.prepare,
    outcomes={
        "Obtain() returned a lock": "Granted",
        "Obtain() returned ErrNotObtained": "Denied: held",
        "Obtain() returned DeadlineExceeded, the last try was answered": "Denied: gave-up",
        "Obtain() returned an error of dialling, and nothing was sent": "Denied: no-effect",
        "Obtain() returned another error": "Unknown",
        "Release() returned nil": "Released",
        "Release() returned ErrLockNotHeld": "NotHeld",
        "Release() returned another error": "Unknown",
        "Refresh() returned nil": "Granted",
        "Refresh() returned ErrNotObtained": "NotHeld",
        "Refresh() returned another error": "Unknown",
    },
    not_owed={
        "a_server_that_is_not_there_has_no_effect": (
            "go-redis dials five times, 100 ms apart (go-redis#3686); before that the context ends"
        ),
    },
    expectations={**may_be_late(LEASE, _LATE), **UNMOVED},
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, expectations={**LEASE, **UNMOVED}, client_family=GO_CLIENTS),
)
