"""One client of the load: does lock cycles and records every one of them.

A cycle is: acquire, read the guarded resource, hold, write the resource on top of what was read,
release. The write does not check whether the hold is still good: whether a lock kept its word must
show at the resource, not in the care of its user.

Half of the cycles of a lock that can be shared only read. A semaphore guards no resource.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from time import monotonic_ns

import gevent

from history.op import NULL, F, Mode, Type
from locks.base import (
    Acquired,
    Denied,
    Extendable,
    Extended,
    Granted,
    Hold,
    NotHeld,
    Released,
    Shareable,
    Unknown,
    new_hold_id,
)
from workloads.load import AIMED_KEY, FLOOR_KEY
from workloads.resource import Resource
from workloads.session import Session

log = logging.getLogger("lockbench.client")

# (f, milliseconds, error or None): what Locust's own statistics are told.
Report = Callable[[str, float, str | None], None]
# Spends the time of a hold.
Keep = Callable[[Granted], None]
READ_SHARE = 0.5


class Client:
    """Used by one greenlet. Takes a new process number after every unknown outcome, so that the
    processes of a history are sequential."""

    def __init__(self, session: Session, report: Report) -> None:
        self._session = session
        self._recorder = session.recorder
        self._pace = session.load.pace
        self._report = report
        self._process = session.recorder.new_process()
        self._held: dict[int, str] = {}
        self._resource = Resource(session.load.resource)
        self._lock = session.connect(self)
        self._shareable = self._lock if isinstance(self._lock, Shareable) else None
        self._guards = self._pace.touch_resource and session.system.kind != "semaphore"
        self._draws = random.Random(f"{session.load.seed} {self._process}")

    def cycle(
        self, key: str, keep: Keep, *, intended_ns: int = NULL, wait_s: float | None = None
    ) -> bool:
        """One cycle; returns whether the lock was granted. After a refusal or an unknown outcome it
        pauses for the declared time."""
        self._session.count_busy(+1)
        reads = self._only_reads(key)
        try:
            granted = self._acquire(
                key, intended_ns, self._pace.wait_s if wait_s is None else wait_s, reads=reads
            )
            if granted is None:
                gevent.sleep(self._pace.retry_pause_s)
                return False
            if self._guards:
                self._use(granted, keep, reads=reads)
            else:
                keep(granted)
            self._release(granted.hold)
        except Exception:
            # The resource is out of every fault's reach, so this is the bench's own failure.
            self._session.count_failed()
            raise
        else:
            return True
        finally:
            self._session.count_busy(-1)

    def hold_for(self, seconds: float) -> Keep:
        return lambda _: gevent.sleep(seconds)

    def close(self) -> None:
        self._resource.close()
        self._lock.close()

    # The observer of the lock (locks.base.Observer).

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        if hold.id not in self._held:
            return
        handle = self._recorder.invoke(
            self._process, F.EXTEND, hold.key, hold=hold.id, invoke_ns=sent_ns
        )
        self._recorder.complete(
            handle,
            Type.OK,
            sent_ns=sent_ns,
            valid_until_ns=valid_until_ns,
            complete_ns=acknowledged_ns,
        )

    def lost(self, hold: Hold) -> None:
        if hold.id in self._held:
            self._recorder.instant(self._process, F.LOST, hold.key, hold=hold.id)

    def _only_reads(self, key: str) -> bool:
        """Drawn for each cycle. What a fault is aimed at is held alone."""
        if self._shareable is None or key in {AIMED_KEY, FLOOR_KEY}:
            return False
        return self._draws.random() < READ_SHARE

    def _acquire(self, key: str, intended_ns: int, wait_s: float, *, reads: bool) -> Granted | None:
        ask, mode = self._lock.acquire, Mode.NONE
        if self._shareable is not None:
            mode = Mode.READ if reads else Mode.WRITE
            if reads:
                ask = self._shareable.acquire_shared
        hold_id = new_hold_id()
        began_ns = monotonic_ns()
        handle = self._recorder.invoke(
            self._process,
            F.ACQUIRE,
            key,
            hold=hold_id,
            mode=mode,
            intended_ns=intended_ns,
            invoke_ns=began_ns,
        )
        # Known before it is granted: a heartbeat may be acknowledged before this greenlet runs.
        self._held[hold_id] = key
        outcome: Acquired
        try:
            outcome = ask(key, hold_id=hold_id, ttl_s=self._pace.lease_ttl_s, wait_s=wait_s)
        except Exception as error:  # noqa: BLE001 - recorded as unknown, with its name
            outcome = _unexpected(error)
        told = "acquire"
        error_text: str | None = None
        match outcome:
            case Granted(fence=fence, sent_ns=sent_ns, valid_until_ns=valid_until_ns):
                ended_ns = self._recorder.complete(
                    handle,
                    Type.OK,
                    fence=NULL if fence is None else fence,
                    sent_ns=sent_ns,
                    valid_until_ns=NULL if valid_until_ns is None else valid_until_ns,
                )
            case Denied(reason=reason):
                del self._held[hold_id]
                # What a busy lock is supposed to answer: a line of its own, not a failure.
                told = "acquire, refused"
                ended_ns = self._recorder.complete(handle, Type.FAIL, error=reason)
            case Unknown(reason=reason):
                del self._held[hold_id]
                error_text = reason
                ended_ns = self._unknown(handle, reason)
        self._report(told, (ended_ns - began_ns) / 1e6, error_text)
        return outcome if isinstance(outcome, Granted) else None

    def extend(self, hold: Hold) -> None:
        """Extends a hold by a whole lease, once; records what came of it. Nothing happens where the
        lock has no extend."""
        if not isinstance(self._lock, Extendable):
            return
        handle = self._recorder.invoke(self._process, F.EXTEND, hold.key, hold=hold.id)
        outcome: Extended
        try:
            outcome = self._lock.extend(hold, self._pace.lease_ttl_s)
        except Exception as error:  # noqa: BLE001 - recorded as unknown, with its name
            outcome = _unexpected(error)
        match outcome:
            case Granted(sent_ns=sent_ns, valid_until_ns=valid_until_ns):
                self._recorder.complete(
                    handle,
                    Type.OK,
                    sent_ns=sent_ns,
                    valid_until_ns=NULL if valid_until_ns is None else valid_until_ns,
                )
            case NotHeld():
                self._recorder.complete(handle, Type.FAIL, error="not-held")
            case Unknown(reason=reason):
                self._unknown(handle, reason)

    def _use(self, granted: Granted, keep: Keep, *, reads: bool) -> None:
        hold, key = granted.hold, granted.hold.key
        handle = self._recorder.invoke(self._process, F.READ, key, hold=hold.id)
        version, applied_ns, _ = self._resource.read(key, hold.id)
        self._recorder.complete(handle, Type.OK, value=version, applied_ns=applied_ns)
        keep(granted)
        if reads:
            return
        handle = self._recorder.invoke(self._process, F.WRITE, key, hold=hold.id, version=version)
        made, applied_ns = self._resource.write(key, hold.id, version, granted.fence)
        self._recorder.complete(
            handle,
            Type.OK,
            value=made,
            fence=NULL if granted.fence is None else granted.fence,
            applied_ns=applied_ns,
        )

    def _release(self, hold: Hold) -> None:
        began_ns = monotonic_ns()
        handle = self._recorder.invoke(
            self._process, F.RELEASE, hold.key, hold=hold.id, invoke_ns=began_ns
        )
        try:
            outcome = self._lock.release(hold)
        except Exception as error:  # noqa: BLE001 - recorded as unknown, with its name
            outcome = _unexpected(error)
        self._held.pop(hold.id, None)
        error_text: str | None = None
        match outcome:
            case Released():
                ended_ns = self._recorder.complete(handle, Type.OK)
            case NotHeld():
                error_text = "not-held"
                ended_ns = self._recorder.complete(handle, Type.FAIL, error=error_text)
            case Unknown(reason=reason):
                error_text = reason
                ended_ns = self._unknown(handle, reason)
        self._report("release", (ended_ns - began_ns) / 1e6, error_text)

    def _unknown(self, handle: tuple[object, int], reason: str) -> int:
        ended_ns = self._recorder.complete(handle, Type.INFO, error=reason)  # type: ignore[arg-type]
        self._process = self._recorder.new_process()
        return ended_ns


def _unexpected(error: Exception) -> Unknown:
    """A lock must map its errors itself; one that escapes is the lock's bug, and is shown so."""
    log.error("the lock raised", exc_info=error)
    return Unknown(f"unexpected: {type(error).__name__}: {error}")
