"""Without a lock: compare-and-set on a version.

Reads the state with its version, works, and writes on the condition that the version is still the
one read; else it was somebody else's turn, and everything begins again. What was done stands in the
same transaction, so a retry sees it.

``postgres-optimistic`` is the same way by the name that libraries for databases give it: optimistic
locking, a version column and no lock.
"""

from __future__ import annotations

from lockbench.locks.postgres.session import Session
from lockbench.locks.without.base import (
    ATOMIC_DOC,
    Conflict,
    Done,
    DoneAlready,
    Outcome,
    StatementWay,
    Thinking,
    in_one_statement,
    way,
)


class CompareAndSet(StatementWay):
    """One client."""

    create = """
        CREATE TABLE IF NOT EXISTS cas_state (key text PRIMARY KEY, version bigint NOT NULL);
        CREATE TABLE IF NOT EXISTS cas_done (key text, thing bigint, place bigint, by bigint);
        CREATE INDEX IF NOT EXISTS cas_done_by_thing ON cas_done (key, thing)
    """
    entries = "SELECT key, thing, place, by FROM cas_done"

    def attempt(self, session: Session, key: str, thing: int, by: int, work: Thinking) -> Outcome:
        """Read, work, write on condition."""
        done = f"EXISTS (SELECT FROM cas_done WHERE key = {key} AND thing = {thing})"
        read = f"SELECT version, {done} FROM cas_state WHERE key = {key}"
        rows = session.ask(read)
        if not rows:
            session.ask(f"INSERT INTO cas_state VALUES ({key}, 0) ON CONFLICT DO NOTHING")
            rows = session.ask(read)
        version, already = rows[0]
        if already:
            return DoneAlready()
        work.spend()
        won = f"""
            UPDATE cas_state SET version = version + 1
            WHERE key = {key} AND version = {version} RETURNING version - 1 AS place
        """
        rows = session.ask(
            f"WITH won AS ({won}) INSERT INTO cas_done "
            f"SELECT {key}, {thing}, place, {by} FROM won RETURNING place"
        )
        return Done(int(rows[0][0])) if rows else Conflict("no-effect: the version has moved on")


_SYSTEM = way(
    "without-compare-and-set",
    CompareAndSet,
    fence="the version itself",
    waits_by="trying again after a conflict",
    source=ATOMIC_DOC,
    expectations=in_one_statement(ATOMIC_DOC),
)

SYSTEMS = (_SYSTEM, _SYSTEM.derived(name="postgres-optimistic"))
