"""A lock whose keys begin with a prefix that its user does not see."""

from __future__ import annotations

from typing import Any

import pytest

from lockbench.locks.base import (
    Acquired,
    Denied,
    Extendable,
    Extended,
    Freed,
    Granted,
    Hold,
    Lock,
    Observer,
    QueueObserver,
    Released,
    Shareable,
)
from lockbench.locks.shared.prefixed import prefixed

PREFIX = "team-a:"


class Told:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self.said.append(("extended", hold.key, hold.id, sent_ns, acknowledged_ns, valid_until_ns))

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self.said.append(("lost", hold.key, hold.id, alive_ns))

    def queued(self, key: str, hold_id: int, *, acknowledged_ns: int) -> None:
        self.said.append(("queued", key, hold_id, acknowledged_ns))


class Plain:
    """Grants every key once, and knows its holds by what it gave."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.held: dict[str, Hold] = {}

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        assert isinstance(self.observer, QueueObserver)
        self.observer.queued(key, hold_id, acknowledged_ns=7)
        if key in self.held:
            return Denied("held")
        hold = self.held[key] = Hold(hold_id, key, object())
        return Granted(hold, 5, 1, 2)

    def release(self, hold: Hold) -> Freed:
        assert self.held.pop(hold.key) is hold
        return Released()

    def close(self) -> None:
        self.held.clear()


class Both(Plain):
    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        assert self.held[hold.key] is hold
        self.observer.extended(hold, sent_ns=1, acknowledged_ns=2, valid_until_ns=3)
        self.observer.lost(hold, alive_ns=4)
        return Granted(hold, 5, 8, 9)

    def acquire_shared(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        return self.acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)


@pytest.mark.parametrize("kind", [Plain, Both])
def test_it_can_what_the_lock_can(kind: type[Plain]) -> None:
    lock = prefixed(PREFIX, Told(), kind)
    assert isinstance(lock, Extendable) == isinstance(lock, Shareable) == (kind is Both)


def test_the_lock_sees_the_prefix_and_its_user_does_not() -> None:
    told, inner = Told(), list[Both]()

    def connect(observer: Observer) -> Lock:
        inner.append(Both(observer))
        return inner[0]

    lock = prefixed(PREFIX, told, connect)
    got = lock.acquire("k0", hold_id=11, ttl_s=1, wait_s=0)
    assert isinstance(got, Granted)
    assert (got.hold.key, got.hold.id, got.fence, got.sent_ns) == ("k0", 11, 5, 1)
    assert list(inner[0].held) == ["team-a:k0"]
    assert lock.acquire("k0", hold_id=12, ttl_s=1, wait_s=0) == Denied("held")
    assert isinstance(lock, Extendable)
    longer = lock.extend(got.hold, 1)
    assert isinstance(longer, Granted)
    assert (longer.hold.key, longer.valid_until_ns) == ("k0", 9)
    assert isinstance(lock.release(longer.hold), Released)
    assert isinstance(lock, Shareable)
    shared = lock.acquire_shared("k0", hold_id=13, ttl_s=1, wait_s=0)
    assert isinstance(shared, Granted)
    assert isinstance(lock.release(shared.hold), Released)
    assert told.said == [
        ("queued", "k0", 11, 7),
        ("queued", "k0", 12, 7),
        ("extended", "k0", 11, 1, 2, 3),
        ("lost", "k0", 11, 4),
        ("queued", "k0", 13, 7),
    ]
