"""What the PostgreSQL locks have in common: a hold is a session.

There is no time to live: a grant lasts until it is released or its session ends. The promise has no
end of its own; it ends when the connection was last seen alive before it was found to be closed
(``lockbench.locks.shared.sessions``). The server may notice first, and somebody else may be granted
the key while the end of the connection is on its way, or, where a cut swallows it, until the cut is
healed: that is the exposure of a lock that has no lease.

PostgreSQL 17: who is answered holds the lock until its backend exits (src/backend/utils/init/
postinit.c, ShutdownPostgres: the transaction is aborted, and LockReleaseAll releases what the
session holds). No answer has an end, so no request has to be taken for its beginning. A backend
that waits for a command learns that the client is gone from its read of the socket (src/backend/
libpq/pqcomm.c, pq_recvbuf); where a cut swallows that, from TCP's keepalives, which are left at the
system's two hours. pg8000 1.31.6 sends nothing by itself and nothing again.

What each error means (``OUTCOMES`` holds the same as data):

- No session, because nobody answers, nobody takes writes, or it was refused: nothing was asked. No
  effect; within its wait an acquire tries again.
- "lock not available", when the wait is over or for a try: not held; but an advisory lock of a
  session may be, after a wait (``lockbench.locks.postgres.advisory``).
- Any other error reply to an acquire: the session is closed, and with it goes whatever it held. No
  effect.
- No answer in time, a broken connection, a session ended by the server: Unknown, and the session is
  closed.
- Release: a session that is gone has lost its lock: NotHeld. Any error of the command: Unknown, and
  the session is closed.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from lockbench.locks.postgres.session import Session
from lockbench.locks.shared.sessions import SessionRecipe


class PostgresRecipe(SessionRecipe[Session]):
    """One client of a lock on PostgreSQL."""

    def open(self) -> Session:
        return Session(self._nodes, timeout_s=self._timeout_s)


@lru_cache(maxsize=1024)
def number(key: str) -> int:
    """A key as PostgreSQL counts them: 64 bits, signed."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big", signed=True)


# Concurrent creators must not meet; IF NOT EXISTS alone does not see to that.
CREATORS_APART = f"SELECT pg_advisory_xact_lock({number('lockbench: create')})"


def milliseconds(wait_s: float) -> int:
    """Of a wait; 0 would mean no limit."""
    return max(1, int(1000 * wait_s))


OUTCOMES = {
    "acquire: no server": "Denied: no-effect",
    "acquire: nobody takes writes": "Denied: no-effect",
    "acquire: session refused": "Denied: no-effect",
    "acquire: lock not available": "Denied: held",
    "acquire: error reply": "Denied: no-effect",
    "acquire: silent": "Unknown",
    "acquire: closes": "Unknown",
    "acquire: nonsense": "Unknown",
    "acquire: terminated": "Unknown",
    "release: session gone": "NotHeld",
    "release: error reply": "Unknown",
    "release: silent": "Unknown",
    "release: closes": "Unknown",
    "release: terminated": "Unknown",
}
