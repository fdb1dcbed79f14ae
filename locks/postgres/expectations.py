"""What a lock on PostgreSQL is expected to do under each fault, and who says so: ``POSTGRES`` one
of a session or a transaction, ``LEASE_ROW`` one that is written in a row.
"""

from __future__ import annotations

from lockbench.locks.redis.expectations import NAPPING_HOLDER, PAUSED_HOLDER
from lockbench.locks.shared.expectations import (
    BY_MONOTONIC_CLOCK,
    CUT,
    SERVER_CLOCKS,
    SLOW_LINKS,
    Faults,
    breaks,
    grants_twice,
    holds,
    may_break,
    may_grant_twice,
)

SESSION_DOC = (
    "https://www.postgresql.org/docs/17/explicit-locking.html: held 'until explicitly released or "
    "the session ends', which the client may be the last to learn"
)
FAILOVER_DOC = (
    "https://www.postgresql.org/docs/17/warm-standby-failover.html: the old primary must be told "
    "that it is none, or there are 'situations where both systems think they are the primary'; "
    "locks are no data and are not replicated"
)
# The server ends the session at once; the client notices later, and its acts arrive later still.
_NOTICED_LATE = {**may_grant_twice(SESSION_DOC), **may_break(SESSION_DOC, "stale-holder")}
# A session stays while its client or the server sleeps, or a message is late, and ends when the
# client dies. No clock has a say in it, and who was not answered holds on.
_HELD_ON = (
    *("client-pause", "client-gc", "client-kill", "client-clock-jump", *SERVER_CLOCKS),
    *("pause", "reply-lost", *SLOW_LINKS),
)

POSTGRES: Faults = {
    **dict.fromkeys(_HELD_ON, holds(SESSION_DOC)),
    **dict.fromkeys((*CUT, "reset", "kill", "restart", "rolling-restart"), _NOTICED_LATE),
    # A server that dies ends every session for certain, and the one that comes next knows of none.
    # The holder is told within LOOK_S, and goes on, because nothing stops it. A killed server
    # recovers for seconds before it grants anything, and most holders are done by then; a replica
    # grants at once.
    "failover": {**may_grant_twice(FAILOVER_DOC), **breaks(SESSION_DOC, "stale-holder")},
}

LEASE_ROW_DOC = (
    "https://www.postgresql.org/docs/17/sql-insert.html#SQL-ON-CONFLICT: 'guarantees an atomic "
    "INSERT or UPDATE outcome … even under high concurrency'"
)
WRITTEN = (
    "https://www.postgresql.org/docs/17/wal-reliability.html: 'all data recorded by a committed "
    "transaction should be stored in a nonvolatile area'; a lease is a row and outlives its server"
)
CLOCK_DOC = (
    "https://www.postgresql.org/docs/17/functions-datetime.html#FUNCTIONS-DATETIME-CURRENT: now() "
    "is the server's date and time, which an operator or NTP may set"
)
_ASYNC = (
    "https://www.postgresql.org/docs/17/warm-standby.html#STREAMING-REPLICATION: asynchronous, so "
    "'there is a small delay between committing a transaction in the primary and the changes "
    "becoming visible in the standby'; a promoted one may lack the newest row"
)

LEASE_ROW: Faults = {
    "client-pause": PAUSED_HOLDER,
    "client-gc": NAPPING_HOLDER,
    **BY_MONOTONIC_CLOCK,
    **dict.fromkeys(
        ("client-kill", "pause", "reset", "reply-lost", "kill", "restart", "rolling-restart"),
        holds(WRITTEN),
    ),
    **dict.fromkeys((*CUT, *SLOW_LINKS), holds(WRITTEN)),
    "clock-jump": grants_twice(CLOCK_DOC),
    **dict.fromkeys(("clock-drift", "clock-strobe"), may_grant_twice(CLOCK_DOC)),
    "failover": {**may_grant_twice(_ASYNC), **may_break(_ASYNC, "fence-order")},
}
