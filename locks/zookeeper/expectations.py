"""What a lock of a ZooKeeper session is expected to do under each fault, and who says so."""

from __future__ import annotations

from lockbench.locks.shared.expectations import (
    CUT,
    SERVER_CLOCKS,
    SLOW_LINKS,
    Faults,
    breaks,
    holds,
    may_break,
)

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
_SERVERS = ("pause", "kill", "restart", "rolling-restart", "reset")
ZOOKEEPER: Faults = {
    "client-pause": {
        **breaks(_SESSIONS_END, "stale-holder"),
        **may_break(_SESSIONS_END, "lost-update"),
    },
    "client-gc": may_break(_SESSIONS_END, "stale-holder", "lost-update"),
    **dict.fromkeys(
        ("client-kill", *_SERVERS, *CUT, *SLOW_LINKS), holds(f"{_GUARANTEES}; {_FRESH_SESSIONS}")
    ),
    "power-loss": holds(_SYNCED),
    **dict.fromkeys(SERVER_CLOCKS, holds(_ELAPSED)),
    "reply-lost": holds("https://issues.apache.org/jira/browse/ZOOKEEPER-1262"),
}
