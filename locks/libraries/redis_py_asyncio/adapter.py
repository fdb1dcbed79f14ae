"""The ``Lock`` of redis-py's asyncio client, as its user drives it; ``lock.py`` says what is set.

Each client has a loop of its own, which runs for as long as a call takes, in the client's thread.
The promise (``redis/asyncio/lock.py`` of 8.1.0) is that of redis-py's other ``Lock``: from when the
last SET, or script, was sent.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from lockbench_sidecar import (
    Acquired,
    Client,
    Extended,
    Freed,
    Granted,
    Released,
    Setup,
    refused,
    serve,
)
from redis.asyncio import Redis
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import LockError

NOTED = frozenset({"SET", "EVAL", "EVALSHA"})


class RedisPyAsyncio(Client):
    """One client: one ``Redis`` object, one ``Lock`` per hold."""

    not_held = (LockError,)

    def __init__(self, setup: Setup) -> None:
        self._safe = setup.safe
        self._sent_ns = 0
        self._loop = asyncio.new_event_loop()
        ((host, port),) = setup.nodes
        how: dict[str, Any] = {}
        if setup.safe:
            limits = {"socket_timeout": setup.timeout_s, "socket_connect_timeout": setup.timeout_s}
            how = {**limits, "retry": Retry(NoBackoff(), 0)}
        self._redis = Redis(host=host, port=port, **how)
        self._note()

    def _note(self) -> None:
        """As ``redis_sends`` does it, for connections that are awaited."""
        pool: Any = self._redis.connection_pool
        usual: Any = pool.connection_class
        client = self

        class Noting(usual):  # type: ignore[misc]
            """A connection that notes the time."""

            async def send_command(self, *command: Any, **options: Any) -> Any:
                if command[0] in NOTED:
                    client._sent_ns = time.monotonic_ns()
                return await super().send_command(*command, **options)

        pool.connection_class = Noting

    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        lock = self._redis.lock(key, timeout=ttl_s) if self._safe else self._redis.lock(key)
        how: dict[str, Any] = {"blocking_timeout": wait_s} if wait_s > 0 else {"blocking": False}
        if not self._loop.run_until_complete(lock.acquire(**how)):
            return refused(wait_s, "acquire() returned False")
        return self._granted(ttl_s, lock)

    def release(self, hold: str, lock: Lock) -> Freed:
        self._loop.run_until_complete(lock.release())
        return Released()

    def extend(self, hold: str, lock: Lock, ttl_s: float) -> Extended:
        """``extend`` with the time to live replaced."""
        self._loop.run_until_complete(lock.extend(ttl_s, replace_ttl=True))
        return self._granted(ttl_s)

    def close(self) -> None:
        self._loop.run_until_complete(self._redis.aclose())
        self._loop.close()

    def _granted(self, ttl_s: float, lock: Lock | None = None) -> Granted:
        until_ns = self._sent_ns + int(ttl_s * 1000) * 1_000_000 if self._safe else None
        return Granted(self._sent_ns, until_ns, lock=lock)


if __name__ == "__main__":
    serve("redis", RedisPyAsyncio)
