"""What a lock of an etcd lease is expected to do under each fault, and who says so."""

from __future__ import annotations

from locks.base import Expectation
from locks.shared.expectations import SLOW_LINKS, Faults

_GUARANTEES = "https://etcd.io/docs/v3.6/learning/api_guarantees/"
_LEASES_END = (
    "https://etcd.io/docs/v3.6/learning/why/#using-etcd-for-distributed-coordination and "
    "https://jepsen.io/analyses/etcd-3.4.3: a lease can end while its holder still acts"
)
_FRESH_LEASES = (
    "a new leader starts leases afresh (server/lease/lessor.go, Promote), and an old one may not "
    "revoke any (https://github.com/etcd-io/etcd/issues/15247)"
)
_SYNCED = (
    "https://etcd.io/docs/v3.6/learning/api_guarantees/#durability: 'Any completed operations are "
    "durable'"
)
_HOLDS = {"double-grant": Expectation("holds", f"{_GUARANTEES}; {_FRESH_LEASES}")}
ETCD: Faults = {
    "client-pause": {
        "stale-holder": Expectation("breaks", _LEASES_END, "documented-limit", tries=3),
        "lost-update": Expectation("may-break", _LEASES_END, "documented-limit"),
    },
    "client-gc": {
        "stale-holder": Expectation("may-break", _LEASES_END, "documented-limit"),
        "lost-update": Expectation("may-break", _LEASES_END, "documented-limit"),
    },
    "client-kill": _HOLDS,
    "pause": _HOLDS,
    "kill": _HOLDS,
    "restart": _HOLDS,
    "rolling-restart": _HOLDS,
    "reset": _HOLDS,
    "power-loss": {"double-grant": Expectation("holds", _SYNCED)},
    "partition-drop": _HOLDS,
    "partition-stall": _HOLDS,
    "partition-reject": _HOLDS,
    **dict.fromkeys(SLOW_LINKS, _HOLDS),
    "reply-lost": _HOLDS,
}
