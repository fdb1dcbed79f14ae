"""A lock as a program uses it: hold it for the length of a block, or learn that one does not.

>>> with Client("etcd", [Address("127.0.0.1", 2379)], ttl_s=10) as locks:
...     with locks.held("report", wait_s=2) as grant:
...         store(result, fence=grant.fence)

The block runs only while the lock was granted. Whatever else came of the acquire is raised before
the block begins, never returned: four well-known libraries run the block without the lock.

Does not guarantee that the block ends before its lease does. ``grant`` says until when it is good,
renewals in the background included; ``Grant.extend`` lengthens it where the lock can, and
``Grant.lost`` tells once it is known to be over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Self

from lockbench.locks.base import (
    Address,
    Denied,
    Extendable,
    Extended,
    Granted,
    Hold,
    Lock,
    NotHeld,
    Shareable,
    System,
    Unknown,
    new_hold_id,
)
from lockbench.locks.registry import find


class NotAcquired(Exception):
    """The lock was refused. Nothing is left behind, except as ``MayBeAcquired`` says."""


class MayBeAcquired(NotAcquired):
    """It is not known whether the lock was granted; if so, it is held until its lease ends."""


class NotReleased(Exception):
    """The lock was given back, and the hold was gone before or cannot be told to be gone. What was
    done under it may have been done without the lock."""


class _Known:
    """What the lock reports of holds in the background: how far renewed, and which are lost."""

    def __init__(self, told: Callable[[Hold], None] | None) -> None:
        self._told = told
        self._lost: set[int] = set()
        self._until_ns: dict[int, int] = {}

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self._until_ns[hold.id] = max(valid_until_ns, self._until_ns.get(hold.id, 0))

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self._lost.add(hold.id)
        if self._told is not None:
            self._told(hold)

    def renewed(self, hold: Hold, valid_until_ns: int | None) -> None:
        """The holder itself set how long the promise lasts."""
        self._until_ns[hold.id] = valid_until_ns or 0

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

    hold: Hold
    fence: int | None
    _valid_until_ns: int | None
    _lock: Lock
    _known: _Known
    _over: bool = False

    @property
    def lost(self) -> bool:
        """Whether the hold is known to be over: told so, given back, or its promise has passed."""
        if self._over or self._known.is_lost(self.hold):
            return True
        until_ns = self.valid_until_ns
        return until_ns is not None and time.monotonic_ns() >= until_ns

    @property
    def valid_until_ns(self) -> int | None:
        """Until when the lock is promised, in monotonic time; None: without limit."""
        if self._valid_until_ns is None:
            return None
        return max(self._valid_until_ns, self._known.until_ns(self.hold))

    def extend(self, ttl_s: float) -> bool:
        """Lets the hold live ``ttl_s`` from now; whether it does. An unknown outcome is a no, for
        the promise does not get longer by it. TypeError: this lock cannot be extended."""
        if not isinstance(self._lock, Extendable):
            raise TypeError(f"{type(self._lock).__name__} cannot be extended")
        answer: Extended = self._lock.extend(self.hold, ttl_s)
        if isinstance(answer, Granted):
            self._valid_until_ns = answer.valid_until_ns
            self._known.renewed(self.hold, answer.valid_until_ns)
        elif isinstance(answer, NotHeld):
            self._over = True
        return isinstance(answer, Granted)

    def release(self) -> None:
        """Gives the lock back. Raises NotReleased."""
        answer = self._lock.release(self.hold)
        self._over = True
        self._known.forget(self.hold)
        if isinstance(answer, NotHeld):
            raise NotReleased(f"{self.hold.key}: the hold was over before it was given back")
        if isinstance(answer, Unknown):
            raise NotReleased(f"{self.hold.key}: {answer.reason}")


class Client:
    """One client of a lock service, for one thread; a context manager that ends it.

    ``system`` is a name of ``lockbench list``, with parameters where it has some
    (``redis-token:backoff=fixed``), or a declaration. ``ttl_s`` is the lease of every grant,
    ``timeout_s`` the limit of every request. ``told`` is called with each loss that the lock itself
    notices (a watchdog's, a session's), from its own thread; it must not block. Raises
    LockNotFoundError, LockUnusableError.
    """

    def __init__(
        self,
        system: str | System,
        nodes: Sequence[Address],
        *,
        ttl_s: float,
        timeout_s: float = 1.0,
        told: Callable[[Hold], None] | None = None,
    ) -> None:
        declared = find(system) if isinstance(system, str) else system
        if declared.prepare is not None:
            declared.prepare()
        self._ttl_s = ttl_s
        self._known = _Known(told)
        self._lock = declared.connect(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=self._known)

    def take(self, key: str, *, wait_s: float, shared: bool = False) -> Grant:
        """Acquires ``key`` within ``wait_s`` (0: one try); ``shared`` asks to read only. Raises
        NotAcquired or MayBeAcquired. TypeError: this lock cannot be shared."""
        acquire = self._lock.acquire
        if shared:
            if not isinstance(self._lock, Shareable):
                raise TypeError(f"{type(self._lock).__name__} cannot be shared")
            acquire = self._lock.acquire_shared
        match acquire(key, hold_id=new_hold_id(), ttl_s=self._ttl_s, wait_s=wait_s):
            case Granted(hold=hold, fence=fence, valid_until_ns=valid_until_ns):
                return Grant(hold, fence, valid_until_ns, self._lock, self._known)
            case Denied(reason=reason):
                raise NotAcquired(f"{key}: {reason}")
            case Unknown(reason=reason):
                raise MayBeAcquired(f"{key}: {reason}")

    @contextmanager
    def held(self, key: str, *, wait_s: float, shared: bool = False) -> Iterator[Grant]:
        """Holds ``key`` for the block. Raises as ``take`` does before the block, and NotReleased
        after a block that ended in order but not within its hold; an error of the block itself
        comes first."""
        grant = self.take(key, wait_s=wait_s, shared=shared)
        try:
            yield grant
        except BaseException:
            with suppress(NotReleased):
                grant.release()
            raise
        grant.release()

    def close(self) -> None:
        """Drops the connections. What is still held ends with its lease, if it has one."""
        self._lock.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
