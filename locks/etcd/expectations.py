"""What a lock of an etcd lease is expected to do under each fault, and who says so."""

from __future__ import annotations

from lockbench.locks.shared.expectations import CUT, SLOW_LINKS, Faults, breaks, holds, may_break

_GUARANTEES = "https://etcd.io/docs/v3.6/learning/api_guarantees/"
_LEASES_END = (
    "https://etcd.io/docs/v3.6/learning/why/#using-etcd-for-distributed-coordination and "
    "https://jepsen.io/analyses/etcd-3.4.3: a lease can end while its holder still acts"
)
_FRESH_LEASES = "a new leader starts leases afresh (server/lease/lessor.go, Promote)"
_REVOKED_EARLY = (
    f"{_GUARANTEES} promises it, but a leader that goes on after a freeze revokes leases that its "
    "successor keeps alive: "
    "server/etcdserver/server.go of 3.6.16, ensureLeadership, asks no quorum if the process has "
    "just ticked (docs/track/etcd-old-leader-revokes.md; as https://github.com/etcd-io/etcd/issues/15247)"
)
_SYNCED = (
    "https://etcd.io/docs/v3.6/learning/api_guarantees/#durability: 'Any completed operations are "
    "durable'"
)
_SERVERS = ("kill", "restart", "rolling-restart", "reset", "reply-lost")
ETCD: Faults = {
    "client-pause": {
        **breaks(_LEASES_END, "stale-holder"),
        **may_break(_LEASES_END, "lost-update"),
    },
    "client-gc": may_break(_LEASES_END, "stale-holder", "lost-update"),
    **dict.fromkeys(
        ("client-kill", *_SERVERS, *CUT, *SLOW_LINKS), holds(f"{_GUARANTEES}; {_FRESH_LEASES}")
    ),
    "pause": may_break(
        _REVOKED_EARLY, "double-grant", "lost-update", "linearizable", kind="defect"
    ),
    "power-loss": holds(_SYNCED),
}
