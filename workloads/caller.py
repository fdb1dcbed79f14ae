"""Calls a lock, and records every call and all that the lock tells of its holds.

Guarantees: what is asked is in the history before it is asked, so a client that dies in a call
leaves it open; an error that a lock lets escape is an unknown outcome with its name.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from time import monotonic_ns
from typing import Final

from lockbench.history.op import NULL, F, Mode, Type
from lockbench.history.recorder import Recorder
from lockbench.locks.base import (
    Acquired,
    Denied,
    Extendable,
    Extended,
    Granted,
    Hold,
    Lock,
    NotHeld,
    Observer,
    Released,
    Shareable,
    System,
    Unknown,
    new_hold_id,
)
from lockbench.workloads.load import Pace
from lockbench.workloads.resource import or_null

log = logging.getLogger("lockbench.client")

# Reading a member of an Enum class costs as much as recording an operation.
ACQUIRE: Final = F.ACQUIRE
RELEASE: Final = F.RELEASE
OK: Final = Type.OK
EXCLUSIVE: Final = Mode.NONE

NOT_BEGUN: Final = "gave-up: it was never begun, because every client was busy"

# What Locust is told of an operation: (f, begin, end, error or None), monotonic ns.
Tell = Callable[[tuple[str, int, int, str | None]], None]


class Caller:
    """One client of a lock; ``connect`` makes it. Used by one greenlet or thread at a time. Takes a
    new process number after every unknown outcome, so that the processes of a history are
    sequential."""

    def __init__(
        self,
        recorder: Recorder,
        system: System,
        pace: Pace,
        connect: Callable[[Observer], Lock],
        tell: Tell,
    ) -> None:
        self.recorder = recorder
        self.pace = pace
        self._tell = tell
        self._permits = system.permits or 1
        self.process = recorder.new_process()
        # The longest lease that it was ever promised, at least the one that it asks for.
        self.lease_ns = int(1e9 * pace.lease_ttl_s)
        self._held: dict[int, int] = {}  # hold's id → when its acquire was invoked
        self._inside: dict[int, str] = {}  # hold's id → its key, from its grant to its release
        self._renewed: set[int] = set()  # holds that the lock renews itself, and has not lost
        # Of a lock that its holder may enter again: hold's id → who holds it. What is left after an
        # unknown outcome is given back by the same one, under a new process number.
        self._holder: dict[int, int] | None = {} if system.kind == "reentrant" else None
        self._lock = connect(self)
        self._shareable = self._lock if isinstance(self._lock, Shareable) else None

    def stopped(self) -> None:
        """Records that it does nothing more, where it was stopped inside a hold: nobody who is
        granted the lock then meets it there."""
        for hold_id, key in self._inside.items():
            handle = self.recorder.invoke(self.process, F.DEATH, key, hold=hold_id)
            self.recorder.complete(handle, OK)
        self._inside.clear()

    def close(self) -> None:
        """Drops the connections."""
        self._lock.close()

    # The observer of the lock (lockbench.locks.base.Observer).

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        asked_ns = self._held.get(hold.id)
        if asked_ns is None:
            return
        self._renewed.add(hold.id)
        # A heartbeat of the session may have been on its way already when the lock was asked for.
        began_ns = max(sent_ns, asked_ns)
        handle = self.recorder.invoke(
            self.process, F.EXTEND, hold.key, hold=hold.id, invoke_ns=began_ns
        )
        self.recorder.complete(
            handle, OK, sent_ns=sent_ns, valid_until_ns=valid_until_ns, complete_ns=acknowledged_ns
        )

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self._renewed.discard(hold.id)
        if hold.id in self._held:
            now_ns = monotonic_ns()
            handle = self.recorder.invoke(
                self.process, F.LOST, hold.key, hold=hold.id, invoke_ns=alive_ns or now_ns
            )
            self.recorder.complete(handle, OK, complete_ns=now_ns)

    def queued(self, key: str, hold_id: int, *, acknowledged_ns: int) -> None:
        handle = self.recorder.invoke(
            self.process, F.QUEUED, key, hold=hold_id, invoke_ns=acknowledged_ns
        )
        self.recorder.complete(handle, OK, complete_ns=acknowledged_ns)

    def acquire(
        self,
        key: str,
        wait_s: float | None = None,
        *,
        intended_ns: int = NULL,
        reads: bool = False,
    ) -> Granted | None:
        """Asks for a key once, and records what came of it. Waits as long as the pace says, unless
        ``wait_s`` says otherwise."""
        if wait_s is None:
            wait_s = self.pace.wait_s
        ask, mode = self._lock.acquire, EXCLUSIVE
        if self._shareable is not None:
            mode = Mode.READ if reads else Mode.WRITE
            if reads:
                ask = self._shareable.acquire_shared
        hold_id = new_hold_id()
        began_ns = monotonic_ns()
        handle = self.recorder.invoke(
            self.process,
            ACQUIRE,
            key,
            hold=hold_id,
            mode=mode,
            intended_ns=intended_ns,
            invoke_ns=began_ns,
        )
        if self._holder is not None:
            self._holder[hold_id] = self.process
        # Known before it is granted: a heartbeat may be acknowledged before this greenlet runs.
        self._held[hold_id] = began_ns
        outcome: Acquired
        try:
            outcome = ask(key, hold_id=hold_id, ttl_s=self.pace.lease_ttl_s, wait_s=wait_s)
        except Exception as error:  # noqa: BLE001 - recorded as unknown, with its name
            outcome = _unexpected(error)
        told = "acquire"
        error_text: str | None = None
        match outcome:
            case Granted(fence=fence, sent_ns=sent_ns, valid_until_ns=valid_until_ns):
                if valid_until_ns is not None and valid_until_ns - sent_ns > self.lease_ns:
                    self.lease_ns = valid_until_ns - sent_ns
                self._inside[hold_id] = key
                ended_ns = self.recorder.complete(
                    handle,
                    OK,
                    fence=or_null(fence),
                    sent_ns=sent_ns,
                    valid_until_ns=or_null(valid_until_ns),
                )
            case Denied(reason=reason):
                del self._held[hold_id]
                # What a busy lock is supposed to answer: a line of its own, not a failure.
                told = "acquire, refused"
                ended_ns = self.recorder.complete(handle, Type.FAIL, error=reason)
            case Unknown(reason=reason):
                del self._held[hold_id]
                error_text = reason
                ended_ns = self._unknown(handle, reason)
        self._tell((told, began_ns, ended_ns, error_text))
        return outcome if isinstance(outcome, Granted) else None

    def not_begun(self, key: str, intended_ns: int) -> None:
        """Records an acquire that was due and for which there was no time."""
        handle = self.recorder.invoke(
            self.process, ACQUIRE, key, hold=new_hold_id(), intended_ns=intended_ns
        )
        self.recorder.complete(handle, Type.FAIL, error=NOT_BEGUN)

    def extend(self, hold: Hold) -> None:
        """Extends a hold by a whole lease, once; records what came of it. Nothing happens where the
        lock has no extend."""
        if not isinstance(self._lock, Extendable):
            return
        began_ns = monotonic_ns()
        handle = self.recorder.invoke(
            self.process, F.EXTEND, hold.key, hold=hold.id, invoke_ns=began_ns
        )
        outcome: Extended
        error_text: str | None = None
        try:
            outcome = self._lock.extend(hold, self.pace.lease_ttl_s)
        except Exception as error:  # noqa: BLE001 - recorded as unknown, with its name
            outcome = _unexpected(error)
        match outcome:
            case Granted(sent_ns=sent_ns, valid_until_ns=valid_until_ns):
                ended_ns = self.recorder.complete(
                    handle, OK, sent_ns=sent_ns, valid_until_ns=or_null(valid_until_ns)
                )
            case NotHeld():
                error_text = "not-held"
                ended_ns = self.recorder.complete(handle, Type.FAIL, error=error_text)
            case Unknown(reason=reason):
                error_text = reason
                ended_ns = self._unknown(handle, reason)
        self._tell(("extend", began_ns, ended_ns, error_text))

    def touch(self, hold: Hold) -> None:
        """Records a write under a hold that the lock renews and has not called lost; its user has
        no end to look at. It is applied at once, by a resource that no fault reaches."""
        if hold.id not in self._renewed:
            return
        handle = self.recorder.invoke(self.process, F.WRITE, hold.key, hold=hold.id)
        self.recorder.complete(handle, OK, applied_ns=monotonic_ns())

    def release(self, hold: Hold) -> None:
        """Gives a hold back, and records what came of it."""
        began_ns = monotonic_ns()
        self._inside.pop(hold.id, None)
        holder = NULL if self._holder is None else self._holder.pop(hold.id, NULL)
        handle = self.recorder.invoke(
            self.process, RELEASE, hold.key, hold=hold.id, owner=holder, invoke_ns=began_ns
        )
        try:
            outcome = self._lock.release(hold)
        except Exception as error:  # noqa: BLE001 - recorded as unknown, with its name
            outcome = _unexpected(error)
        self._held.pop(hold.id, None)
        self._renewed.discard(hold.id)
        error_text: str | None = None
        match outcome:
            case Released():
                ended_ns = self.recorder.complete(handle, OK)
            case NotHeld():
                error_text = "not-held"
                ended_ns = self.recorder.complete(handle, Type.FAIL, error=error_text)
            case Unknown(reason=reason):
                error_text = reason
                ended_ns = self._unknown(handle, reason)
        self._tell(("release", began_ns, ended_ns, error_text))

    def take_all(self, key: str, wait_s: float) -> bool:
        """Asks for a key, or all permits of a semaphore at once, and gives it back; whether it was
        granted. A refusal takes ``wait_s`` too, also of a client that cannot even ask."""
        until_s = time.monotonic() + wait_s
        held: list[Granted] = []
        for _ in range(self._permits):
            granted = self.acquire(key, wait_s)
            if granted is None:
                break
            held.append(granted)
        for granted in held:
            self.release(granted.hold)
        if len(held) == self._permits:
            return True
        time.sleep(max(0.0, until_s - time.monotonic()))
        return False

    def _unknown(self, handle: tuple[object, int], reason: str) -> int:
        ended_ns = self.recorder.complete(handle, Type.INFO, error=reason)  # type: ignore[arg-type]
        self.process = self.recorder.new_process()
        return ended_ns


def _unexpected(error: Exception) -> Unknown:
    """A lock must map its errors itself; one that escapes is the lock's bug, and is shown so."""
    log.error("the lock raised", exc_info=error)
    return Unknown(f"unexpected: {type(error).__name__}: {error}")
