"""The session of a library that stands on kazoo: its holds, and what is told of them."""

from __future__ import annotations

from typing import Any

from kazoo.client import KazooClient
from kazoo_promise import Connection, Promise
from lockbench_sidecar import Freed, Granted, NotHeld, Released, Setup
from zookeeper_touches import Touches


class Session(Promise):  # type: ignore[misc]  # its module is checked under its other name
    """What is known of the current session, and which holds it carries."""

    def __init__(self, setup: Setup) -> None:
        super().__init__(Touches(setup.ttl_s))
        self._tell = setup.tell
        self._holds: dict[str, int] = {}  # hold → the session it was granted in

    def granted(self, hold: str, lock: Any) -> Granted:
        """It was granted just now; from now on heartbeats are told for it."""
        self._holds[hold] = self.id
        return Granted(self.sent_ns, self.valid_until_ns, lock=lock)

    def release(self, hold: str, lock: Any) -> Freed:
        """``release`` of kazoo or tooz: False says that it was not held."""
        self._holds.pop(hold, None)
        return Released() if lock.release() else NotHeld()

    def renewed(self) -> None:
        """Told for the holds of this session."""
        sent_ns, until_ns = self.sent_ns, self.valid_until_ns
        for hold, session_id in list(self._holds.items()):
            if session_id == self.id:
                self._tell.extended(hold, sent_ns=sent_ns, valid_until_ns=until_ns)

    def lost(self) -> None:
        """The client announced that the session is over."""
        for hold in list(self._holds):
            self._holds.pop(hold, None)
            self._tell.lost(hold)


def watched(client: KazooClient, session: Session) -> KazooClient:
    """The client itself, not yet started, with a connection handler that remembers when it sent
    what."""
    client._connection = Connection(client, session)  # noqa: SLF001
    return client
