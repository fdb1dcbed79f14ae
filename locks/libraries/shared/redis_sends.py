"""redis-py's client as the adapters of its locks use it, which knows when it last sent a command
that takes or lengthens a lock.

The libraries do not tell, and the promise of a grant begins there (``locks/base.py``). redis-py
lets its user choose the class of a connection; this one notes the time and sends. Every time, so
what counts is the last attempt of a retry (``_execute_command`` in redis/client.py of 8.1.0), and
after NOSCRIPT the second EVALSHA (``Script.__call__`` in redis/commands/core.py). The first attempt
has been connected and greeted before (``get_connection``). A later one connects in ``send_command``
itself and is noted before that: too early by the greeting, never too late.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import redis
from lockbench_sidecar import Client, Granted, Setup
from redis.backoff import NoBackoff
from redis.retry import Retry

NOTED = frozenset({"SET", "EVAL", "EVALSHA"})


class NotingRedis(redis.Redis):
    """A client whose connections note when they send. Every thread sees what it sent itself."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._here = here = threading.local()
        pool: Any = self.connection_pool
        usual: Any = pool.connection_class

        class Noting(usual):  # type: ignore[misc]
            """A connection that notes the time."""

            def send_command(self, *command: Any, **options: Any) -> Any:
                if command[0] in NOTED:
                    here.last_ns = time.monotonic_ns()
                return super().send_command(*command, **options)

        pool.connection_class = Noting

    @property
    def last_ns(self) -> int:
        """When this thread last sent one; 0 before the first."""
        return getattr(self._here, "last_ns", 0)

    def granted(self, ttl_ms: int | None, lock: Any = None) -> Granted:
        """What was sent last was a success, for so long; None: without an end."""
        until_ns = None if ttl_ms is None else self.last_ns + ttl_ms * 1_000_000
        return Granted(self.last_ns, until_ns, lock=lock)


class OnRedis(Client):
    """One client of a library on one Redis, with a ``Redis`` object of its own."""

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        ((host, port),) = setup.nodes
        self._redis = NotingRedis(host, port, **settings(setup))

    def close(self) -> None:
        self._redis.close()


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
