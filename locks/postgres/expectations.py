"""What a lock of a PostgreSQL session is expected to do under each fault, and who says so."""

from __future__ import annotations

from typing import Final

from locks.base import Expectation
from locks.shared.expectations import CONSEQUENCE, SLOW_LINKS, Faults

SESSION_DOC = (
    "https://www.postgresql.org/docs/17/explicit-locking.html: held 'until explicitly released or "
    "the session ends', which the client may be the last to learn"
)
FAILOVER_DOC = (
    "https://www.postgresql.org/docs/17/warm-standby-failover.html: the old primary must be told "
    "that it is none, or there are 'situations where both systems think they are the primary'; "
    "locks are no data and are not replicated"
)
_LIMIT: Final = "documented-limit"
# The server ends the session at once; the client notices later, and its acts arrive later still.
_NOTICED_LATE = {
    "double-grant": Expectation("may-break", SESSION_DOC, _LIMIT),
    "stale-holder": Expectation("may-break", SESSION_DOC, _LIMIT),
    "lost-update": Expectation("may-break", CONSEQUENCE, _LIMIT),
}
# A server that dies ends every session for certain, and the one that comes next knows of none. The
# holder is told within LOOK_S, and goes on, because nothing stops it. A killed server recovers for
# seconds before it grants anything, and most holders are done by then; a replica grants at once.
FAILED_OVER = {
    **_NOTICED_LATE,
    "stale-holder": Expectation("breaks", SESSION_DOC, _LIMIT, tries=3),
    "double-grant": Expectation("may-break", FAILOVER_DOC, _LIMIT),
}
# A session stays while its client or the server sleeps, or a message is late, and ends when the
# client dies. No clock has a say in it, and who was not answered holds on.
HELD_ON = {"double-grant": Expectation("holds", SESSION_DOC)}

POSTGRES: Faults = {
    **dict.fromkeys(("client-pause", "client-gc", "client-kill", "client-clock-jump"), HELD_ON),
    **dict.fromkeys(("clock-jump", "clock-drift", "clock-strobe"), HELD_ON),
    **dict.fromkeys(("pause", "reply-lost", *SLOW_LINKS), HELD_ON),
    "partition-drop": _NOTICED_LATE,
    "partition-stall": _NOTICED_LATE,
    "partition-reject": _NOTICED_LATE,
    "reset": _NOTICED_LATE,
    "kill": _NOTICED_LATE,
    "restart": _NOTICED_LATE,
    "rolling-restart": _NOTICED_LATE,
    "failover": FAILED_OVER,
}
