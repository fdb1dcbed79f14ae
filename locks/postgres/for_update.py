"""A row of PostgreSQL, locked for the time of a transaction.

Acquire begins a transaction and selects the row of the key ``FOR UPDATE``, under a ``lock_timeout``
or with ``NOWAIT`` for one try; the server queues who waits. Release commits. The fence is drawn
from a sequence in the same statement, once the row is locked; sequences are never rolled back, so a
holder that dies takes its number with it.
https://www.postgresql.org/docs/17/explicit-locking.html#LOCKING-ROWS

The commit waits for the disk, and with synchronous replication for the replica's too; while the
replica cannot be reached, no release is confirmed there.

Does not guarantee: that the lock of a holder that hangs becomes free; one holder after a failover;
that the fence grows over a crash that takes what was not yet on disk, or a failover. What errors
mean stands in ``lockbench.locks.postgres.recipe``.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, WAIT_S, Bare
from lockbench.locks.base import ANY, System
from lockbench.locks.postgres.expectations import FAILOVER_DOC, POSTGRES
from lockbench.locks.postgres.recipe import CREATORS_APART, OUTCOMES, PostgresRecipe, milliseconds
from lockbench.locks.postgres.session import Refused, Session, literal
from lockbench.locks.shared.expectations import may_break, with_changes

CREATE = f"""
    {CREATORS_APART};
    CREATE TABLE IF NOT EXISTS lockbench_locks (key text PRIMARY KEY);
    CREATE SEQUENCE IF NOT EXISTS lockbench_fences
"""
MAKE = "INSERT INTO lockbench_locks VALUES"
EXISTS = "SELECT to_regclass('lockbench_fences') IS NOT NULL"


class PostgresForUpdate(PostgresRecipe):
    """One client of the lock."""

    def prepare(self, session: Session) -> None:
        """Makes the table and the sequence where they are missing."""
        if session.ask(EXISTS) != [[True]]:
            session.ask(CREATE)

    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Locks the row; makes it first if there is none."""
        lock = _lock(literal(key), wait_s)
        try:
            rows = session.ask(lock, wait_s=wait_s)
            if not rows:
                session.ask(f"ROLLBACK; {MAKE} ({literal(key)}) ON CONFLICT DO NOTHING")
                rows = session.ask(lock, wait_s=wait_s)
        except Refused:
            session.ask("ROLLBACK")
            raise
        return int(rows[0][0])

    def give_back(self, session: Session, key: str) -> bool:
        session.ask("COMMIT")
        return True


def _lock(key: str, wait_s: float) -> str:
    """``key`` as it stands in a statement."""
    begin, how = "BEGIN", "FOR UPDATE NOWAIT"
    if wait_s > 0:
        begin, how = f"BEGIN; SET LOCAL lock_timeout = {milliseconds(wait_s)}", "FOR UPDATE"
    row = f"SELECT FROM lockbench_locks WHERE key = {key} {how}"
    return f"{begin}; SELECT nextval('lockbench_fences') FROM ({row}) AS locked"  # noqa: S608


SEQUENCE_DOC = (
    "PostgreSQL's src/backend/commands/sequence.c (nextval_internal): 32 numbers are logged ahead, "
    "and that record is only sure to be on disk with the next commit"
)

SYSTEM = System(
    name="postgres-for-update",
    suites={"capacity": (ANY,)},
    topologies=("postgres", "postgres-sync"),
    family="postgres",
    fence="a number from a sequence, drawn under the row's lock",
    waits_by="the server's queue",
    source="https://www.postgresql.org/docs/17/explicit-locking.html#LOCKING-ROWS",
    connect=PostgresForUpdate,
    outcomes=OUTCOMES,
    elsewhere=True,
    expectations=with_changes(
        POSTGRES,
        dict.fromkeys(
            ("kill", "restart", "rolling-restart"), may_break(SEQUENCE_DOC, "fence-order")
        ),
        {"failover": may_break(FAILOVER_DOC, "fence-order")},
    ),
    limited=False,
    bare=(Bare("postgres", (_lock(f"'{KEY}'", WAIT_S), "COMMIT")),),
)
