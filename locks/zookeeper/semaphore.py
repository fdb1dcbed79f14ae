"""A semaphore on ZooKeeper: the queue of ``zookeeper``, in which the first n places hold a permit.

A waiter needs one of those before it to leave, whichever, so it watches them all, as in
``zookeeper-herd`` (Curator's InterProcessSemaphoreV2 does the same:
https://curator.apache.org/docs/recipes-shared-semaphore). All clients must be given the same n;
``zookeeper-semaphore:permits=5`` asks for five.

There is no fence: several holders act at once, and one number cannot tell them from a stale one.

Errors mean what they mean for ``zookeeper``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lockbench.declarations.parameters import Parameter, Value
from lockbench.locks.base import Address, Observer
from lockbench.locks.zookeeper import mutex as zookeeper
from lockbench.locks.zookeeper.herd import ZooKeeperHerd
from lockbench.locks.zookeeper.mutex import Place

PERMITS = Parameter("how many may hold at once", "3", ("1", "2", "3", "5", "10"))


@dataclass(slots=True)
class PermitPlace(Place):
    """One attempt's place in the queue."""

    permits: int = 1

    @property
    def fence(self) -> int | None:
        return None

    def before(self, children: Sequence[str]) -> str | None:
        """None while fewer are before us than there are permits."""
        enough = len(self.lower(children)) >= self.permits
        return Place.before(self, children) if enough else None


class ZooKeeperSemaphore(ZooKeeperHerd):
    """One client of the semaphore, with a session of its own."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,
        observer: Observer,
        permits: Value = PERMITS.default,
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        self._permits = int(permits)

    def _place(self, parent: str, token: str) -> Place:
        return PermitPlace(parent, token, permits=self._permits)


SYSTEM = zookeeper.SYSTEM.derived(
    name="zookeeper-semaphore",
    fence=None,
    waits_by="watch on the children of the semaphore",
    source="https://curator.apache.org/docs/recipes-shared-semaphore",
    connect=ZooKeeperSemaphore,
    kind="semaphore",
    permits=int(PERMITS.default),
    parameters={"permits": PERMITS},
)
