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
last one is what was answered.

Does not guarantee: what ``redis-token`` does not. It offers no fence.
"""

from __future__ import annotations

from locks.base import System
from locks.client_container import ContainerLibrary
from locks.library import as_safe
from locks.library_etcd_concurrency import IMAGE, UNMOVED, may_be_late
from locks.redis_expectations import LEASE

DOC = "https://pkg.go.dev/github.com/bsm/redislock"
_LATE = (
    "https://github.com/bsm/redislock/blob/main/redislock.go: Obtain returns the lock when the "
    "script has set the key, and does not look how long ago it was sent"
)

# What the library says to its user, and what the user must take it for.
OUTCOMES = {
    "Obtain() returned a lock": "Granted",
    "Obtain() returned ErrNotObtained": "Denied: held",
    "Obtain() returned DeadlineExceeded, the last try was answered": "Denied: gave-up",
    "Obtain() returned an error of dialling": "Denied: no-effect",
    "Obtain() returned another error": "Unknown",
    "Release() returned nil": "Released",
    "Release() returned ErrLockNotHeld": "NotHeld",
    "Release() returned another error": "Unknown",
    "Refresh() returned nil": "Granted",
    "Refresh() returned ErrNotObtained": "NotHeld",
    "Refresh() returned another error": "Unknown",
}

_PLAIN = ContainerLibrary(IMAGE, "bsm-redislock", extends=True)

_SYSTEM = System(
    name="bsm-redislock",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by="polling every 100 ms",
    source=DOC,
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes=OUTCOMES,
    expectations={**may_be_late(LEASE, _LATE), **UNMOVED},
)

SYSTEMS = (
    _SYSTEM,
    as_safe(
        _SYSTEM,
        ContainerLibrary(IMAGE, "bsm-redislock", safe=True, extends=True),
        expectations={**LEASE, **UNMOVED},
    ),
)
