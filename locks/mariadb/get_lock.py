"""MariaDB's user-level lock, held by a session.

Acquire is ``GET_LOCK`` with the time to wait, 0 for one try; the server queues who waits. Release
is ``RELEASE_LOCK`` (``DOC``).

The name has at most 64 characters, so it is made from the key by SHA-256. The lock is in the memory
of one server: nothing is written or replicated.

``galera-get-lock`` is the same where clients use any server of a Galera cluster: each server has
locks of its own, so it is none.

Does not guarantee: that the lock of a holder that hangs becomes free; a fence. What errors mean
stands in ``lockbench.locks.mariadb.recipe``.
"""

from __future__ import annotations

import hashlib

from lockbench.locks.bare import KEY, WAIT_S, Bare
from lockbench.locks.base import System
from lockbench.locks.mariadb.expectations import MARIADB, UNLOCKED_BY_GALERA
from lockbench.locks.mariadb.recipe import OUTCOMES, MariadbRecipe
from lockbench.locks.mariadb.session import LOCK_WAIT_TIMEOUT, Session
from lockbench.locks.shared.sessions import Refused

DOC = (
    "https://mariadb.com/docs/server/reference/sql-functions/secondary-functions/"
    "miscellaneous-functions/get_lock"
)
GRANTED = [[1]]


class MariadbGetLock(MariadbRecipe):
    """One client of the lock."""

    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Takes the lock; it has no fence."""
        wait_s = max(0.0, wait_s)
        if session.ask(_lock(key, wait_s), wait_s=wait_s) != GRANTED:
            raise Refused(LOCK_WAIT_TIMEOUT, "held", held=True)
        return None

    def give_back(self, session: Session, key: str) -> bool:
        return session.ask(_unlock(key)) == GRANTED


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


def _lock(key: str, wait_s: float) -> str:
    return f"SELECT GET_LOCK('{_name(key)}', {wait_s:.3f})"


def _unlock(key: str) -> str:
    return f"SELECT RELEASE_LOCK('{_name(key)}')"


_SYSTEM = System(
    name="mariadb-get-lock",
    topologies=("mariadb",),
    family="mariadb",
    fence=None,
    waits_by="the server's queue",
    source=DOC,
    connect=MariadbGetLock,
    outcomes=OUTCOMES,
    expectations=MARIADB,
    limited=False,
    bare=(Bare("mariadb", (_lock(KEY, WAIT_S), _unlock(KEY))),),
)

SYSTEMS = (
    _SYSTEM,
    _SYSTEM.derived(
        name="galera-get-lock",
        topologies=("galera",),
        variant=True,
        expectations=UNLOCKED_BY_GALERA,
    ),
)
