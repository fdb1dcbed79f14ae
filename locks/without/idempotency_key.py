"""Without a lock: an idempotency key.

Every thing has a key of its own, under a unique constraint, and is done in the transaction that
inserts it: the second of two finds the key taken. There is nothing to read first and nothing to try
again. The count that gives out places is a relative update; the store serializes it for the moment
of the statement.
"""

from __future__ import annotations

from lockbench.locks.postgres.session import Session
from lockbench.locks.without.base import (
    Done,
    DoneAlready,
    Outcome,
    StatementWay,
    Thinking,
    in_one_statement,
    way,
)


class IdempotencyKey(StatementWay):
    """One client."""

    create = """
        CREATE TABLE IF NOT EXISTS idem_keys (key text, thing bigint, PRIMARY KEY (key, thing));
        CREATE TABLE IF NOT EXISTS idem_state (key text PRIMARY KEY, version bigint NOT NULL);
        CREATE TABLE IF NOT EXISTS idem_done (key text, thing bigint, place bigint, by bigint)
    """
    entries = "SELECT key, thing, place, by FROM idem_done"

    def attempt(self, session: Session, key: str, thing: int, by: int, work: Thinking) -> Outcome:
        """Work, insert the key and what it stands for."""
        work.spend()
        rows = session.ask(
            f"""
            WITH fresh AS (
                INSERT INTO idem_keys VALUES ({key}, {thing}) ON CONFLICT DO NOTHING RETURNING key
            ), placed AS (
                INSERT INTO idem_state SELECT key, 1 FROM fresh
                ON CONFLICT (key) DO UPDATE SET version = idem_state.version + 1
                RETURNING version - 1 AS place
            )
            INSERT INTO idem_done SELECT {key}, {thing}, place, {by} FROM placed RETURNING place
            """
        )
        return Done(int(rows[0][0])) if rows else DoneAlready()


SOURCE = "https://www.postgresql.org/docs/17/sql-insert.html#SQL-ON-CONFLICT"
SYSTEM = way(
    "without-idempotency-key",
    IdempotencyKey,
    waits_by="nothing",
    source=SOURCE,
    expectations=in_one_statement(SOURCE),
)
