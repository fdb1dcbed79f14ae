"""A place in ZooKeeper's queue that was not confirmed is created again, without looking for the
first one.

Shown where a key is acquired with a wait and the connection is reset at the answer to the create:
the client waits for its own first node, which stays for as long as its session. leaked-lock.
"""

from __future__ import annotations

from lockbench.locks.zookeeper import mutex
from lockbench.locks.zookeeper.mutex import Place, ZooKeeper


class Wrong(ZooKeeper):
    def _look(self, place: Place, connect_limit_s: float) -> str | None:
        if place.node is None:
            self._require_connection(connect_limit_s)
            return self._enter(place)
        return super()._look(place, connect_limit_s)


RIGHT = mutex.SYSTEM.derived(name="right-zookeeper-own-node")
WRONG = RIGHT.derived(name="wrong-zookeeper-own-node", connect=Wrong)
SYSTEMS = (RIGHT, WRONG)
