"""ZooKeeper's shared lock: readers together, writers alone, all in one queue.

https://zookeeper.apache.org/doc/current/recipes.html#Shared+Locks: nodes are marked ``read`` or
``write``. A writer waits for the next lower node, a reader for the next lower *write* node. Nobody
overtakes, so a writer is not starved. Everything else is ``zookeeper``.

A writer's fence is the czxid of its node. Readers have none: several of them read at once, and the
resource would refuse all but the last.

Errors mean what they mean for ``zookeeper``.
"""

from __future__ import annotations

from dataclasses import dataclass

from lockbench.locks.bare import Bare
from lockbench.locks.base import Acquired, token_of
from lockbench.locks.zookeeper import mutex as zookeeper
from lockbench.locks.zookeeper.mutex import Place, ZooKeeper, parent_of

READ = "-read-"
WRITE = "-write-"


@dataclass(slots=True)
class ReadWritePlace(Place):
    """One attempt's place in the queue; ``mark`` says for what."""

    @property
    def fence(self) -> int | None:
        """Writers only."""
        return self.czxid if self.mark == WRITE else None

    def hinders(self, child: str) -> bool:
        """Writers hinder everybody, readers only writers."""
        return WRITE in child or (self.mark == WRITE and READ in child)


class ZooKeeperReadWrite(ZooKeeper):
    """One client of the lock, with a session of its own. ``acquire`` is for writing."""

    def acquire_shared(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Queues for reading."""
        place = ReadWritePlace(parent_of(key), token_of(hold_id), READ)
        return self._queue(place, key, hold_id, wait_s)

    def _place(self, parent: str, token: str) -> Place:
        return ReadWritePlace(parent, token, WRITE)


SYSTEM = zookeeper.SYSTEM.derived(
    name="zookeeper-read-write",
    fence="czxid of a writer's node",
    waits_by="watch on the node just before; of a reader, on the writer just before",
    source="https://zookeeper.apache.org/doc/current/recipes.html#Shared+Locks",
    connect=ZooKeeperReadWrite,
    kind="read-write",
    bare=(Bare("zookeeper", (WRITE,)),),
)
