"""One Redis, a random token, a time to live.

Acquire is ``SET key token NX PX ttl``; release and extend compare the token inside a script, so
they touch nobody else's hold. Waiting is polling, with jittered pauses that grow from POLL_MIN_S to
POLL_MAX_S. https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/

The promise starts when SET was sent: Redis starts the time to live when it runs the command, which
is later. Nothing is subtracted for drift, because client and server of a bench share one clock.

Does not guarantee: anything once the server has lost its data; that a holder stops when its time is
over; a fence.

What each error means (``OUTCOMES`` holds the same as data):

- No connection, or no answer to the PING on a new one: the command was never sent. An acquire is
  certainly without effect and, within its wait, tried again. A release or extend has no such
  answer to give, so it is Unknown.
- An error reply (OOM, LOADING, READONLY, MISCONF): Redis refused to run SET. No effect. Not so for
  a script, which may fail half way: Unknown.
- Timeout, broken connection, nonsense after SET was sent: it may have run, or may yet. Unknown, and
  no clean-up: a delete on a new connection can be overtaken by the SET.
- The reply comes after the promise has ended: given back, Denied when that is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from redis.exceptions import BusyLoadingError, RedisError, ResponseError

from locks.base import (
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
from locks.redis_link import DELETE_OWN, EXTEND_OWN, Link, NotSent

POLL_MIN_S = 0.002
POLL_MAX_S = 0.050

REFUSED = (BusyLoadingError, ResponseError)  # replies that say: the command was not run


class RedisToken:
    """One client of the lock."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # each grant names its own
        observer: Observer,  # nothing happens in the background
    ) -> None:
        (address,) = nodes
        self._link = Link(address, timeout_s=timeout_s)

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls until the key is free, the wait is over or the outcome is unknown."""
        deadline = Deadline(wait_s)
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S)
        while True:
            left_s = deadline.left_s()
            answer = self._try(key, hold_id, ttl_s)
            if not isinstance(answer, Denied) or wait_s <= 0:
                return answer
            if left_s <= 0:
                return Denied(f"gave-up: {answer.reason}")
            backoff.pause(deadline.left_s())

    def release(self, hold: Hold) -> Freed:
        """Deletes the key if it still carries this hold's token."""
        try:
            self._link.open()
            deleted = self._link.run(DELETE_OWN, hold.key, token_of(hold.id))
        except (NotSent, RedisError) as error:
            return Unknown(f"release: {_named(error)}")
        return Released() if deleted else NotHeld()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Starts the time to live again, if the key still carries this hold's token."""
        ttl_ms = _milliseconds(ttl_s)
        try:
            self._link.open()
            sent_ns = time.monotonic_ns()
            extended = self._link.run(EXTEND_OWN, hold.key, token_of(hold.id), ttl_ms)
        except (NotSent, RedisError) as error:
            return Unknown(f"extend: {_named(error)}")
        if not extended:
            return NotHeld()
        return Granted(hold, None, sent_ns, sent_ns + ttl_ms * 1_000_000)

    def close(self) -> None:
        """Drops the connection."""
        self._link.close()

    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        ttl_ms = _milliseconds(ttl_s)
        try:
            self._link.open()
            sent_ns = time.monotonic_ns()
            answer = self._link.call("SET", key, token_of(hold_id), "NX", "PX", ttl_ms)
        except (NotSent, *REFUSED) as error:
            return Denied(f"no-effect: {_named(error)}")
        except RedisError as error:
            return Unknown(f"SET: {_named(error)}")
        if answer is None:
            return Denied("held")
        hold = Hold(hold_id, key)
        valid_until_ns = sent_ns + ttl_ms * 1_000_000
        if time.monotonic_ns() >= valid_until_ns:
            return self._too_late(hold)
        return Granted(hold, None, sent_ns, valid_until_ns)

    def _too_late(self, hold: Hold) -> Acquired:
        freed = self.release(hold)
        if isinstance(freed, Unknown):
            return freed
        return Denied("gave-up: granted, but the answer came after the time to live")


def _milliseconds(ttl_s: float) -> int:
    return int(ttl_s * 1000)


def _named(error: Exception) -> str:
    return str(error) if isinstance(error, NotSent) else f"{type(error).__name__}: {error}"


OUTCOMES = {
    "acquire: no connection": "Denied: no-effect",
    "acquire: BusyLoadingError": "Denied: no-effect",
    "acquire: ResponseError": "Denied: no-effect",
    "acquire: TimeoutError": "Unknown",
    "acquire: ConnectionError": "Unknown",
    "acquire: InvalidResponse": "Unknown",
    "acquire: granted too late": "Denied: gave-up",
    "release: no connection": "Unknown",
    "release: NoScriptError": "Released",
    "release: BusyLoadingError": "Unknown",
    "release: ResponseError": "Unknown",
    "release: TimeoutError": "Unknown",
    "release: ConnectionError": "Unknown",
    "release: InvalidResponse": "Unknown",
}

LOCK_DOC = "https://redis.io/docs/latest/develop/clients/patterns/distributed-locks/"
PERSISTENCE_DOC = (
    "https://redis.io/docs/latest/operate/oss_and_stack/management/persistence/ (everysec may lose "
    "the last second of writes; while a background fsync runs, Redis also holds back write() to "
    "the file, so that a SIGKILL can lose what the page cache never saw)"
)
KLEPPMANN = "https://martin.kleppmann.com/2016/02/08/how-to-do-distributed-locking.html"
CONSEQUENCE = "two holders at once may or may not interleave their read-modify-writes"

# The holder sleeps through its time to live and acts when it wakes. Whether it also loses an update
# depends on whether it slept between its read and its write.
PAUSED_HOLDER = {
    "stale-holder": Expectation("breaks", KLEPPMANN, "documented-limit", tries=3),
    "lost-update": Expectation("may-break", KLEPPMANN, "documented-limit"),
}
# A restart that may have forgotten the newest write (see PERSISTENCE_DOC): a race, seldom lost.
KILLED = {
    "double-grant": Expectation("may-break", PERSISTENCE_DOC, "documented-limit"),
    "lost-update": Expectation("may-break", CONSEQUENCE, "documented-limit"),
}
# The first holder still trusts its promise when the emptied server grants the key again. Its own
# release finds a foreign token and is told not-held; its own acts lie within its promise. So
# neither wrong-release nor stale-holder follows.
WIPED = {
    "double-grant": Expectation("breaks", LOCK_DOC, "documented-limit", tries=3),
    "lost-update": Expectation("may-break", CONSEQUENCE, "documented-limit"),
}

SYSTEM = System(
    name="redis-token",
    topologies=("redis",),
    family="redis",
    fence=None,
    waits_by=f"polling, pauses of {POLL_MIN_S * 1e3:g} to {POLL_MAX_S * 1e3:g} ms",
    source=LOCK_DOC,
    connect=RedisToken,
    outcomes=OUTCOMES,
    expectations={"client-pause": PAUSED_HOLDER, "kill": KILLED, "wipe": WIPED},
)
