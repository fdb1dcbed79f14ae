"""Without a lock: event sourcing.

The state of a key is the fold of its append-only log. A client reads what it has not seen yet,
works, and appends at the next place; the place is unique, so of two that append there one has to
read on and begin again.
"""

from __future__ import annotations

from collections.abc import Sequence

from lockbench.locks.base import Address, Observer
from lockbench.locks.postgres.session import Refused, Session
from lockbench.locks.without.base import (
    UNIQUE_VIOLATION,
    Conflict,
    Done,
    DoneAlready,
    Outcome,
    StatementWay,
    Thinking,
    in_one_statement,
    way,
)


class EventLog(StatementWay):
    """One client, with the fold of every log that it has read."""

    create = """
        CREATE TABLE IF NOT EXISTS event_log
        (key text, place bigint, thing bigint, by bigint, PRIMARY KEY (key, place))
    """
    entries = "SELECT key, thing, place, by FROM event_log"

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        self._seen: dict[str, list[int]] = {}
        self._known: dict[str, set[int]] = {}

    def attempt(self, session: Session, key: str, thing: int, by: int, work: Thinking) -> Outcome:
        """Read on, work, append."""
        seen = self._seen.setdefault(key, [])
        known = self._known.setdefault(key, set())
        rows = session.ask(
            f"SELECT thing FROM event_log WHERE key = {key} AND place >= {len(seen)} ORDER BY place"
        )
        seen.extend(int(row[0]) for row in rows)
        known.update(int(row[0]) for row in rows)
        if thing in known:
            return DoneAlready()
        work.spend()
        place = len(seen)
        try:
            session.ask(f"INSERT INTO event_log VALUES ({key}, {place}, {thing}, {by})")
        except Refused as error:
            if error.code == UNIQUE_VIOLATION:
                return Conflict("no-effect: the log has grown")
            raise
        return Done(place)


SOURCE = "https://www.postgresql.org/docs/17/index-unique-checks.html"
SYSTEM = way(
    "without-event-log",
    EventLog,
    waits_by="trying again after a conflict",
    source=SOURCE,
    # A fold that was read before a failover may hold what is lost, and then no append fits.
    expectations=in_one_statement(SOURCE),
)
