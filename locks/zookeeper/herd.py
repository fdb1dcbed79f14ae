"""``zookeeper``, but everybody watches the one node that all places in the queue are children of.

Whenever anybody comes or goes, all waiters are woken and all but one go back to sleep: n waiters
cost n messages for each grant and for each newcomer. The recipe warns of it: 'Call getChildren( )
on the lock node without setting the watch flag (this is important to avoid the herd effect)'
(https://zookeeper.apache.org/doc/current/recipes.html#sc_recipes_Locks). The promises are the same,
and so is the order; the cost is not.

Errors mean what they mean for ``zookeeper``.
"""

from __future__ import annotations

from lockbench.locks.base import Deadline
from lockbench.locks.zookeeper import mutex as zookeeper
from lockbench.locks.zookeeper.mutex import Place, ZooKeeper


class ZooKeeperHerd(ZooKeeper):
    """One client of the lock, with a session of its own."""

    def _watch(self, place: Place, ahead: str, deadline: Deadline) -> None:
        """Returns when a child came or went, or the connection did, or the wait is over."""
        changed = self._zk.handler.event_object()
        (children,) = self._request(
            self._zk.get_children_async(place.parent, watch=lambda _: changed.set())
        )
        # It may have become our turn before the watch was set.
        if place.before(children) is not None:
            changed.wait(max(0.0, deadline.left_s()))


SYSTEM = zookeeper.SYSTEM.derived(
    name="zookeeper-herd",
    waits_by="watch on the children of the lock",
    connect=ZooKeeperHerd,
    variant=True,
)
