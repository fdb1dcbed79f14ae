"""What the recipes on one Redis share: waiting by polling, and what the errors of a try mean.

A recipe says which commands take the lock (``take``) and which give it back (``free``).

The promise starts when the command was sent that started the time to live: Redis does that when it
runs it, which is later (SET in src/t_string.c of 8.0, setGenericCommand; PEXPIRE in src/expire.c,
expireGenericCommand). Where a script was not known to the server, that is the EVAL; where a node
answered MOVED, what was sent to the next one; never what is sent afterwards (WAIT). Nothing is
subtracted for drift, because client and server of a bench share one clock.

What each error means (``OUTCOMES`` and ``SCRIPT_OUTCOMES`` hold the same as data):

- No connection, or no answer to the PING on a new one: the command was never sent. An acquire is
  certainly without effect and, within its wait, tried again. A release has no such answer to give,
  so it is Unknown.
- An error reply (OOM, LOADING, READONLY, MISCONF): Redis refused to run a command. No effect. Not
  so for a script, which may fail half way: Unknown.
- Timeout, broken connection, nonsense after the command was sent: it may have run, or may yet.
  Unknown, and no clean-up: a delete on a new connection can be overtaken by it.
- The reply comes after the promise has ended: given back, Denied when that is confirmed.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lockbench.declarations.parameters import Parameter
from lockbench.locks.base import (
    BACKOFFS,
    Acquired,
    Address,
    Backoff,
    BackoffStyle,
    Deadline,
    Denied,
    Freed,
    Granted,
    Hold,
    NotHeld,
    Observer,
    Released,
    Unknown,
    token_of,
)
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import Link, NotSent

POLL_MIN_S = 0.002
POLL_MAX_S = 0.050
WAITS_BY = f"polling, pauses of {POLL_MIN_S * 1e3:g} to {POLL_MAX_S * 1e3:g} ms"
PARAMETERS: Mapping[str, Parameter] = {
    "backoff": Parameter("how the pauses between two polls are drawn", BACKOFFS[0], BACKOFFS)
}


class Unsure(Exception):
    """The key was set; what became of it is not known."""


class Taken(NamedTuple):
    """A grant as the recipe's commands made it; it is the handle of the hold. ``sent_ns``: when the
    command was sent that started its time to live."""

    sent_ns: int
    fence: int | None = None
    of: Any = None  # what the recipe itself needs to give it back


class RedisRecipe(ABC):
    """One client of a lock on one Redis."""

    by_script = False  # whether ``take`` runs a script, which may fail half way
    limited = True  # whether a grant ends by itself

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # each grant names its own
        observer: Observer,
        backoff: BackoffStyle = "jitter",
    ) -> None:
        self._timeout_s = timeout_s
        self._observer = observer
        self._link = self.link(nodes, timeout_s)
        self._backoff: BackoffStyle = backoff

    def link(self, nodes: Sequence[Address], timeout_s: float) -> Link:
        """How the server is reached that keeps the lock."""
        (address,) = nodes
        return Link(address, timeout_s=timeout_s)

    @abstractmethod
    def take(self, key: str, token: str, ttl_ms: int) -> Taken | None:
        """One try; None: somebody else has it. Raises RedisError."""

    @abstractmethod
    def free(self, hold: Hold) -> bool:
        """Whether there was something to give back. Raises RedisError."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls until the key is free, the wait is over or the outcome is unknown."""
        deadline = Deadline(wait_s)
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S, self._backoff)
        while True:
            left_s = deadline.left_s()
            answer = self._try(key, hold_id, ttl_s)
            if not isinstance(answer, Denied) or wait_s <= 0:
                return answer
            if left_s <= 0:
                return Denied(f"gave-up: {answer.reason}")
            self.rest(backoff, deadline.left_s())

    def rest(self, backoff: Backoff, limit_s: float) -> None:
        """Between two tries of one wait, of which so much is left."""
        backoff.pause(limit_s)

    def release(self, hold: Hold) -> Freed:
        try:
            self._link.open()
            freed = self.free(hold)
        except (NotSent, exceptions.RedisError) as error:
            return Unknown(f"release: {named(error)}")
        return Released() if freed else NotHeld()

    def close(self) -> None:
        self._link.close()

    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        ttl_ms = milliseconds(ttl_s)
        try:
            self._link.open()
            taken = self.take(key, token_of(hold_id), ttl_ms)
        except self._refused() as error:
            return Denied(f"no-effect: {named(error)}")
        except (Unsure, exceptions.RedisError) as error:
            return Unknown(f"acquire: {named(error)}")
        if taken is None:
            return Denied("held")
        hold = Hold(hold_id, key, taken)
        if not self.limited:
            return Granted(hold, taken.fence, taken.sent_ns, None)
        valid_until_ns = taken.sent_ns + ttl_ms * 1_000_000
        return self._in_time(Granted(hold, taken.fence, taken.sent_ns, valid_until_ns))

    def _refused(self) -> tuple[type[Exception], ...]:
        """Errors of ``take`` that say: it was not run."""
        before = (NotSent, exceptions.BusyLoadingError)
        return before if self.by_script else (*before, exceptions.ResponseError)

    def _in_time(self, granted: Granted) -> Acquired:
        """The grant, or given back where its promise has ended."""
        if granted.valid_until_ns is None or time.monotonic_ns() < granted.valid_until_ns:
            return granted
        freed = self.release(granted.hold)
        if isinstance(freed, Unknown):
            return freed
        return Denied("gave-up: granted, but the answer came after the time to live")


def milliseconds(ttl_s: float) -> int:
    """As Redis counts."""
    return int(ttl_s * 1000)


def named(error: Exception) -> str:
    """An error in words."""
    return str(error) if isinstance(error, NotSent) else f"{type(error).__name__}: {error}"


# Of a command that may have been sent.
ERRORS = (
    *("BusyLoadingError", "ResponseError"),
    *("TimeoutError", "ConnectionError", "InvalidResponse"),
)
# Where plain commands take it and give it back.
COMMAND_OUTCOMES = {
    "acquire: no connection": "Denied: no-effect",
    **{f"acquire: {error}": "Denied: no-effect" for error in ERRORS[:2]},
    **{f"acquire: {error}": "Unknown" for error in ERRORS[2:]},
    "acquire: granted too late": "Denied: gave-up",
    **{f"release: {error}": "Unknown" for error in ("no connection", *ERRORS)},
}
# Where a command takes it and a script gives it back.
OUTCOMES = {**COMMAND_OUTCOMES, "release: NoScriptError": "Released"}
# Where scripts do both.
SCRIPT_OUTCOMES = {
    **OUTCOMES,
    "acquire: ResponseError": "Unknown",
    "acquire: NoScriptError": "Granted",
}
