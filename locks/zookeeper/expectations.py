"""What a lock of a ZooKeeper session is expected to do under each fault, and who says so."""

from __future__ import annotations

from locks.base import Expectation
from locks.shared.expectations import SLOW_LINKS, Faults

_GUARANTEES = (
    "https://zookeeper.apache.org/doc/current/zookeeperInternals.html#sc_consistency (writes are "
    "linearizable, a client's requests keep their order)"
)
_FRESH_SESSIONS = "a new leader starts every session's timeout afresh"
_SYNCED = (
    "https://zookeeper.apache.org/doc/current/zookeeperAdmin.html (forceSync: 'requires updates to "
    "be synced to media of the transaction log before finishing processing the update')"
)
_ELAPSED = (
    "https://issues.apache.org/jira/browse/ZOOKEEPER-1366: sessions are counted in elapsed time, "
    "not by the wall clock"
)
_SESSIONS_END = (
    "https://zookeeper.apache.org/doc/current/zookeeperProgrammers.html#ch_zkSessions: a client "
    "learns that its session expired only when it reconnects; until then it acts as a holder"
)
_HOLDS = {"double-grant": Expectation("holds", f"{_GUARANTEES}; {_FRESH_SESSIONS}")}
_BY_ELAPSED_TIME = {"double-grant": Expectation("holds", _ELAPSED)}
ZOOKEEPER: Faults = {
    "client-pause": {
        "stale-holder": Expectation("breaks", _SESSIONS_END, "documented-limit", tries=3),
        "lost-update": Expectation("may-break", _SESSIONS_END, "documented-limit"),
    },
    "client-gc": {
        "stale-holder": Expectation("may-break", _SESSIONS_END, "documented-limit"),
        "lost-update": Expectation("may-break", _SESSIONS_END, "documented-limit"),
    },
    "client-kill": _HOLDS,
    "pause": _HOLDS,
    "kill": _HOLDS,
    "restart": _HOLDS,
    "rolling-restart": _HOLDS,
    "reset": _HOLDS,
    "power-loss": {"double-grant": Expectation("holds", _SYNCED)},
    "clock-jump": _BY_ELAPSED_TIME,
    "clock-drift": _BY_ELAPSED_TIME,
    "clock-strobe": _BY_ELAPSED_TIME,
    "partition-drop": _HOLDS,
    "partition-stall": _HOLDS,
    "partition-reject": _HOLDS,
    **dict.fromkeys(SLOW_LINKS, _HOLDS),
    "reply-lost": {
        "double-grant": Expectation("holds", "https://issues.apache.org/jira/browse/ZOOKEEPER-1262")
    },
}
