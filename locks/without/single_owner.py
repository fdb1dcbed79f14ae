"""Without a lock: a partitioned queue, each key with a single owner.

A client appends its message to the queue of its key, in the store, and is done with it; the owner
works on the queue in order and writes down what it has done with each. Nothing that was appended is
lost with the owner: the next one goes on where the last one wrote. Here the client also waits for
the answer, so that its latency can be compared. Who is the owner:
``lockbench.locks.without.mailbox``.
"""

from __future__ import annotations

import time
from typing import ClassVar

from lockbench.locks.postgres.session import Session, literal
from lockbench.locks.without.base import Outcome, way
from lockbench.locks.without.mailbox import MailboxWay, Message, State


class SingleOwner(MailboxWay):
    """One client."""

    name: ClassVar = "owner"
    appends: ClassVar = True
    create = """
        CREATE TABLE IF NOT EXISTS owner_queue
        (id bigserial PRIMARY KEY, key text, thing bigint, by bigint, seconds double precision);
        CREATE INDEX IF NOT EXISTS owner_queue_by_key ON owner_queue (key, id);
        CREATE TABLE IF NOT EXISTS owner_done
        (key text, place bigint, thing bigint, by bigint, PRIMARY KEY (key, place))
    """
    entries = "SELECT key, thing, place, by FROM owner_done"

    def before(self, message: Message) -> Outcome | None:
        """Appends it to the queue."""
        key, thing, by = literal(str(message["key"])), int(message["thing"]), int(message["by"])
        columns = "(key, thing, by, seconds)"
        values = f"({key}, {thing}, {by}, {float(message['seconds'])})"
        insert = f"INSERT INTO owner_queue {columns} VALUES {values}"
        answer = self.asked(lambda session: session.ask(insert))
        return None if isinstance(answer, list) else answer

    def handle(self, session: Session, state: State, message: Message) -> Message:
        """Works on everything in the queue, up to and with this message."""
        key = literal(str(message["key"]))
        rows = session.ask(
            f"SELECT id, thing, by, seconds FROM owner_queue WHERE key = {key} "
            f"AND id > {state.read_to} ORDER BY id"
        )
        for number, thing, by, seconds in rows:
            if int(thing) not in state.things:
                time.sleep(float(seconds))
                place = len(state.things)
                session.ask(f"INSERT INTO owner_done VALUES ({key}, {place}, {thing}, {by})")
                state.things[int(thing)] = place
                state.whose[int(thing)] = int(by)
            state.read_to = int(number)
        thing, by = int(message["thing"]), int(message["by"])
        return {"place": state.things[thing]} if state.whose.get(thing) == by else {}


SYSTEM = way(
    "without-single-owner",
    SingleOwner,
    waits_by="the owner's queue",
    source="https://kafka.apache.org/documentation/#intro_consumers: a partition has one consumer",
)
