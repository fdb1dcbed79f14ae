"""The lock as a program uses it: hold it for the length of a block, or learn that one does not.

>>> with held(lock, "report", ttl_s=10, wait_s=2) as grant:
...     store(result, fence=grant.fence)

The block runs only while the lock was granted. Whatever else came of the acquire is raised before
the block begins, never returned: four well-known libraries run the block without the lock.

Does not guarantee that the block ends before its lease does. ``grant`` says until when it is good,
``Grant.extend`` lengthens it where the lock can, and ``Grant.lost`` tells once the service has said
that it is over, if the lock was made with the ``Losses`` that is given here as ``losses``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from locks.base import (
    Denied,
    Extendable,
    Extended,
    Granted,
    Hold,
    Lock,
    NotHeld,
    Unknown,
    new_hold_id,
)


class NotAcquired(Exception):
    """The lock was refused. Nothing is left behind."""


class MayBeAcquired(NotAcquired):
    """It is not known whether the lock was granted; if so, it is held until its lease ends."""


class NotReleased(Exception):
    """The block was left, and its hold was gone before or cannot be told to be gone. What the block
    did may have been done without the lock."""


class Losses:
    """An observer for ``Connect`` that remembers the promises, and which holds were lost. ``told``
    is called with each loss, from the lock's own thread; it must not block."""

    def __init__(self, told: Callable[[Hold], None] | None = None) -> None:
        self._told = told
        self._lost: set[int] = set()
        self._until_ns: dict[int, int] = {}

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        """The promise was renewed in the background."""
        self._until_ns[hold.id] = max(valid_until_ns, self._until_ns.get(hold.id, 0))

    def lost(self, hold: Hold) -> None:
        """The service announced that the hold is over."""
        self._lost.add(hold.id)
        if self._told is not None:
            self._told(hold)

    def is_lost(self, hold: Hold) -> bool:
        """Whether a hold was announced as lost."""
        return hold.id in self._lost

    def until_ns(self, hold: Hold) -> int:
        """How far a hold was renewed in the background; 0: never."""
        return self._until_ns.get(hold.id, 0)

    def forget(self, hold: Hold) -> None:
        """The hold was given back."""
        self._lost.discard(hold.id)
        self._until_ns.pop(hold.id, None)


@dataclass
class Grant:
    """A lock that is held, for its holder."""

    lock: Lock
    hold: Hold
    fence: int | None
    _valid_until_ns: int | None
    _losses: Losses = field(default_factory=Losses)

    @property
    def lost(self) -> bool:
        """Whether the hold is known to be over: told so, or its promise has passed."""
        if self._losses.is_lost(self.hold):
            return True
        until_ns = self.valid_until_ns
        return until_ns is not None and time.monotonic_ns() >= until_ns

    @property
    def valid_until_ns(self) -> int | None:
        """Until when the lock is promised, in monotonic time; None: without limit."""
        if self._valid_until_ns is None:
            return None
        return max(self._valid_until_ns, self._losses.until_ns(self.hold))

    def extend(self, ttl_s: float) -> bool:
        """Lets the hold live ``ttl_s`` from now; whether it does. An unknown outcome is a no, for
        the promise does not get longer by it. TypeError: this lock cannot be extended."""
        if not isinstance(self.lock, Extendable):
            raise TypeError(f"{type(self.lock).__name__} cannot be extended")
        answer: Extended = self.lock.extend(self.hold, ttl_s)
        if isinstance(answer, Granted):
            self._valid_until_ns = answer.valid_until_ns
        elif isinstance(answer, NotHeld):
            self._losses.lost(self.hold)
        return isinstance(answer, Granted)


def take(
    lock: Lock, key: str, *, ttl_s: float, wait_s: float, losses: Losses | None = None
) -> Grant:
    """Acquires ``key`` within ``wait_s`` (0: one try). Raises NotAcquired or MayBeAcquired."""
    match lock.acquire(key, hold_id=new_hold_id(), ttl_s=ttl_s, wait_s=wait_s):
        case Granted(hold=hold, fence=fence, valid_until_ns=valid_until_ns):
            return Grant(lock, hold, fence, valid_until_ns, losses or Losses())
        case Denied(reason=reason):
            raise NotAcquired(f"{key}: {reason}")
        case Unknown(reason=reason):
            raise MayBeAcquired(f"{key}: {reason}")


@contextmanager
def held(
    lock: Lock, key: str, *, ttl_s: float, wait_s: float, losses: Losses | None = None
) -> Iterator[Grant]:
    """Holds ``key`` for the block. Raises NotAcquired (or MayBeAcquired) before the block, and
    NotReleased after a block that ended in order but not within its hold; an error of the block
    itself comes first."""
    grant = take(lock, key, ttl_s=ttl_s, wait_s=wait_s, losses=losses)
    try:
        yield grant
    except BaseException:
        lock.release(grant.hold)
        raise
    else:
        answer = lock.release(grant.hold)
        if isinstance(answer, NotHeld):
            raise NotReleased(f"{key}: the hold was over before the block was")
        if isinstance(answer, Unknown):
            raise NotReleased(f"{key}: {answer.reason}")
    finally:
        if losses is not None:
            losses.forget(grant.hold)
