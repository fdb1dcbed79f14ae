"""What a lock of a PostgreSQL session is expected to do under each fault, and who says so."""

from __future__ import annotations

from lockbench.locks.shared.expectations import (
    CUT,
    SERVER_CLOCKS,
    SLOW_LINKS,
    Faults,
    breaks,
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
