"""my-lock: say here what it does, which commands take and free it, and what it does not guarantee.

As it stands: one Redis, a random token, a time to live. Acquire is ``SET key token NX PX ttl``;
release and extend compare the token in a script. A wait asks again and again.
https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress

from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from lockbench.locks.base import (
    Acquired,
    Address,
    Backoff,
    Deadline,
    Denied,
    Expectation,
    Extended,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
    token_of,
)

DELETE_OWN = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) "
    "else return 0 end"
)
EXTEND_OWN = (
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('pexpire', KEYS[1], ARGV[2]) "
    "else return 0 end"
)


class MyLock:
    """One client: connections of its own, used by one thread at a time."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        """Connects to nothing yet. ``observer`` is told of renewals and losses in the background,
        where there are such."""
        (node,) = nodes
        # One call is one attempt: a SET that is sent twice finds its own key and says "held".
        self._redis = Redis(
            host=node.host,
            port=node.port,
            socket_timeout=timeout_s,
            socket_connect_timeout=timeout_s,
            retry=Retry(NoBackoff(), 0),
        )

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Asks for the key, waiting up to ``wait_s`` (0: one try)."""
        deadline, backoff = Deadline(wait_s), Backoff(0.002, 0.05)
        ttl_ms = int(1000 * ttl_s)
        while True:
            try:
                self._redis.ping()  # what fails here was not sent, so it has no effect
            except RedisError as error:
                return Denied(f"no-effect: {type(error).__name__}: {error}")
            # The promise counts from before the command is sent: the server's time to live begins
            # later, so it ends later.
            sent_ns = time.monotonic_ns()
            try:
                taken = self._redis.set(key, token_of(hold_id), nx=True, px=ttl_ms)
            except RedisError as error:  # it may have been run, or may yet
                return Unknown(f"acquire: {type(error).__name__}: {error}")
            if taken:
                until_ns = sent_ns + ttl_ms * 1_000_000
                return Granted(Hold(hold_id, key), None, sent_ns, until_ns)
            if wait_s == 0:
                return Denied("held")
            if deadline.over():
                return Denied("gave-up: the wait is over")
            backoff.pause(deadline.left_s())

    def release(self, hold: Hold) -> Freed:
        """Deletes the key if it still carries this hold's token."""
        try:
            done = self._redis.eval(DELETE_OWN, 1, hold.key, token_of(hold.id))
        except RedisError as error:
            return Unknown(f"release: {type(error).__name__}: {error}")
        return Released() if done else NotHeld()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Starts the time to live again. Leave it out if the lock has no such call."""
        ttl_ms = int(1000 * ttl_s)
        sent_ns = time.monotonic_ns()
        try:
            done = self._redis.eval(EXTEND_OWN, 1, hold.key, token_of(hold.id), str(ttl_ms))
        except RedisError as error:
            return Unknown(f"extend: {type(error).__name__}: {error}")
        return Granted(hold, None, sent_ns, sent_ns + ttl_ms * 1_000_000) if done else NotHeld()

    def close(self) -> None:
        """Drops the connections; never raises."""
        with suppress(RedisError):
            self._redis.close()


SYSTEM = System(
    name="my-lock",
    topologies=("redis",),  # the first is the one that is meant; lockbench list has the others
    family="redis",  # of the server
    fence=None,  # or where its fence comes from, in words
    waits_by="polling, pauses of 2 to 50 ms",
    source="https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/",
    connect=MyLock,
    outcomes={  # each answer or error of the client, and what it is taken for
        "SET NX: OK": "Granted",
        "SET NX: nil, one try": "Denied: held",
        "SET NX: nil, the wait is over": "Denied: gave-up",
        "any error of the PING": "Denied: no-effect",
        "any error of the SET": "Unknown",
        "the script answers 1": "Released",
        "the script answers 0": "NotHeld",
        "any error of a script": "Unknown",
    },
    expectations={  # fault → verdict → what is expected, and who says so
        "wipe": {
            "double-grant": Expectation(
                "may-break",
                "a server that lost its data has lost the grant (same page)",
                "documented-limit",
            )
        }
    },
)
