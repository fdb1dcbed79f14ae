"""What locks have in common that are held by a session of a database.

A lock lives as long as the session that took it. So a hold has a session of its own, and while
there are holds their sessions are looked at every LOOK_S: where the server, or whoever is in
between, has closed the connection, the hold is reported as lost. The server ends the session by
itself; the client can know as soon as the end of the connection has reached it. That was after the
last look that found the session alive, and the hold is reported as lost since then: what the
looking takes, or a process that is late with it, lengthens no promise. A connection that merely
hangs is not noticed; the server goes on holding the lock for it.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from lockbench.locks.base import (
    Acquired,
    Address,
    Backoff,
    Deadline,
    Denied,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    Unknown,
)

LOOK_S = 0.01
RETRY_MIN_S = 0.010  # between two attempts to reach a server
RETRY_MAX_S = 0.100
UNANSWERED = "release: an earlier one was not answered"


class NotSent(Exception):
    """There is no session, so nothing was asked."""


class Refused(Exception):
    """The server answered with an error; the session goes on."""

    def __init__(self, code: str, message: str, *, held: bool = False) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.held = held  # it says that somebody else has the lock


class Broken(Exception):
    """No answer, or the session ended: what was asked may have been done."""


class Session(Protocol):
    """One session; it is closed by whatever makes it unusable."""

    alive_ns: int
    """When the last look that found it alive began."""

    def ask(self, sql: str, *, wait_s: float = 0.0) -> list[list[Any]]:
        """The rows of the last statement, which may wait for a lock up to ``wait_s``. Raises
        Refused and Broken; the latter closes the session."""

    def gone(self) -> bool:
        """Whether the connection is closed, here or by the other side. Looks, and never waits."""

    def close(self) -> None:
        """Hangs up. Never raises, never waits."""


class Watch:
    """Looks at the sessions of holds and reports those that are gone, each once.

    One thread per client (a greenlet where gevent has replaced threads), started by the first hold.
    """

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._holds: dict[int, Hold] = {}
        self._some = threading.Event()
        self._closed = False
        self._thread: threading.Thread | None = None

    def add(self, hold: Hold) -> None:
        """From now on the hold's session is looked at; its handle is the session."""
        hold.handle.gone()  # the first look; should it be over already, the next one tells
        self._holds[hold.id] = hold
        self._some.set()
        if self._thread is None and not self._closed:
            self._thread = threading.Thread(target=self._look, name="watch", daemon=True)
            self._thread.start()

    def discard(self, hold: Hold) -> bool:
        """Not looked at any more. False: it was not, because it is released or lost."""
        known = self._holds.pop(hold.id, None) is not None
        if not self._holds:
            self._some.clear()
        return known

    def close(self) -> None:
        """Ends the thread, which may take one more look."""
        self._closed = True
        self._holds.clear()
        self._some.set()

    def _look(self) -> None:
        pause = threading.Event()
        while not self._closed:
            self._some.wait()
            for hold in list(self._holds.values()):
                if hold.handle.gone() and self.discard(hold):
                    hold.handle.close()
                    self._observer.lost(hold, alive_ns=hold.handle.alive_ns)
            pause.wait(LOOK_S)


S = TypeVar("S", bound=Session)


def prepared(session: S, prepare: Callable[[S], object]) -> S:
    """A session that was just opened, once ``prepare`` has asked of it what it needs. Raises
    NotSent, with the session closed."""
    try:
        prepare(session)
    except (Refused, Broken) as error:
        session.close()
        raise NotSent(f"preparing: {error}") from error
    return session


class Kept(Generic[S]):
    """The one session of a client, made anew where the last one is gone."""

    def __init__(self, make: Callable[[], S]) -> None:
        self._make = make
        self._open: S | None = None

    def get(self) -> S:
        """Raises what making one raises."""
        if self._open is None or self._open.gone():
            self.close()
            self._open = self._make()
        return self._open

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


class SessionRecipe(ABC, Generic[S]):
    """One client of such a lock."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # nothing here ends by itself
        observer: Observer,
    ) -> None:
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._free: list[S] = []
        self._observer = observer
        self._watch = Watch(observer)
        self._held: dict[int, S] = {}
        self._unsure: set[int] = set()  # holds whose release was not answered

    @abstractmethod
    def open(self) -> S:
        """A new session. Raises NotSent."""

    @abstractmethod
    def take(self, session: S, key: str, wait_s: float) -> int | None:
        """Takes the lock and returns its fence, if it has one. Raises Refused that is
        ``held`` when somebody else has it and ``wait_s`` is over; Refused, Broken."""

    @abstractmethod
    def give_back(self, session: S, key: str) -> bool:
        """Whether there was something to give back. Raises Refused, Broken."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Queues in the server. Only a server that cannot be reached is asked again."""
        deadline = Deadline(wait_s)
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            last = deadline.over()
            try:
                session = self._session()
            except NotSent as error:
                if last:
                    reason = f"no-effect: {error}"
                    return Denied(reason if wait_s <= 0 else f"gave-up: {reason}")
                backoff.pause(deadline.left_s())
            else:
                return self._take(session, key, hold_id, max(0.0, deadline.left_s()))

    def release(self, hold: Hold) -> Freed:
        """Gives the hold back. Its session serves the next one. Where it finds the session gone
        before the watch did, it says so in the same words: the hold was lost."""
        session = self._held.pop(hold.id, None)
        unnoticed = self._watch.discard(hold)
        if session is None:
            return NotHeld() if hold.id not in self._unsure else Unknown(UNANSWERED)
        if session.gone():
            session.close()
            if unnoticed:
                self._observer.lost(hold, alive_ns=session.alive_ns)
            return NotHeld()
        try:
            freed = self.give_back(session, hold.key)
        except (Refused, Broken) as error:
            session.close()
            self._unsure.add(hold.id)
            return Unknown(f"release: {error}")
        self._free.append(session)
        return Released() if freed else NotHeld()

    def close(self) -> None:
        """Ends all sessions, and with them all holds."""
        self._watch.close()
        for session in (*self._free, *self._held.values()):
            session.close()
        self._free.clear()
        self._held.clear()

    def _take(self, session: S, key: str, hold_id: int, wait_s: float) -> Acquired:
        sent_ns = time.monotonic_ns()
        try:
            fence = self.take(session, key, wait_s)
        except Refused as error:
            if error.held:
                self._free.append(session)
                return Denied("held" if wait_s <= 0 else "gave-up: held")
            session.close()
            return Denied(f"no-effect: {error}")
        except Broken as error:
            return Unknown(f"acquire: {error}")
        hold = Hold(hold_id, key, session)
        self._held[hold_id] = session
        self._watch.add(hold)
        return Granted(hold, fence, sent_ns, None)

    def _session(self) -> S:
        while self._free:
            session = self._free.pop()
            if not session.gone():
                return session
            session.close()
        return prepared(self.open(), self.prepare)

    def prepare(self, session: S) -> None:
        """What a new session needs before it can take the lock. Raises Refused, Broken."""
        del session
