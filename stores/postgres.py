"""A row of PostgreSQL. The guard is a condition of the UPDATE, or a transaction that looks first.

Under READ COMMITTED an UPDATE waits for the row and then looks at its condition again, so one
statement is enough. SERIALIZABLE lets a program look, decide and write in three: where that cannot
have happened one after the other, one of the two is ended with 40001 and tries again. A thing that
is to be done once is a row of its own under a unique key.

The record is written by a trigger, in the transaction that writes the row. Without a record there
is no trigger.

Does not guarantee: that a write is still there after a failover to a replica that had not received
it (``postgres``); ``postgres-sync`` waits for the replica before it answers.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from lockbench.locks.base import Unknown
from lockbench.locks.postgres.recipe import CREATORS_APART
from lockbench.locks.postgres.session import Broken, NotSent, Session, literal
from lockbench.locks.postgres.session import Refused as Error
from lockbench.locks.shared.sessions import Kept, prepared
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

SERIALIZATION_FAILURE = "40001"

TABLE = """
    CREATE TABLE IF NOT EXISTS guarded
    (key text PRIMARY KEY, value text, fence bigint NOT NULL DEFAULT 0,
     version bigint NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS guarded_done
    (key text, thing bigint, value text, PRIMARY KEY (key, thing))
"""
NO_RECORD = """
    DROP TRIGGER IF EXISTS guarded_record ON guarded;
    DROP TRIGGER IF EXISTS guarded_done_record ON guarded_done
"""
# Made last; to make it again would wait for every write that is open, and stop all behind it.
RECORD_EXISTS = "SELECT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'guarded_record')"
RECORD = """
    CREATE TABLE IF NOT EXISTS guarded_written (key text, version bigint, value text);
    CREATE OR REPLACE FUNCTION guarded_write_down() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO guarded_written VALUES (NEW.key, NEW.version, NEW.value);
        RETURN NULL;
    END $$;
    CREATE TABLE IF NOT EXISTS guarded_done_written (key text, thing bigint, value text);
    CREATE OR REPLACE FUNCTION guarded_done_write_down() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO guarded_done_written VALUES (NEW.key, NEW.thing, NEW.value);
        RETURN NULL;
    END $$;
    CREATE OR REPLACE TRIGGER guarded_done_record AFTER INSERT OR UPDATE ON guarded_done
    FOR EACH ROW EXECUTE FUNCTION guarded_done_write_down();
    CREATE OR REPLACE TRIGGER guarded_record AFTER UPDATE ON guarded
    FOR EACH ROW EXECUTE FUNCTION guarded_write_down()
"""

FENCE = """\
UPDATE guarded SET value = $1, fence = $3, version = version + 1
 WHERE key = $2 AND fence < $3
RETURNING version"""

COMPARE_AND_SET = """\
UPDATE guarded SET value = $1, version = version + 1
 WHERE key = $2 AND version = $3
RETURNING version"""

IDEMPOTENCY_KEY = """\
INSERT INTO guarded_done (value, key, thing) VALUES ($1, $2, $3)
ON CONFLICT DO NOTHING
RETURNING thing"""

PLAIN = """\
UPDATE guarded SET value = $1, version = version + 1
 WHERE key = $2
RETURNING version"""


def write_if_newer(ask: Callable[[str], list[Any]], key: str, value: str, fence: int) -> int | None:
    """The version made, or None: refused. ``key`` and ``value`` are quoted already."""
    while True:
        try:
            ask("BEGIN ISOLATION LEVEL SERIALIZABLE")
            ((seen,),) = ask(f"SELECT fence FROM guarded WHERE key = {key}")
            if fence <= seen:
                ask("ROLLBACK")
                return None
            ((version,),) = ask(
                f"UPDATE guarded SET value = {value}, fence = {fence}, version = version + 1 "
                f"WHERE key = {key} RETURNING version"
            )
            ask("COMMIT")
            return int(version)
        except Error as error:
            ask("ROLLBACK")
            if error.code != SERIALIZATION_FAILURE:
                raise


class Postgres:
    """One client: a session on the node that takes writes."""

    def __init__(self, where: Where, guard: Guard, recorded: bool) -> None:
        self._where = where
        self._guard = guard
        self._recorded = recorded
        self._kept = Kept(self._new)

    def read(self, key: str) -> Seen:
        """Makes the row where there is none."""
        sql = f"SELECT version FROM guarded WHERE key = {literal(key)}"
        try:
            session = self._session()
            rows = session.ask(sql)
            if not rows:
                insert = f"INSERT INTO guarded (key) VALUES ({literal(key)})"
                session.ask(f"{insert} ON CONFLICT DO NOTHING")
                rows = session.ask(sql)
        except (Error, Broken) as error:
            raise Away(str(error)) from error
        return Seen(int(rows[0][0]))

    def write(self, write: Write) -> Outcome:
        session = self._session()
        try:
            version = self._written(session, write)
        except Error as error:
            raise Away(str(error)) from error
        except Broken as error:
            return Unknown(str(error))
        return Refused() if version is None else Applied(version)

    def done(self, key: str, thing: int) -> bool:
        sql = f"SELECT FROM guarded_done WHERE key = {literal(key)} AND thing = {thing:d}"
        try:
            return self._session().ask(f"SELECT EXISTS ({sql})") == [[True]]
        except (Error, Broken) as error:
            raise Away(str(error)) from error

    def written(self) -> list[Entry]:
        columns, table = "key, version", "guarded_written"
        if self._guard.rule == "once":
            columns, table = "key, thing", "guarded_done_written"
        try:
            rows = self._session().ask(f"SELECT {columns}, value FROM {table} ORDER BY {columns}")
        except (Error, Broken) as error:
            raise Away(str(error)) from error
        return [entry(str(key), int(made), int(made), str(value)) for key, made, value in rows]

    def close(self) -> None:
        self._kept.close()

    def _written(self, session: Session, write: Write) -> int | None:
        key, value = literal(write.key), literal(write.value)
        if self._guard.language == "python":
            return write_if_newer(session.ask, key, value, write.fence or 0)
        condition = {
            "newer": f", {write.fence or 0}",
            "unchanged": f", {write.seen.version}",
            "once": f", {write.thing or 0}",
        }.get(self._guard.rule, "")
        rows = session.ask(f"EXECUTE guarded_write ({value}, {key}{condition})")
        return int(rows[0][0]) if rows else None

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
        if not self._recorded:
            session.ask(f"{CREATORS_APART}; {TABLE}; {NO_RECORD}")
        elif session.ask(RECORD_EXISTS) != [[True]]:
            session.ask(f"{CREATORS_APART}; {TABLE}; {RECORD}")
        if self._guard.language == "sql":
            session.ask(f"PREPARE guarded_write AS {self._guard.snippet}")


READ_COMMITTED_DOC = (
    "https://www.postgresql.org/docs/17/transaction-iso.html#XACT-READ-COMMITTED: the second "
    "updater waits, and then 'the search condition of the command (the WHERE clause) is "
    "re-evaluated'"
)
ON_CONFLICT_DOC = (
    "https://www.postgresql.org/docs/17/sql-insert.html#SQL-ON-CONFLICT: 'ON CONFLICT DO NOTHING "
    "simply avoids inserting a row as its alternative action'"
)
SERIALIZABLE_DOC = "https://www.postgresql.org/docs/17/transaction-iso.html#XACT-SERIALIZABLE"
FAILOVER_DOC = (
    "https://www.postgresql.org/docs/17/warm-standby.html#STREAMING-REPLICATION: asynchronous, so "
    "what the standby had not received is lost when it is promoted"
)

STORE = Store(
    name="postgres",
    summary="a row of PostgreSQL",
    topologies=("postgres", "postgres-sync"),
    connect=Postgres,
    record="the rows that a trigger writes in the same transaction",
    loses={"postgres": FAILOVER_DOC},
    guards=(
        Guard(
            "fence",
            "newer",
            "sql",
            FENCE,
            "A write is applied if its fence ($3) is above every fence applied before.",
            READ_COMMITTED_DOC,
        ),
        Guard(
            "serializable",
            "newer",
            "python",
            inspect.getsource(write_if_newer).rstrip(),
            "The same, where the program looks and decides: whoever looked at what another one "
            "changed meanwhile is ended with 40001 and looks again.",
            SERIALIZABLE_DOC,
        ),
        Guard(
            "compare-and-set",
            "unchanged",
            "sql",
            COMPARE_AND_SET,
            "A write is applied if the row still has the version ($3) that it was made from; "
            "needs no fence.",
            READ_COMMITTED_DOC,
        ),
        Guard(
            "idempotency-key",
            "once",
            "sql",
            IDEMPOTENCY_KEY,
            ONCE_PROMISES,
            ON_CONFLICT_DOC,
        ),
        Guard(
            UNGUARDED,
            "any",
            "sql",
            PLAIN,
            UNGUARDED_PROMISES,
            "https://www.postgresql.org/docs/17/",
        ),
    ),
)
