"""What the PostgreSQL locks have in common: a hold is a session.

There is no time to live: a grant lasts until it is released or its session ends. The promise has no
end of its own; it ends when the connection was last seen alive before it was found to be closed
(``postgres_session``). The server may notice first, and somebody else may be granted the key while
the end of the connection is on its way, or, where a cut swallows it, until the cut is healed: that
is the exposure of a lock that has no lease.

PostgreSQL 17: who is answered holds the lock until its backend exits (src/backend/utils/init/
postinit.c, ShutdownPostgres: the transaction is aborted, and LockReleaseAll releases what the
session holds). No answer has an end, so no request has to be taken for its beginning. A backend
that waits for a command learns that the client is gone from its read of the socket (src/backend/
libpq/pqcomm.c, pq_recvbuf); where a cut swallows that, from TCP's keepalives, which are left at the
system's two hours. pg8000 1.31.6 sends nothing by itself and nothing again.

What each error means (``OUTCOMES`` holds the same as data):

- No session, because nobody answers, nobody takes writes, or it was refused: nothing was asked. No
  effect; within its wait an acquire tries again.
- "lock not available", when the wait is over or for a try: certainly not held.
- Any other error reply to an acquire: the session is closed, and with it goes whatever it held. No
  effect.
- No answer in time, a broken connection, a session ended by the server: Unknown, and the session is
  closed.
- Release: a session that is gone has lost its lock: NotHeld. Any error of the command: Unknown, and
  the session is closed.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

from lockbench.locks.base import (
    Acquired,
    Address,
    Backoff,
    Deadline,
    Denied,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    Unknown,
)
from lockbench.locks.postgres.session import (
    LOCK_NOT_AVAILABLE,
    Broken,
    NotSent,
    Refused,
    Session,
    Watch,
)

RETRY_MIN_S = 0.010  # between two attempts to reach a server
RETRY_MAX_S = 0.100


class PostgresRecipe(ABC):
    """One client of a lock on PostgreSQL."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # nothing here ends by itself
        observer: Observer,
    ) -> None:
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._free: list[Session] = []
        self._observer = observer
        self._watch = Watch(observer)
        self._held: dict[int, Session] = {}

    @abstractmethod
    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Takes the lock and returns its fence, if it has one. Raises Refused with
        LOCK_NOT_AVAILABLE when somebody else has it and ``wait_s`` is over; Refused, Broken."""

    @abstractmethod
    def give_back(self, session: Session, key: str) -> bool:
        """Whether there was something to give back. Raises Refused, Broken."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Queues in the server. Only a server that cannot be reached is asked again."""
        deadline = Deadline(wait_s)
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            last = deadline.over()
            try:
                session = self._session()
            except NotSent as error:
                if last:
                    reason = f"no-effect: {error}"
                    return Denied(reason if wait_s <= 0 else f"gave-up: {reason}")
                backoff.pause(deadline.left_s())
            else:
                return self._take(session, key, hold_id, max(0.0, deadline.left_s()))

    def release(self, hold: Hold) -> Freed:
        """Gives the hold back. Its session serves the next one. Where it finds the session gone
        before the watch did, it says so in the same words: the hold was lost."""
        session = self._held.pop(hold.id, None)
        unnoticed = self._watch.discard(hold)
        if session is None:
            return NotHeld()
        if session.gone():
            session.close()
            if unnoticed:
                self._observer.lost(hold, alive_ns=session.alive_ns)
            return NotHeld()
        try:
            freed = self.give_back(session, hold.key)
        except (Refused, Broken) as error:
            session.close()
            return Unknown(f"release: {error}")
        self._free.append(session)
        return Released() if freed else NotHeld()

    def close(self) -> None:
        """Ends all sessions, and with them all holds."""
        self._watch.close()
        for session in (*self._free, *self._held.values()):
            session.close()
        self._free.clear()
        self._held.clear()

    def _take(self, session: Session, key: str, hold_id: int, wait_s: float) -> Acquired:
        sent_ns = time.monotonic_ns()
        try:
            fence = self.take(session, key, wait_s)
        except Refused as error:
            if error.code == LOCK_NOT_AVAILABLE:
                self._free.append(session)
                return Denied("held" if wait_s <= 0 else "gave-up: held")
            session.close()
            return Denied(f"no-effect: {error}")
        except Broken as error:
            return Unknown(f"acquire: {error}")
        hold = Hold(hold_id, key, session)
        self._held[hold_id] = session
        self._watch.add(hold)
        return Granted(hold, fence, sent_ns, None)

    def _session(self) -> Session:
        while self._free:
            session = self._free.pop()
            if not session.gone():
                return session
            session.close()
        session = Session(self._nodes, timeout_s=self._timeout_s)
        try:
            self.prepare(session)
        except (Refused, Broken) as error:
            with suppress(Exception):
                session.close()
            raise NotSent(f"preparing: {error}") from error
        return session

    def prepare(self, session: Session) -> None:
        """What a new session needs before it can take the lock. Raises Refused, Broken."""
        del session


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
