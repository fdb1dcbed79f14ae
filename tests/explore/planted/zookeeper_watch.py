"""A waiter that looks and then sets its watch; what happened between is lost. The right one looks
at what the watch was set on.

Shown where a waiter is paused at the answer to its look until the holder has given back: it waits
beside a free key until its wait is over. lost-wakeup.
"""

from __future__ import annotations

from lockbench.locks.base import Deadline
from lockbench.locks.zookeeper import herd
from lockbench.locks.zookeeper.herd import ZooKeeperHerd
from lockbench.locks.zookeeper.mutex import Place


class Wrong(ZooKeeperHerd):
    def _watch(self, place: Place, ahead: str, deadline: Deadline) -> None:
        changed = self._zk.handler.event_object()
        self._request(self._zk.get_children_async(place.parent, watch=lambda _: changed.set()))
        changed.wait(max(0.0, deadline.left_s()))


RIGHT = herd.SYSTEM.derived(name="right-zookeeper-watch")
WRONG = RIGHT.derived(name="wrong-zookeeper-watch", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
