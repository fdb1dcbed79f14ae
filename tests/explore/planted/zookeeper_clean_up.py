"""A release on ZooKeeper that was not answered is not tried again in the background.

Shown where a holder gives back and the connection is reset before the request arrives: the node
stays for as long as the session, which the client keeps alive. leaked-lock.
"""

from __future__ import annotations

from collections.abc import Callable

from lockbench.locks.zookeeper import mutex
from lockbench.locks.zookeeper.mutex import ZooKeeper


class Wrong(ZooKeeper):
    def _clean_up_later(self, attempt: Callable[[], None]) -> None:
        """Leaves it to the end of the session."""


RIGHT = mutex.SYSTEM.derived(name="right-zookeeper-clean-up")
WRONG = RIGHT.derived(
    name="wrong-zookeeper-clean-up",
    connect=Wrong,
    not_owed={"paused_servers_make_a_release_unknown": "a fault that shows it"},
)
SYSTEMS = (RIGHT, WRONG)
