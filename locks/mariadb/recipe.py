"""What the MariaDB locks have in common: a hold is a session.

There is no time to live: a grant lasts until it is released or its session ends. The promise has
no end of its own; it ends when the connection was last seen alive before it was found to be closed
(``lockbench.locks.shared.sessions``). The server ends a session as soon as it reads the end of its
connection, rolls its transaction back and frees its locks (sql/sql_class.cc, THD::cleanup); where a
cut swallows that end, after ``wait_timeout``, which is left at eight hours.

What each error means (``OUTCOMES`` holds the same as data):

- No session, because nobody answers or it was refused: nothing was asked. No effect; within its
  wait an acquire tries again.
- "Lock wait timeout exceeded", or 0 of GET_LOCK: certainly not held.
- Any other error reply to an acquire, a deadlock among them: the session is closed, and with it
  goes whatever it held. No effect.
- No answer in time, a broken connection, a session ended by the server: Unknown, and the session is
  closed.
- Release: a session that is gone, or a transaction that the server has rolled back (a deadlock),
  has lost its lock: NotHeld. Any other error of the command: Unknown, and the session is closed.
"""

from __future__ import annotations

from lockbench.locks.mariadb.session import Session
from lockbench.locks.shared.sessions import SessionRecipe


class MariadbRecipe(SessionRecipe[Session]):
    """One client of a lock on MariaDB."""

    def open(self) -> Session:
        return Session(self._nodes, timeout_s=self._timeout_s)


OUTCOMES = {
    "acquire: no server": "Denied: no-effect",
    "acquire: session refused": "Denied: no-effect",
    "acquire: held": "Denied: held",
    "acquire: error reply": "Denied: no-effect",
    "acquire: silent": "Unknown",
    "acquire: closes": "Unknown",
    "acquire: killed": "Unknown",
    "release: session gone": "NotHeld",
    "release: error reply": "Unknown",
    "release: silent": "Unknown",
    "release: closes": "Unknown",
    "release: killed": "Unknown",
}
