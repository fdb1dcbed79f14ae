"""A row of MariaDB. The guard is a condition of the UPDATE, or a transaction that looks first.

An UPDATE locks the row and looks at its condition when it has the lock, so one statement is enough.
Under SERIALIZABLE what a transaction reads is locked, too: of two that have looked, one is rolled
back with 1213 and tries again. A thing that is to be done once is a row of its own under a unique
key.

An UPDATE returns no rows here. How many it changed, and the version that it made, is asked for
afterwards. The record is written by triggers, in the transaction that writes the row. Without a
record there are none.

On Galera each client writes through a server of its own. Of two transactions that change one row at
once, one is rolled back with 1213 when it commits, and a single statement is done once more by the
server: https://mariadb.com/docs/galera-cluster. A statement waits until its server has everything
that was committed before it (``wsrep_sync_wait``), or it might not find what its own client has
read elsewhere. Tables are made through the first server, by one at a time.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

from lockbench.locks.base import Unknown
from lockbench.locks.mariadb.session import DEADLOCK, LOCK_WAIT_TIMEOUT, Session, literal
from lockbench.locks.shared.sessions import Broken, Kept, NotSent, prepared
from lockbench.locks.shared.sessions import Refused as Error
from lockbench.stores.base import (
    ONCE_PROMISES,
    UNGUARDED,
    UNGUARDED_PROMISES,
    Applied,
    Away,
    Entry,
    Guard,
    Outcome,
    Refused,
    Seen,
    Store,
    Where,
    Write,
    entry,
)

DUPLICATE = "1062"
# After these nothing was done. What others mean for a commit under way is not said.
NOTHING_DONE = {DEADLOCK, LOCK_WAIT_TIMEOUT}

TABLES = """
    CREATE TABLE IF NOT EXISTS guarded
    (name VARCHAR(255) PRIMARY KEY, value TEXT, fence BIGINT NOT NULL DEFAULT 0,
     version BIGINT NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS guarded_done
    (name VARCHAR(255), thing BIGINT, value TEXT, PRIMARY KEY (name, thing))
"""
RECORD_EXISTS = """
    SELECT trigger_name FROM information_schema.triggers
     WHERE trigger_schema = DATABASE() AND trigger_name = 'guarded_record'
"""
# The trigger that is looked for comes last; to make it again would wait for all open writes. No key
# is unique but the record's own, so that it is no check.
RECORD = """
    CREATE TABLE IF NOT EXISTS guarded_written
    (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255), version BIGINT, value TEXT);
    CREATE TABLE IF NOT EXISTS guarded_done_written
    (id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(255), thing BIGINT, value TEXT);
    CREATE TRIGGER IF NOT EXISTS guarded_done_insert AFTER INSERT ON guarded_done FOR EACH ROW
    INSERT INTO guarded_done_written VALUES (NULL, NEW.name, NEW.thing, NEW.value);
    CREATE TRIGGER IF NOT EXISTS guarded_done_update AFTER UPDATE ON guarded_done FOR EACH ROW
    INSERT INTO guarded_done_written VALUES (NULL, NEW.name, NEW.thing, NEW.value);
    CREATE TRIGGER IF NOT EXISTS guarded_record AFTER UPDATE ON guarded FOR EACH ROW
    INSERT INTO guarded_written VALUES (NULL, NEW.name, NEW.version, NEW.value)
"""
NO_RECORD = """
    DROP TRIGGER IF EXISTS guarded_record;
    DROP TRIGGER IF EXISTS guarded_done_insert;
    DROP TRIGGER IF EXISTS guarded_done_update
"""
MADE = "SELECT ROW_COUNT(), LAST_INSERT_ID()"

GALERA = "galera"
# Before SELECT, UPDATE and DELETE.
SYNC_WAIT = "SET SESSION wsrep_sync_wait = 3"
# With the above it is answered once the tables are here, too.
TABLES_ARE_HERE = "SELECT name FROM guarded LIMIT 0"
MAKES = "guarded_tables"  # the lock of whoever makes them
MAKES_LIMIT_S = 5.0

FENCE = """\
UPDATE guarded SET value = ?, fence = ?, version = LAST_INSERT_ID(version + 1)
 WHERE name = ? AND fence < ?"""

COMPARE_AND_SET = """\
UPDATE guarded SET value = ?, version = LAST_INSERT_ID(version + 1)
 WHERE name = ? AND version = ?"""

IDEMPOTENCY_KEY = """\
INSERT INTO guarded_done (name, thing, value) VALUES (?, ?, ?)"""

PLAIN = """\
UPDATE guarded SET value = ?, version = LAST_INSERT_ID(version + 1)
 WHERE name = ?"""


def write_if_newer(
    ask: Callable[[str], list[list[Any]]], name: str, value: str, fence: int
) -> int | None:
    """The version made, or None: refused. ``name`` and ``value`` are quoted already."""
    while True:
        try:
            ask("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE")
            ask("BEGIN")
            ((seen, version),) = ask(f"SELECT fence, version FROM guarded WHERE name = {name}")
            if fence <= seen:
                ask("ROLLBACK")
                return None
            ask(
                f"UPDATE guarded SET value = {value}, fence = {fence}, version = version + 1 "
                f"WHERE name = {name}"
            )
            ask("COMMIT")
            return int(version + 1)
        except Error as error:
            ask("ROLLBACK")
            if error.code != DEADLOCK:
                raise


class Mariadb:
    """One client: a session on a server."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        self._where = where
        self._guard = guard
        self._recorded = recorded
        self._kept = Kept(self._new)

    def read(self, key: str) -> Seen:
        """Makes the row where there is none."""
        name = literal(key)
        sql = f"SELECT version FROM guarded WHERE name = {name}"
        rows = self._asked(sql)
        if not rows:
            with suppress(Away):  # on Galera it may be rolled back by another one's
                self._asked(f"INSERT IGNORE INTO guarded (name) VALUES ({name})")
            rows = self._asked(sql)
        if not rows:
            raise Away(f"no row {key}")
        return Seen(int(rows[0][0]))

    def write(self, write: Write) -> Outcome:
        session = self._session()
        try:
            version = self._written(session, write)
        except Error as error:
            self.close()
            if error.code in NOTHING_DONE:
                raise Away(str(error)) from error
            return Unknown(str(error))
        except Broken as error:
            return Unknown(str(error))
        return Refused() if version is None else Applied(version)

    def done(self, key: str, thing: int) -> bool:
        name = literal(key)
        sql = f"SELECT thing FROM guarded_done WHERE name = {name} AND thing = {thing:d}"
        return bool(self._asked(sql))

    def written(self) -> list[Entry]:
        columns, table = "name, version", "guarded_written"
        if self._guard.rule == "once":
            columns, table = "name, thing", "guarded_done_written"
        rows = self._asked(f"SELECT {columns}, value FROM {table} ORDER BY {columns}, id")
        return [entry(str(name), int(made), int(made), str(value)) for name, made, value in rows]

    def close(self) -> None:
        self._kept.close()

    def _written(self, session: Session, write: Write) -> int | None:
        """Raises Error, Broken."""
        name, value, fence = literal(write.key), literal(write.value), write.fence or 0
        rule = self._guard.rule
        if self._guard.language == "python":
            return write_if_newer(session.ask, name, value, fence)
        given = {
            "newer": f"{value}, {fence}, {name}, {fence}",
            "unchanged": f"{value}, {name}, {write.seen.version}",
            "once": f"{name}, {write.thing or 0}, {value}",
        }.get(rule, f"{value}, {name}")
        try:
            session.ask(f"EXECUTE guarded_write USING {given}")
        except Error as error:
            if rule == "once" and error.code == DUPLICATE:
                return None
            raise
        if rule == "once":
            return write.thing
        try:
            ((changed, made),) = session.ask(MADE)
        except Error as error:  # by then it may have been applied
            raise Broken(str(error)) from error
        return int(made) if changed else None

    def _asked(self, sql: str) -> list[list[Any]]:
        """The rows of a statement after which nobody has to know whether it was done. Raises
        Away."""
        try:
            return self._session().ask(sql)
        except (Error, Broken) as error:
            self.close()
            raise Away(str(error)) from error

    def _session(self) -> Session:
        """Raises Away."""
        try:
            return self._kept.get()
        except NotSent as error:
            raise Away(str(error)) from error

    def _new(self) -> Session:
        """Raises NotSent."""
        return prepared(Session(self._where.nodes, timeout_s=self._where.timeout_s), self._prepare)

    def _prepare(self, session: Session) -> None:
        """Raises Error, Broken."""
        session.ask("SET autocommit = 1")
        if self._where.topology == GALERA:
            session.ask(SYNC_WAIT)
        if not (self._recorded and session.ask(RECORD_EXISTS)):
            self._make_tables()
            session.ask(TABLES_ARE_HERE)
        if self._guard.language == "sql":
            session.ask(f"PREPARE guarded_write FROM {literal(self._guard.snippet)}")

    def _make_tables(self) -> None:
        """Raises Error, Broken."""
        try:
            maker = Session(self._where.nodes[:1], timeout_s=self._where.timeout_s)
        except NotSent as error:
            raise Broken(str(error)) from error
        with closing(maker):  # which gives the lock back
            maker.ask("SET autocommit = 1")
            asked = f"SELECT GET_LOCK('{MAKES}', {MAKES_LIMIT_S})"
            if maker.ask(asked, wait_s=MAKES_LIMIT_S) != [[1]]:
                raise Broken("another client makes the tables")
            if self._recorded and maker.ask(RECORD_EXISTS):
                return
            wanted = f"{TABLES};{RECORD if self._recorded else NO_RECORD}"
            for statement in wanted.split(";"):
                maker.ask(statement)


ROW_LOCK_DOC = (
    "https://mariadb.com/docs/server/server-usage/storage-engines/innodb/innodb-lock-modes: 'An "
    "exclusive lock is obtained to write to a row, and stops other transactions from locking the "
    "same row'"
)
SERIALIZABLE_DOC = (
    "https://mariadb.com/docs/server/reference/sql-statements/transactions/"
    "transactions-serializable: 'InnoDB implicitly converts all plain SELECT statements to SELECT "
    "... LOCK IN SHARE MODE if autocommit is disabled'"
)
UNIQUE_DOC = (
    "https://mariadb.com/docs/server/architecture/server-constraints/"
    "unique-constraints-with-mariadb-enterprise-server: 'MariaDB Server uses unique indexes to "
    "speed up query execution and enforce unique constraints'"
)

STORE = Store(
    name="mariadb",
    summary="a row of MariaDB",
    topologies=("mariadb", GALERA),
    connect=Mariadb,
    record="the rows that a trigger writes in the same transaction",
    guards=(
        Guard(
            "fence",
            "newer",
            "sql",
            FENCE,
            "A write is applied if its fence is above every fence applied before.",
            ROW_LOCK_DOC,
        ),
        Guard(
            "serializable",
            "newer",
            "python",
            inspect.getsource(write_if_newer).rstrip(),
            "The same, where the program looks and decides: what it has looked at is locked, and "
            "whoever is in the way of another one is rolled back with 1213 and looks again.",
            SERIALIZABLE_DOC,
        ),
        Guard(
            "compare-and-set",
            "unchanged",
            "sql",
            COMPARE_AND_SET,
            "A write is applied if the row still has the version that it was made from; needs no "
            "fence.",
            ROW_LOCK_DOC,
        ),
        Guard(
            "idempotency-key",
            "once",
            "sql",
            IDEMPOTENCY_KEY,
            ONCE_PROMISES,
            UNIQUE_DOC,
        ),
        Guard(UNGUARDED, "any", "sql", PLAIN, UNGUARDED_PROMISES, ROW_LOCK_DOC),
    ),
)
