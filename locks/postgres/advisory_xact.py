"""PostgreSQL's advisory lock, held by a transaction.

Acquire begins a transaction and asks for ``pg_advisory_xact_lock`` under a ``lock_timeout``, or for
``pg_try_advisory_xact_lock`` for one try; the server queues who waits. Release commits: there is no
other way to give it back. https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS

A pooler gives a connection to somebody else only after the transaction, so behind PgBouncer this
lock is what it is without: in both modes.

Does not guarantee: what ``postgres-advisory`` does not. The transaction stays open for as long as
the lock is held. What errors mean stands in ``lockbench.locks.postgres.recipe``.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, WAIT_S, Bare
from lockbench.locks.base import System
from lockbench.locks.postgres.expectations import POSTGRES
from lockbench.locks.postgres.recipe import OUTCOMES, PostgresRecipe, milliseconds, number
from lockbench.locks.postgres.session import LOCK_NOT_AVAILABLE, Refused, Session


class PostgresAdvisoryXact(PostgresRecipe):
    """One client of the lock."""

    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Takes the lock; it has no fence."""
        try:
            rows = session.ask(_lock(key, wait_s) if wait_s > 0 else _try(key), wait_s=wait_s)
        except Refused:
            session.ask("ROLLBACK")
            raise
        if wait_s <= 0 and rows != [[True]]:
            session.ask("ROLLBACK")
            raise Refused(LOCK_NOT_AVAILABLE, "held", held=True)
        return None

    def give_back(self, session: Session, key: str) -> bool:
        session.ask("COMMIT")
        return True


def _lock(key: str, wait_s: float) -> str:
    limit = f"SET LOCAL lock_timeout = {milliseconds(wait_s)}"
    return f"BEGIN; {limit}; SELECT pg_advisory_xact_lock({number(key)})"


def _try(key: str) -> str:
    return f"BEGIN; SELECT pg_try_advisory_xact_lock({number(key)})"


SYSTEM = System(
    name="postgres-advisory-xact",
    topologies=("postgres", "postgres-sync", "pgbouncer-transaction", "pgbouncer-session"),
    family="postgres",
    fence=None,
    waits_by="the server's queue",
    source="https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS",
    connect=PostgresAdvisoryXact,
    outcomes=OUTCOMES,
    elsewhere=True,
    expectations=POSTGRES,
    limited=False,
    untested="only how long the server keeps it is not as with postgres-advisory",
    bare=(Bare("postgres", (_lock(KEY, WAIT_S), "COMMIT")),),
)
