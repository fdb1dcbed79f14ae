"""A lock whose keys all begin with a prefix, which whoever uses it does not see.

For servers that are shared with others. Holds are told and taken by the names without it.
"""

from __future__ import annotations

from collections.abc import Callable

from lockbench.locks.base import (
    Acquired,
    Extendable,
    Extended,
    Freed,
    Granted,
    Hold,
    Lock,
    Observer,
    QueueObserver,
    Shareable,
)


def prefixed(prefix: str, observer: Observer, connect: Callable[[Observer], Lock]) -> Lock:
    """The lock that ``connect`` makes, with what it can do."""
    lock = connect(_Told(prefix, observer))
    kinds = {
        (False, False): _Prefixed,
        (True, False): _Extendable,
        (False, True): _Shareable,
        (True, True): _Both,
    }
    return kinds[isinstance(lock, Extendable), isinstance(lock, Shareable)](prefix, lock)


class _Told:
    """Tells the observer what the lock tells, by the names without the prefix."""

    def __init__(self, prefix: str, observer: Observer) -> None:
        self._prefix = prefix
        self._observer = observer

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self._observer.extended(
            self._plain(hold),
            sent_ns=sent_ns,
            acknowledged_ns=acknowledged_ns,
            valid_until_ns=valid_until_ns,
        )

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self._observer.lost(self._plain(hold), alive_ns=alive_ns)

    def queued(self, key: str, hold_id: int, *, acknowledged_ns: int) -> None:
        if isinstance(self._observer, QueueObserver):
            plain = key.removeprefix(self._prefix)
            self._observer.queued(plain, hold_id, acknowledged_ns=acknowledged_ns)

    def _plain(self, hold: Hold) -> Hold:
        return Hold(hold.id, hold.key.removeprefix(self._prefix), hold)


class _Prefixed:
    """The handle of a hold is the lock's own hold."""

    def __init__(self, prefix: str, lock: Lock) -> None:
        self._prefix = prefix
        self._lock = lock

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        return _outside(
            key,
            self._lock.acquire(self._prefix + key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s),
        )

    def release(self, hold: Hold) -> Freed:
        return self._lock.release(hold.handle)

    def close(self) -> None:
        self._lock.close()


class _Extendable(_Prefixed):
    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        assert isinstance(self._lock, Extendable)
        extended = self._lock.extend(hold.handle, ttl_s)
        return _granted(hold.key, extended) if isinstance(extended, Granted) else extended


class _Shareable(_Prefixed):
    def acquire_shared(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        assert isinstance(self._lock, Shareable)
        shared = self._lock.acquire_shared
        return _outside(
            key, shared(self._prefix + key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        )


class _Both(_Extendable, _Shareable):
    pass


def _outside(key: str, outcome: Acquired) -> Acquired:
    return _granted(key, outcome) if isinstance(outcome, Granted) else outcome


def _granted(key: str, inner: Granted) -> Granted:
    hold = Hold(inner.hold.id, key, inner.hold)
    return Granted(hold, inner.fence, inner.sent_ns, inner.valid_until_ns)
