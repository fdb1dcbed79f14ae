"""What a lock of a MariaDB session is expected to do under each fault, and who says so."""

from __future__ import annotations

from lockbench.locks.base import ANY, Expectation
from lockbench.locks.shared.expectations import (
    CUT,
    SERVER_CLOCKS,
    SLOW_LINKS,
    UNMINDED,
    Faults,
    breaks,
    holds,
    may_break,
    may_grant_twice,
)

SESSION_DOC = (
    "https://mariadb.com/docs/server/reference/sql-functions/secondary-functions/"
    "miscellaneous-functions/get_lock: a lock is released 'explicitly … or implicitly when the "
    "connection terminates (either normally or abnormally)', which the client may be the last to "
    "learn; a transaction that ends so is rolled back"
)
GALERA_DOC = (
    "https://mariadb.com/docs/galera-cluster/reference/mariadb-galera-cluster-known-limitations: "
    "'Unsupported explicit locking include LOCK TABLES, FLUSH TABLES … (GET_LOCK(), "
    "RELEASE_LOCK(),…)'; and row locks are those of one node: 'there can be two transactions "
    "writing to same rows and committing in separate cluster nodes, and only one of the them can "
    "successfully commit. The failing one will be aborted'"
)
# The server ends the session at once; the client notices later, and its acts arrive later still.
_NOTICED_LATE = {**may_grant_twice(SESSION_DOC), **may_break(SESSION_DOC, "stale-holder")}
# A session stays while its client or the server sleeps, or a message is late, and ends when the
# client dies. No clock has a say in it, and who was not answered holds on.
_HELD_ON = (
    *("client-pause", "client-gc", "client-kill", "client-clock-jump", *SERVER_CLOCKS),
    *("pause", "reply-lost", *SLOW_LINKS),
)

MARIADB: Faults = {
    **dict.fromkeys(_HELD_ON, holds(SESSION_DOC)),
    **dict.fromkeys((*CUT, "reset", "kill", "restart", "rolling-restart"), _NOTICED_LATE),
}

_NOTHING_TO_BREAK = {
    ANY: Expectation("n/a", "it lets two in without a fault, so a fault has nothing to show")
}
UNLOCKED_BY_GALERA: Faults = {
    **dict.fromkeys((*MARIADB, *UNMINDED), _NOTHING_TO_BREAK),
    "none": {**may_break(GALERA_DOC, ANY), **breaks(GALERA_DOC, "double-grant")},
}
