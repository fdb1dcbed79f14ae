"""What tests ask of locks, what they are told, and clients on real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lockbench.bench.duties import LEASE_S, Running
from lockbench.locks import registry
from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Granted,
    Hold,
    Lock,
    NoObserver,
    Observer,
    System,
    new_hold_id,
    token_of,
)
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import library_of

PATIENT_S: Final = 10.0  # to wait for a server that answers
LONG_S: Final = 30.0  # longer than a test: nothing ends by itself

T = TypeVar("T")


class Told:
    """An observer that remembers: to when promises were renewed, and what is lost since when."""

    def __init__(self) -> None:
        self.until_ns: list[int] = []
        self.losses: list[Hold] = []
        self.alive_ns: list[int | None] = []

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        assert sent_ns <= acknowledged_ns
        self.until_ns.append(valid_until_ns)

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self.losses.append(hold)
        self.alive_ns.append(alive_ns)

    def newest_ns(self, answer: Granted) -> int:
        """To when the hold is promised by now."""
        assert answer.valid_until_ns is not None
        return max([answer.valid_until_ns, *self.until_ns])


def one_of_each_class(*topologies: str) -> list[System]:
    """The locks on these that a process of this machine drives: the same class on other servers
    sends the same messages."""
    found: dict[object, System] = {}
    for system in registry.systems().values():
        here = not isinstance(library_of(system), ContainerLibrary)
        if here and not {*topologies}.isdisjoint(system.topologies):
            found.setdefault(system.connect, system)
    return list(found.values())


def said(answer: object) -> str:
    """An answer as ``System.outcomes`` has it."""
    if isinstance(answer, Denied):
        return f"Denied: {answer.reason.split(':')[0]}"
    return type(answer).__name__


def take(lock: Lock, wait_s: float = 0.0, *, ttl_s: float = LONG_S, key: str = "k") -> Acquired:
    return lock.acquire(key, hold_id=new_hold_id(), ttl_s=ttl_s, wait_s=wait_s)


def granted(lock: Lock, wait_s: float = 0.0, *, ttl_s: float = LONG_S, key: str = "k") -> Granted:
    answer = take(lock, wait_s, ttl_s=ttl_s, key=key)
    assert isinstance(answer, Granted), answer
    return answer


@contextmanager
def meanwhile(act: Callable[[], T]) -> Iterator[Future[T]]:
    """Does it in another thread during the block, which waits for it at its end. Raises what it
    raised."""
    with ThreadPoolExecutor(1) as pool:
        doing = pool.submit(act)
        yield doing
        doing.result(LONG_S)


@dataclass
class Room:
    """Real servers, a key that nobody else uses, and clients that are closed at the end."""

    running: Running
    open: ExitStack
    ttl_s: float = LEASE_S
    key: str = field(default_factory=lambda: f"test-{token_of(new_hold_id())}")

    def client(
        self,
        name: str,
        observer: Observer | None = None,
        *,
        at: Address | None = None,
        timeout_s: float = PATIENT_S,
        ttl_s: float | None = None,
    ) -> Lock:
        lock = registry.find(name).connect(
            [at] if at else self.running.nodes,
            timeout_s=timeout_s,
            ttl_s=ttl_s or self.ttl_s,
            observer=observer or NoObserver(),
        )
        self.open.callback(lock.close)
        return lock

    def take(self, lock: Lock, wait_s: float = 0.0, ttl_s: float | None = None) -> Acquired:
        return take(lock, wait_s, ttl_s=ttl_s or self.ttl_s, key=self.key)

    def granted(self, lock: Lock, wait_s: float = 0.0, ttl_s: float | None = None) -> Granted:
        return granted(lock, wait_s, ttl_s=ttl_s or self.ttl_s, key=self.key)
