"""PostgreSQL's advisory lock, held by a session.

Acquire is ``pg_advisory_lock`` under a ``lock_timeout``, or ``pg_try_advisory_lock`` for one try;
the server queues who waits. Release is ``pg_advisory_unlock``.
https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS

The key is a number of 64 bits, made from the name by SHA-256; two names that collide would share a
lock. The lock is in memory: nothing is written, so no commit waits for a disk or a replica, and a
replica that is promoted knows of no lock.

Does not guarantee: that the lock of a holder that hangs becomes free; one holder after a failover;
a fence. What errors mean stands in ``locks.postgres_recipe``.
"""

from __future__ import annotations

from locks.base import System
from locks.postgres_recipe import EXPECTATIONS, OUTCOMES, PostgresRecipe, milliseconds, number
from locks.postgres_session import LOCK_NOT_AVAILABLE, Refused, Session


class PostgresAdvisory(PostgresRecipe):
    """One client of the lock."""

    def take(self, session: Session, key: str, wait_s: float) -> int | None:
        """Takes the lock; it has no fence."""
        if wait_s > 0:
            limit = f"SET lock_timeout = {milliseconds(wait_s)}"
            session.ask(f"{limit}; SELECT pg_advisory_lock({number(key)})", wait_s=wait_s)
        elif session.ask(f"SELECT pg_try_advisory_lock({number(key)})") != [[True]]:
            raise Refused(LOCK_NOT_AVAILABLE, "held")
        return None

    def give_back(self, session: Session, key: str) -> bool:
        """Unlocks."""
        return session.ask(f"SELECT pg_advisory_unlock({number(key)})") == [[True]]


SYSTEM = System(
    name="postgres-advisory",
    topologies=("postgres", "postgres-sync"),
    family="postgres",
    fence=None,
    waits_by="the server's queue",
    source="https://www.postgresql.org/docs/17/explicit-locking.html#ADVISORY-LOCKS",
    connect=PostgresAdvisory,
    outcomes=OUTCOMES,
    expectations=EXPECTATIONS,
    limited=False,
)
