"""A row of MariaDB, locked for the time of a transaction.

Acquire selects the row of the key ``FOR UPDATE``, with ``WAIT`` in whole seconds, or ``NOWAIT`` for
one try, and counts the grant in it; the server queues who waits. Release commits.
https://mariadb.com/docs/server/reference/sql-statements/data-manipulation/selecting-data/for-update

``galera-for-update`` is the same where clients use any server of a Galera cluster. The row is
locked on one server alone. Others find it free; of those who have counted, the first to commit is
right, and the transactions of the rest are rolled back, by then or at their commit. So what is
written in the same transaction is safe, and whatever else a holder does is not.

Does not guarantee: that the lock of a holder that hangs becomes free; a fence: the count of a
holder that dies is rolled back, and the next one gets it again. What errors mean stands in
``lockbench.locks.mariadb.recipe``.
"""

from __future__ import annotations

import math

from lockbench.locks.bare import KEY, WAIT_S, Bare
from lockbench.locks.base import System
from lockbench.locks.mariadb.expectations import MARIADB, UNLOCKED_BY_GALERA
from lockbench.locks.mariadb.recipe import OUTCOMES, MariadbRecipe
from lockbench.locks.mariadb.session import DEADLOCK, LOCK_WAIT_TIMEOUT, Session, literal
from lockbench.locks.shared.sessions import Refused

DOC = (
    "https://mariadb.com/docs/server/reference/sql-statements/data-manipulation/selecting-data/"
    "for-update"
)
EXISTS = "SHOW TABLES LIKE 'lockbench_locks'"
CREATE = (
    "CREATE TABLE IF NOT EXISTS lockbench_locks "
    "(name VARCHAR(255) PRIMARY KEY, grants BIGINT NOT NULL)"
)


class MariadbForUpdate(MariadbRecipe):
    """One client of the lock."""

    def prepare(self, session: Session) -> None:
        """Makes the table where it is missing."""
        if not session.ask(EXISTS):
            session.ask(CREATE)
        session.ask("COMMIT")

    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Locks the row; makes it first if there is none."""
        name = literal(key)
        lock = _lock(name, wait_s)
        try:
            if not session.ask(lock, wait_s=math.ceil(wait_s)):
                session.ask("ROLLBACK")
                self._make(session, name)
                session.ask(lock, wait_s=math.ceil(wait_s))
            session.ask(_count(name))
        except Refused:
            session.ask("ROLLBACK")
            raise
        return None

    def _make(self, session: Session, name: str) -> None:
        """The row, unless somebody has made it meanwhile. Whoever holds it then is not waited for:
        that is what the select is for."""
        try:
            session.ask(_insert(name))
            session.ask("COMMIT")
        except Refused as error:
            if error.code != LOCK_WAIT_TIMEOUT:
                raise
            session.ask("ROLLBACK")

    def give_back(self, session: Session, key: str) -> bool:
        try:
            session.ask("COMMIT")
        except Refused as error:
            if error.code != DEADLOCK:
                raise
            return False
        return True


def _lock(name: str, wait_s: float) -> str:
    """``name`` as it stands in a statement."""
    how = f"WAIT {math.ceil(wait_s)}" if wait_s > 0 else "NOWAIT"
    return f"SELECT grants FROM lockbench_locks WHERE name = {name} FOR UPDATE {how}"  # noqa: S608


def _insert(name: str) -> str:
    at_once = "SET STATEMENT innodb_lock_wait_timeout = 0 FOR"
    return f"{at_once} INSERT IGNORE INTO lockbench_locks VALUES ({name}, 0)"  # noqa: S608


def _count(name: str) -> str:
    return f"UPDATE lockbench_locks SET grants = grants + 1 WHERE name = {name}"  # noqa: S608


_SYSTEM = System(
    name="mariadb-for-update",
    topologies=("mariadb",),
    family="mariadb",
    fence=None,
    waits_by="the server's queue",
    source=DOC,
    connect=MariadbForUpdate,
    outcomes={**OUTCOMES, "release: deadlock": "NotHeld"},
    expectations=MARIADB,
    limited=False,
    bare=(Bare("mariadb", (_lock(literal(KEY), WAIT_S), _count(literal(KEY)), "COMMIT")),),
    not_owed={
        "a_wait_that_ran_out_leaves_nothing_behind": "a wait is whole seconds of the server's clock"
    },
)

SYSTEMS = (
    _SYSTEM,
    _SYSTEM.derived(
        name="galera-for-update",
        topologies=("galera",),
        variant=True,
        expectations=UNLOCKED_BY_GALERA,
    ),
)
