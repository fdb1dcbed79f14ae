"""What a lock on MariaDB is expected to do under each fault, and who says so: ``MARIADB`` one of a
session, ``LEASE_ROW`` one that is written in a row with the end of its time.
"""

from __future__ import annotations

from lockbench.locks.base import ANY, Expectation
from lockbench.locks.redis.expectations import NAPPING_HOLDER, PAUSED_HOLDER
from lockbench.locks.shared.expectations import (
    BY_MONOTONIC_CLOCK,
    CUT,
    SERVER_CLOCKS,
    SLOW_LINKS,
    UNMINDED,
    Faults,
    breaks,
    grants_twice,
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

_WRITTEN = (
    "https://mariadb.com/docs/server/server-usage/storage-engines/innodb/innodb-system-variables"
    "#innodb_flush_log_at_trx_commit: with 1 'a flush to disk is performed … after each "
    "transaction'; a lease is a row and outlives its server"
)
_CLOCK_DOC = (
    "https://mariadb.com/docs/server/reference/sql-functions/date-time-functions/utc_timestamp: "
    "the server's date and time, which an operator or NTP may set"
)

LEASE_ROW: Faults = {
    "client-pause": PAUSED_HOLDER,
    "client-gc": NAPPING_HOLDER,
    **BY_MONOTONIC_CLOCK,
    **dict.fromkeys(
        ("client-kill", "pause", "reset", "reply-lost", "kill", "restart", "rolling-restart"),
        holds(_WRITTEN),
    ),
    **dict.fromkeys((*CUT, *SLOW_LINKS), holds(_WRITTEN)),
    "clock-jump": grants_twice(_CLOCK_DOC),
    **dict.fromkeys(("clock-drift", "clock-strobe"), may_grant_twice(_CLOCK_DOC)),
}

_NOTHING_TO_BREAK = {
    ANY: Expectation("n/a", "it lets two in without a fault, so a fault has nothing to show")
}
UNLOCKED_BY_GALERA: Faults = {
    **dict.fromkeys((*MARIADB, *UNMINDED), _NOTHING_TO_BREAK),
    "none": {**may_break(GALERA_DOC, ANY), **breaks(GALERA_DOC, "double-grant")},
}
