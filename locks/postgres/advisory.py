"""PostgreSQL's advisory lock, held by a session.

Acquire is ``pg_advisory_lock`` under a ``lock_timeout``, or ``pg_try_advisory_lock`` for one try;
the server queues who waits. Release is ``pg_advisory_unlock``.
https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS

A wait whose time is over may have taken the lock all the same: who is granted it before the error
is raised keeps it (src/backend/storage/lmgr/proc.c, LockErrorCleanup), and an abort gives no
session's lock back. So a wait that ran out is followed by an unlock, which says false and warns
where nothing was held.

The key is a number of 64 bits, made from the name by SHA-256; two names that collide would share a
lock. The lock is in memory: nothing is written, so no commit waits for a disk or a replica, and a
replica that is promoted knows of no lock. Behind PgBouncer in session mode it is the same lock; in
transaction mode it is none (``postgres-advisory-pooled``). Migrations of Rails take it with one try
(https://github.com/rails/rails/blob/main/activerecord/lib/active_record/migration.rb).

Does not guarantee: that the lock of a holder that hangs becomes free; one holder after a failover;
a fence. What errors mean stands in ``lockbench.locks.postgres.recipe``.
"""

from __future__ import annotations

from lockbench.locks.bare import KEY, WAIT_S, Bare
from lockbench.locks.base import ANY, System
from lockbench.locks.postgres.expectations import POSTGRES
from lockbench.locks.postgres.recipe import OUTCOMES, PostgresRecipe, milliseconds, number
from lockbench.locks.postgres.session import LOCK_NOT_AVAILABLE, Refused, Session


class PostgresAdvisory(PostgresRecipe):
    """One client of the lock."""

    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Takes the lock; it has no fence."""
        if wait_s > 0:
            self._wait(session, key, wait_s)
        elif session.ask(f"SELECT pg_try_advisory_lock({number(key)})") != [[True]]:
            raise Refused(LOCK_NOT_AVAILABLE, "held", held=True)
        return None

    def _wait(self, session: Session, key: str, wait_s: float) -> None:
        try:
            session.ask(_lock(key, wait_s), wait_s=wait_s)
        except Refused as refused:
            if refused.held:
                session.ask(_unlock(key))
            raise

    def give_back(self, session: Session, key: str) -> bool:
        return session.ask(_unlock(key)) == [[True]]


def _lock(key: str, wait_s: float) -> str:
    return f"SET lock_timeout = {milliseconds(wait_s)}; SELECT pg_advisory_lock({number(key)})"


def _unlock(key: str) -> str:
    return f"SELECT pg_advisory_unlock({number(key)})"


SYSTEM = System(
    name="postgres-advisory",
    topologies=("postgres", "postgres-sync", "pgbouncer-session"),
    suites={"nightly": ("none", "failover"), "capacity": (ANY,)},
    family="postgres",
    fence=None,
    waits_by="the server's queue",
    source="https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS",
    connect=PostgresAdvisory,
    outcomes=OUTCOMES,
    elsewhere=True,
    expectations=POSTGRES,
    limited=False,
    bare=(Bare("postgres", (_lock(KEY, WAIT_S), _unlock(KEY))),),
)
