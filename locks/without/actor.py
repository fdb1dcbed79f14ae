"""Without a lock: an actor per account, with one mailbox.

A message goes to the actor of its key, which works on one after the other, knows in memory what it
has done, and writes each thing to the store before it answers. Who is the owner, and what becomes
of the keys when it is frozen or dies: ``lockbench.locks.without.mailbox``.
"""

from __future__ import annotations

import time
from typing import ClassVar

from lockbench.locks.postgres.session import Session, literal
from lockbench.locks.without.base import way
from lockbench.locks.without.mailbox import MailboxWay, Message, State


class Actor(MailboxWay):
    """One client."""

    name: ClassVar = "actor"
    create = """
        CREATE TABLE IF NOT EXISTS actor_done
        (key text, place bigint, thing bigint, by bigint, PRIMARY KEY (key, place))
    """
    entries = "SELECT key, thing, place, by FROM actor_done"

    def handle(self, session: Session, state: State, message: Message) -> Message:
        """Looks, works, writes."""
        key, thing = str(message["key"]), int(message["thing"])
        if thing in state.things:
            return {}
        time.sleep(float(message["seconds"]))
        place = len(state.things)
        session.ask(
            f"INSERT INTO actor_done VALUES ({literal(key)}, {place}, {thing}, {message['by']:d})"
        )
        state.things[thing] = place
        return {"place": place}


SYSTEM = way(
    "without-actor",
    Actor,
    waits_by="the actor's mailbox",
    source="Hewitt, Bishop and Steiger, A Universal Modular Actor Formalism, IJCAI 1973",
)
