"""Ways to do without a lock whose store is a file of SQLite, where it understands their statements:
appends and inserts. The folder of the file is the host of the first node."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from lockbench.locks.postgres.session import Broken, Refused, Session
from lockbench.locks.without.actor import Actor
from lockbench.locks.without.base import UNIQUE_VIOLATION, PostgresWay
from lockbench.locks.without.event_log import EventLog
from lockbench.locks.without.single_owner import SingleOwner
from tests.workloads.unsafe import system


class Stored(Session):
    """A session on a file; ``answers`` false: what is asked is done and not answered."""

    answers = True

    def __init__(self, file: Path) -> None:
        self._db = sqlite3.connect(file, timeout=10, check_same_thread=False, isolation_level=None)
        self._db.execute("PRAGMA synchronous = OFF")

    def ask(self, sql: str, *, wait_s: float = 0.0) -> list[list[Any]]:
        try:
            rows = [list(row) for row in self._db.execute(sql)]
        except sqlite3.IntegrityError as error:
            raise Refused(UNIQUE_VIOLATION, str(error)) from error
        if not self.answers and sql.startswith("INSERT"):
            raise Broken("no answer")
        return rows

    def gone(self) -> bool:
        return False

    def close(self) -> None:
        self._db.close()


class _InFile(PostgresWay):
    def new_session(self) -> Stored:
        session = Stored(Path(self._nodes[0].host) / "store")
        for statement in self.create.replace("bigserial", "integer").split(";"):
            session.ask(statement)
        return session


class StoredActor(_InFile, Actor):
    """See ``lockbench.locks.without.actor``."""


class StoredSingleOwner(_InFile, SingleOwner):
    """See ``lockbench.locks.without.single_owner``."""


class StoredEventLog(_InFile, EventLog):
    """See ``lockbench.locks.without.event_log``."""


ACTOR, SINGLE_OWNER, EVENT_LOG = (
    system(way, kind="none", topologies=("postgres",))
    for way in (StoredActor, StoredSingleOwner, StoredEventLog)
)
