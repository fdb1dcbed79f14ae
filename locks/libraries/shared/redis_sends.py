"""redis-py's client as the adapters of its locks use it, and when it last sent a command that takes
or lengthens a lock.

The libraries do not tell, and the promise of a grant begins there (``locks/base.py``). redis-py
lets its user choose the class of a connection; this one notes the time and sends.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import redis
from lockbench_sidecar import Setup
from redis.backoff import NoBackoff
from redis.retry import Retry

NOTED = frozenset({"SET", "EVAL", "EVALSHA"})


class Sends:
    """What one client of the bench sent; every thread of the library sees its own."""

    def __init__(self) -> None:
        self._here = threading.local()

    def note(self) -> None:
        """A command is about to be sent."""
        self._here.last_ns = time.monotonic_ns()

    @property
    def last_ns(self) -> int:
        """When this thread last sent one; 0 before the first."""
        return getattr(self._here, "last_ns", 0)


def noting(client: redis.Redis, sends: Sends) -> redis.Redis:
    """The client itself, whose connections note in ``sends`` when they send."""
    pool: Any = client.connection_pool
    usual: Any = pool.connection_class

    class Noting(usual):  # type: ignore[misc]
        """A connection that notes the time."""

        def send_command(self, *command: Any, **options: Any) -> Any:
            if command[0] in NOTED:
                sends.note()
            return super().send_command(*command, **options)

    pool.connection_class = Noting
    return client


def settings(setup: Setup) -> dict[str, Any]:
    """How a client is made: as it comes, or ``safe`` without retries and with the client timeout on
    every request."""
    if not setup.safe:
        return {}
    return {
        "socket_timeout": setup.timeout_s,
        "socket_connect_timeout": setup.timeout_s,
        "retry": Retry(NoBackoff(), 0),
    }
