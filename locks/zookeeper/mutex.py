"""ZooKeeper: an ephemeral sequential node, and a watch on the one before it.

https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks, on kazoo as a client but
without kazoo's Lock. Acquire creates ``/lockbench/<key>/<guid>-lock-<number>`` and lists the
children; with the lowest number it holds the lock, otherwise it watches the next lower node only,
and when that is gone looks again. Both requests of the first step are sent at once: ZooKeeper keeps
a client's order, so the list contains the new node. Release deletes the node. The fence is the
node's czxid.

The guid is the hold's token. When a connection breaks, nobody knows whether the node was created;
after the reconnect the list tells (https://issues.apache.org/jira/browse/ZOOKEEPER-1262: without a
guid such a node blocks the queue for as long as the session lives). A server may lag behind, so
that every look but the first goes behind a ``sync``: it must reach the leader, which refuses an
expired session, and so proves that the list is not that of a server left behind.

The promise is the session: the send time of the last acknowledged request or heartbeat that the
leader must have been told of (``locks/libraries/shared/zookeeper_touches.py``), plus the timeout
that the server agreed to. kazoo's heartbeats make it longer during the hold.

Does not guarantee: that a holder stops when its session is over; or that a server which has just
lost its leader stops answering heartbeats at once. It may do so for syncLimit ticks, in which the
leader does not hear of them. A client that is cut off together with such a server, and from all
others, is promised up to that much too much.

What each error means (``OUTCOMES`` holds the same as data):

- Not connected: nothing is sent, no effect.
- The create was sent and not answered, or the connection broke: the wait goes on after a reconnect.
  When it is over, the node is looked for and deleted; if that is confirmed the outcome is gave-up,
  else Unknown.
- The session expired: the node is gone with it, certainly not held.
- Release: NoNode or an expired session is NotHeld; no answer or a broken connection is Unknown.

A node of unknown fate would block the queue for as long as the session lives, and the session lives
as long as the client. So after an Unknown the deletion goes on in the background until the server
confirms it or the session has ended (Curator calls it a guaranteed delete).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from lockbench.declarations.lazy import lazy
from lockbench.locks.bare import Bare
from lockbench.locks.base import (
    ANY,
    Acquired,
    Address,
    Deadline,
    Denied,
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
from lockbench.locks.shared.expectations import BY_MONOTONIC_CLOCK
from lockbench.locks.shared.tenures import zookeeper_entry
from lockbench.locks.zookeeper.expectations import ZOOKEEPER

if TYPE_CHECKING:
    from kazoo import exceptions

    from lockbench.locks.zookeeper import session
else:
    exceptions = lazy("kazoo.exceptions")
    session = lazy("lockbench.locks.zookeeper.session")

ROOT = "/lockbench"
MARK = "-lock-"


class NodeGoneError(Exception):
    """Our own node is not there any more."""


class Handle(NamedTuple):
    """What a hold needs to be given back."""

    path: str
    session_id: int


@dataclass(slots=True)
class Place:
    """One attempt's place in the queue."""

    parent: str
    token: str
    mark: str = MARK
    sent: bool = False  # whether a create was ever handed to kazoo
    node: str | None = None  # name of our node, once known
    czxid: int = 0

    def ours(self, children: Sequence[str]) -> str | None:
        """Our node's name among these."""
        return next((child for child in children if child.startswith(self.token)), None)

    @property
    def fence(self) -> int | None:
        """The fence of the grant."""
        return self.czxid

    def hinders(self, child: str) -> bool:
        """Whether a node with a lower number keeps us from the lock."""
        return MARK in child

    def before(self, children: Sequence[str]) -> str | None:
        """The path of the node to wait for, None when it is our turn."""
        lower = self.lower(children)
        return f"{self.parent}/{max(lower, key=number_of)}" if lower else None

    def lower(self, children: Sequence[str]) -> list[str]:
        """The nodes that are before ours."""
        if self.node is None or self.node not in children:
            raise NodeGoneError
        mine = number_of(self.node)
        return [child for child in children if number_of(child) < mine and self.hinders(child)]


class ZooKeeper:
    """One client of the lock, with a session of its own."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self._timeout_s = timeout_s
        self._observer = observer
        self._holds: dict[int, Hold] = {}
        self._closed = False
        self._session = session.Session(
            nodes, ttl_s, on_heartbeat=self._heartbeat, on_lost=self._lose_all
        )

    def acquire(
        self,
        key: str,
        *,
        hold_id: int,
        ttl_s: float,  # the session's, agreed on when it began
        wait_s: float,
    ) -> Acquired:
        """Queues for the key and waits for its turn."""
        place = self._place(parent_of(key), token_of(hold_id))
        return self._queue(place, key, hold_id, wait_s)

    def release(self, hold: Hold) -> Freed:
        self._holds.pop(hold.id, None)
        try:
            self._delete(hold.handle.path)
        except _gone():
            return NotHeld()
        except _unsure() as error:
            path: str = hold.handle.path
            self._clean_up_later(lambda: self._delete(path))
            return Unknown(f"delete: {_named(error)}")
        return Released()

    def close(self) -> None:
        """Ends the session, waiting no longer than the client timeout for the server's word."""
        self._closed = True
        self._holds.clear()
        self._session.dispose().join(self._timeout_s)

    # The queue.

    def _place(self, parent: str, token: str) -> Place:
        return Place(parent, token)

    def _queue(self, place: Place, key: str, hold_id: int, wait_s: float) -> Acquired:
        deadline = Deadline(wait_s)
        reason = "held" if wait_s <= 0 else "gave-up: others were before it"
        while True:
            last = deadline.over()
            try:
                ahead = self._look(place, max(self._timeout_s, deadline.left_s()))
                if ahead is None:
                    return self._turn_has_come(place, key, hold_id)
                if last:
                    return self._withdraw(place, reason)
                self._watch(place, ahead, deadline)
            except (NodeGoneError, exceptions.SessionExpiredError):
                return Denied("gave-up: the session expired while waiting")
            except _unsure() as error:
                if deadline.over():
                    return self._withdraw(place, f"gave-up: {_named(error)}")

    def _look(self, place: Place, connect_limit_s: float) -> str | None:
        """The node before ours. None: there is none, and ours was there at that moment."""
        self._require_connection(connect_limit_s)
        if not place.sent:
            return self._enter(place)
        children = self._children(place.parent)
        if place.node is None:
            found = place.ours(children)
            if found is None:  # the create that was not answered has not been carried out
                return self._enter(place)
            stat, children = self._request(
                self._zk.exists_async(f"{place.parent}/{found}"),
                self._zk.get_children_async(place.parent),
            )
            if stat is None:
                raise NodeGoneError
            place.node, place.czxid = found, stat.czxid
        return place.before(children)

    def _enter(self, place: Place) -> str | None:
        place.sent = True
        try:
            (path, stat), children = self._create_and_list(place)
        except exceptions.NoNodeError:
            self._request(self._zk.ensure_path_async(place.parent))
            (path, stat), children = self._create_and_list(place)
        place.node, place.czxid = path.rpartition("/")[2], stat.czxid
        return place.before(children)

    def _create_and_list(self, place: Place) -> list[Any]:
        return self._request(
            self._zk.create_async(
                f"{place.parent}/{place.token}{place.mark}",
                ephemeral=True,
                sequence=True,
                include_data=True,
            ),
            self._zk.get_children_async(place.parent),
        )

    def _watch(self, place: Place, ahead: str, deadline: Deadline) -> None:
        """Returns when that node changed, the connection did, or the wait is over."""
        gone = self._zk.handler.event_object()
        (stat,) = self._request(self._zk.exists_async(ahead, watch=lambda _: gone.set()))
        if stat is not None:
            gone.wait(max(0.0, deadline.left_s()))

    def _turn_has_come(self, place: Place, key: str, hold_id: int) -> Acquired:
        sent_ns, valid_until_ns = self._session.sent_ns, self._session.valid_until_ns
        if time.monotonic_ns() >= valid_until_ns:
            return self._withdraw(place, "gave-up: its turn came after its session")
        hold = Hold(hold_id, key, Handle(f"{place.parent}/{place.node}", self._session.id))
        self._holds[hold_id] = hold
        return Granted(hold, place.fence, sent_ns, valid_until_ns)

    def _withdraw(self, place: Place, reason: str) -> Acquired:
        if not place.sent:
            return Denied(reason.replace("gave-up", "no-effect", 1))
        try:
            self._remove(place)
        except _gone():
            pass
        except _unsure() as error:
            self._clean_up_later(lambda: self._remove(place))
            return Unknown(f"{reason}; clean-up: {_named(error)}")
        return Denied(reason)

    def _remove(self, place: Place) -> None:
        if place.node is None:
            self._require_connection(self._timeout_s)
            place.node = place.ours(self._children(place.parent))
        if place.node is not None:
            self._delete(f"{place.parent}/{place.node}")

    def _clean_up_later(self, attempt: Callable[[], None]) -> None:
        """Repeats the attempt in the background until the server has answered it or this client
        is closed."""

        def attempts() -> None:
            while not self._closed:
                try:
                    attempt()
                except _gone():
                    return
                except _unsure():
                    time.sleep(session.RECONNECT_S)
                else:
                    return

        self._zk.handler.spawn(attempts)

    # Requests.

    @property
    def _zk(self) -> Any:
        return self._session.client

    def _require_connection(self, limit_s: float) -> None:
        if not self._session.connected(limit_s):
            raise session.NoAnswerError("not connected")

    def _request(self, *requests: Any) -> list[Any]:
        return self._session.answers(self._timeout_s, *requests)

    def _children(self, parent: str) -> Sequence[str]:
        """The children, not older than this call."""
        _, children = self._request(
            self._zk.sync_async(parent), self._zk.get_children_async(parent)
        )
        return list(children)

    def _delete(self, path: str) -> None:
        self._require_connection(self._timeout_s)
        self._request(self._zk.delete_async(path))

    # The session.

    def _heartbeat(self, session_id: int, sent_ns: int, valid_until_ns: int) -> None:
        for hold in list(self._holds.values()):
            if hold.handle.session_id == session_id:
                self._observer.extended(
                    hold,
                    sent_ns=sent_ns,
                    acknowledged_ns=time.monotonic_ns(),
                    valid_until_ns=valid_until_ns,
                )

    def _lose_all(self) -> None:
        for hold in list(self._holds.values()):
            if self._holds.pop(hold.id, None) is not None:
                self._observer.lost(hold)


def _gone() -> tuple[type[Exception], ...]:
    """What says that our node is not there any more."""
    return exceptions.NoNodeError, exceptions.SessionExpiredError


def _unsure() -> tuple[type[Exception], ...]:
    """What a request ends with whose effect is not known."""
    return exceptions.KazooException, session.NoAnswerError


def parent_of(key: str) -> str:
    """The node that all places in the queue for a key are children of."""
    return f"{ROOT}/{quote(key, safe='')}"


def number_of(child: str) -> int:
    """The number that the server gave a node."""
    return int(child.rpartition("-")[2])


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


RECIPE = "https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks"

OUTCOMES = {
    "acquire: not connected": "Denied: no-effect",
    "create: NoAnswerError, then deleted": "Denied: gave-up",
    "create: ConnectionLoss, then deleted": "Denied: gave-up",
    "create: NoAnswerError, not deleted": "Unknown",
    "create: ConnectionLoss, not deleted": "Unknown",
    "create: SessionExpiredError": "Denied: gave-up",
    "acquire: own node gone": "Denied: gave-up",
    "release: not connected": "Unknown",
    "release: NoAnswerError": "Unknown",
    "release: ConnectionLoss": "Unknown",
    "release: NoNodeError": "NotHeld",
    "release: SessionExpiredError": "NotHeld",
}

# Killed under load a server needs 1.9 to 2.9 s to serve again, and two thirds of a session are
# promised: of one of three seconds too little would be left to outlive the restart.
OUTLIVES_A_RESTART = {"lease_ttl_s": 4.5}

SYSTEM = System(
    name="zookeeper",
    topologies=("zookeeper",),
    suites={"quick": (ANY,)},
    family="zookeeper",
    fence="czxid of the holder's node",
    waits_by="watch on the node just before",
    source=RECIPE,
    connect=ZooKeeper,
    outcomes=OUTCOMES,
    expectations={**ZOOKEEPER, **BY_MONOTONIC_CLOCK},
    pace=OUTLIVES_A_RESTART,
    entry=zookeeper_entry,
    bare=(Bare("zookeeper", (MARK,)),),
)
