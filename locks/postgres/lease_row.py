"""A row of PostgreSQL that says who holds a key and until when.

Acquire is one statement: it inserts the row of the key, or takes it over where its time has run
out. Release ends the time of the own row, extend sets it anew. Who waits polls. The row stays, and
its fence grows with every grant. Each statement is a transaction of its own, so the lock needs no
session and is the same behind PgBouncer in any mode.

This is how lock rows are made everywhere: ShedLock's JDBC provider with ``usingDbTime``
(https://github.com/lukas-krecan/ShedLock#jdbctemplate) and Spring Integration's JdbcLockRegistry
differ in their columns.

The time is the database's (``now()``), which it is told by its machine's wall clock. The promise is
the lease, from when the statement was sent: ``now()`` is when it began, which is later.

What each error means (``OUTCOMES`` holds the same as data):

- No session, because nobody answers, nobody takes writes, or it was refused: nothing was asked. No
  effect; within its wait an acquire tries again.
- An error reply to an acquire: the statement was rolled back. No effect.
- No answer in time, a broken connection, a session ended by the server: Unknown.
- The reply comes after the promise has ended: given back, Denied when that is confirmed.
- Release and extend: no such row is NotHeld, every error Unknown.

Does not guarantee: that a holder stops when its time is over; one holder after the primary's clock
was set forward, or after a failover to a replica that lacks the row.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from lockbench.locks.bare import KEY, TOKEN, TTL_MS, Bare
from lockbench.locks.base import (
    Acquired,
    Address,
    Backoff,
    Deadline,
    Denied,
    Extended,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
    token_of,
)
from lockbench.locks.postgres.expectations import LEASE_ROW, LEASE_ROW_DOC
from lockbench.locks.postgres.recipe import CREATORS_APART
from lockbench.locks.postgres.session import Broken, NotSent, Refused, Session, literal
from lockbench.locks.shared.sessions import Kept, prepared

POLL_MIN_S = 0.005
POLL_MAX_S = 0.050
CREATE = f"""
    {CREATORS_APART};
    CREATE TABLE IF NOT EXISTS lockbench_leases (
        key text PRIMARY KEY, owner text, expires_at timestamptz NOT NULL, fence bigint NOT NULL
    )
"""
EXISTS = "SELECT to_regclass('lockbench_leases') IS NOT NULL"
NOW = "now()"


class PostgresLeaseRow:
    """One client of the lock."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # each grant names its own
        observer: Observer,  # nothing happens in the background
    ) -> None:
        self._kept = Kept(lambda: prepared(Session(nodes, timeout_s=timeout_s), _make_table))

    def now(self) -> str:
        """The present, as it stands in a statement."""
        return NOW

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls until the row is free, the wait is over or the outcome is unknown."""
        deadline = Deadline(wait_s)
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S)
        while True:
            last = deadline.over()
            answer = self._try(key, hold_id, ttl_s)
            if not isinstance(answer, Denied) or wait_s <= 0:
                return answer
            if last:
                return Denied(f"gave-up: {answer.reason}")
            backoff.pause(deadline.left_s())

    def release(self, hold: Hold) -> Freed:
        try:
            freed = self._ask(_free(literal(hold.key), _owner(hold.id), self.now()))
        except (NotSent, Refused, Broken) as error:
            return Unknown(f"release: {error}")
        return Released() if freed else NotHeld()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Sets the whole time anew."""
        sent_ns = time.monotonic_ns()
        try:
            fences = self._ask(_lengthen(literal(hold.key), _owner(hold.id), ttl_s, self.now()))
        except (NotSent, Refused, Broken) as error:
            return Unknown(f"extend: {error}")
        return _granted(hold, int(fences[0][0]), sent_ns, ttl_s) if fences else NotHeld()

    def close(self) -> None:
        self._kept.close()

    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        try:
            session = self._kept.get()
        except NotSent as error:
            return Denied(f"no-effect: {error}")
        sent_ns = time.monotonic_ns()
        try:
            fences = session.ask(_take(literal(key), _owner(hold_id), ttl_s, self.now()))
        except Refused as error:
            return Denied(f"no-effect: {error}")
        except Broken as error:
            return Unknown(f"acquire: {error}")
        if not fences:
            return Denied("held")
        granted = _granted(Hold(hold_id, key), int(fences[0][0]), sent_ns, ttl_s)
        assert granted.valid_until_ns is not None
        if time.monotonic_ns() < granted.valid_until_ns:
            return granted
        freed = self.release(granted.hold)
        if isinstance(freed, Unknown):
            return freed
        return Denied("gave-up: granted, but the answer came after the lease")

    def _ask(self, sql: str) -> list[list[Any]]:
        return self._kept.get().ask(sql)


def _make_table(session: Session) -> None:
    """Raises Refused, Broken."""
    if session.ask(EXISTS) != [[True]]:
        session.ask(CREATE)


def _granted(hold: Hold, fence: int, sent_ns: int, ttl_s: float) -> Granted:
    return Granted(hold, fence, sent_ns, sent_ns + int(1000 * ttl_s) * 1_000_000)  # as in _until


def _owner(hold_id: int) -> str:
    return f"'{token_of(hold_id)}'"


# Keys and owners as they stand in a statement.


def _take(key: str, owner: str, ttl_s: float, now: str) -> str:
    until = _until(ttl_s, now)
    return (
        f"INSERT INTO lockbench_leases AS held VALUES ({key}, {owner}, {until}, 1) "  # noqa: S608
        "ON CONFLICT (key) DO UPDATE SET owner = EXCLUDED.owner, expires_at = EXCLUDED.expires_at, "
        f"fence = held.fence + 1 WHERE held.expires_at <= {now} RETURNING fence"
    )


def _free(key: str, owner: str, now: str) -> str:
    return f"UPDATE lockbench_leases SET expires_at = '-infinity' {_mine(key, owner, now)}"  # noqa: S608


def _lengthen(key: str, owner: str, ttl_s: float, now: str) -> str:
    until = _until(ttl_s, now)
    return f"UPDATE lockbench_leases SET expires_at = {until} {_mine(key, owner, now)}"  # noqa: S608


def _mine(key: str, owner: str, now: str) -> str:
    return f"WHERE key = {key} AND owner = {owner} AND expires_at > {now} RETURNING fence"


def _until(ttl_s: float, now: str) -> str:
    return f"{now} + interval '{int(1000 * ttl_s)} milliseconds'"


OUTCOMES = {
    "acquire: no server": "Denied: no-effect",
    "acquire: nobody takes writes": "Denied: no-effect",
    "acquire: session refused": "Denied: no-effect",
    "acquire: held": "Denied: held",
    "acquire: error reply": "Denied: no-effect",
    "acquire: silent": "Unknown",
    "acquire: closes": "Unknown",
    "acquire: nonsense": "Unknown",
    "acquire: terminated": "Unknown",
    "acquire: granted too late": "Denied: gave-up",
    "release: no such row": "NotHeld",
    "release: error reply": "Unknown",
    "release: silent": "Unknown",
    "release: closes": "Unknown",
    "release: terminated": "Unknown",
    "extend: no such row": "NotHeld",
    "extend: error reply": "Unknown",
}

SYSTEM = System(
    name="postgres-lease-row",
    topologies=("postgres", "postgres-sync", "pgbouncer-transaction"),
    family="postgres",
    fence="a number in the row, one more with each grant",
    waits_by=f"polling, pauses of {POLL_MIN_S * 1e3:g} to {POLL_MAX_S * 1e3:g} ms",
    source=LEASE_ROW_DOC,
    connect=PostgresLeaseRow,
    outcomes=OUTCOMES,
    writes_besides="the table lockbench_leases",
    pace={"lease_ttl_s": 7.0},  # a server that was killed recovers for seconds
    expectations=LEASE_ROW,
    bare=(
        Bare(
            "postgres",
            (
                _take(f"'{KEY}'", f"'{TOKEN}'", TTL_MS / 1000, NOW),
                _free(f"'{KEY}'", f"'{TOKEN}'", NOW),
            ),
        ),
    ),
)
