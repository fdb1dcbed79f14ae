"""Consul: a session with a TTL, and a key that it acquires.

The recipe is that of HashiCorp's pages (https://developer.hashicorp.com/consul/docs/automate/session
and https://developer.hashicorp.com/consul/docs/automate/application-leader-election). Acquire makes
a session that is bound to its TTL alone, and puts ``lockbench/<key>`` with ``?acquire=<session>``,
which the server grants to one session at a time. Where it refuses, a blocking query tells when the
key changes. After a grant the key is read: it must be of the own session, and has the fence.
Release puts it with ``?release=<session>`` and destroys the session, which holds nothing by then.
The fence is the key's LockIndex, which Consul's pages make a part of the sequencer.

One session per attempt makes every step safe to repeat: acquiring again finds the own session,
destroying again finds none, and an acquire that arrives after the destruction is refused for want
of a session. So an attempt whose answer was lost goes on at the next server while its wait lasts,
and in the end one confirmed destruction turns "perhaps" into "certainly not".

The promise is the TTL, from when the making or the last acknowledged renewal of the session was
sent. While waiting, the session is renewed whenever a third of its TTL has passed, so a grant is
promised at least two thirds of it. Nobody is told that a session has ended; a holder learns it from
its next renewal or from its release.

Lock-delay is as long as the TTL, as in Consul's own client (15 s each by default in
https://github.com/hashicorp/consul/blob/v1.8.7/api/lock.go): for that long nobody acquires what a
session held when it ended or was destroyed. A release does not cause it. The TTL is a lower bound,
and Consul keeps a session for twice as long. So what a dead holder leaves behind is free three TTLs
after its last renewal, and a holder that was frozen for less has lost nothing.

In Consul v1.8.7 the leader counts down (agent/consul/session_ttl.go): createSessionTimer doubles
the TTL, and initializeSessionTimers starts all of them afresh when a leader takes over. Renew
(agent/consul/session_endpoint.go) asks no quorum, so a leader that was cut off may acknowledge one
until it steps down. The next leader starts the session afresh later than that. The lock-delay is
looked at before an acquire is proposed (agent/consul/kvs_endpoint.go, kvsPreApply), by the leader's
own clock.

Does not guarantee: that a holder stops when its session is over, nor that waiters are served in
order.

What each error means (``OUTCOMES`` holds the same as data):

- Any error of the making of a session: at worst one that holds nothing is left behind. No effect.
- Any error of the acquire or of the look after it: it may hold. Destroyed and confirmed: gave-up.
  Not confirmed: Unknown. Such a session is destroyed before the client's next acquire.
- "invalid session" of an acquire, or none left to renew: gave-up, nothing left behind.
- Errors of queries and renewals change nothing; the wait goes on at the next server.
- Release: refused is NotHeld, every error Unknown.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, NamedTuple
from urllib.parse import quote

from lockbench.locks.bare import KEY, TTL_S, Bare
from lockbench.locks.base import (
    Acquired,
    Address,
    Backoff,
    Deadline,
    Denied,
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
from lockbench.locks.consul.client import client_of, close, create_session, errors, unknown_session
from lockbench.locks.consul.expectations import CONSUL, SESSIONS
from lockbench.locks.shared.expectations import BY_MONOTONIC_CLOCK

PREFIX = "lockbench/"
RETRY_MIN_S = 0.010  # between an error, or a lock-delay, and the next try
RETRY_MAX_S = 0.100
RENEW_AFTER = 1 / 3  # of the TTL
LOCK_DELAY_MAX_S = 60.0
QUERY_MIN_MS = 1  # Consul takes none for five minutes


class SessionGoneError(Exception):
    """The server says that the session does not exist."""


class Handle(NamedTuple):
    """What a hold needs to be extended and given back."""

    session: str
    ttl_ns: int
    fence: int | None


@dataclass(slots=True)
class Claim:
    """One attempt."""

    name: str  # of the key in Consul
    token: str  # its value, which names the hold
    session: str
    ttl_ns: int
    renewed_ns: int  # when the making or the last acknowledged renewal was sent
    perhaps: bool = False  # whether the session may have got the key without our knowing

    @property
    def valid_until_ns(self) -> int:
        """The promise that the session gives."""
        return self.renewed_ns + self.ttl_ns

    def renewal_due_s(self) -> float:
        """Seconds until the session should be renewed."""
        return (self.renewed_ns + RENEW_AFTER * self.ttl_ns - time.monotonic_ns()) / 1e9


class ConsulSession:
    """One client of the lock."""

    behavior: ClassVar = "release"  # what Consul does with the key when the session ends
    lock_delay_ttls: ClassVar = 1.0
    fenced_by: ClassVar[str | None] = "LockIndex"

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # each session names its own
        observer: Observer,  # nothing happens in the background
    ) -> None:
        shuffled = random.sample(list(nodes), len(nodes))
        self._clients = [client_of(node, timeout_s) for node in shuffled]
        self._at = 0
        self._undestroyed: list[str] = []  # sessions to be destroyed again

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Makes a session and waits until it gets the key."""
        deadline = Deadline(wait_s)
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            try:
                self._destroy_again()
                claim = self._claim(key, token_of(hold_id), ttl_s)
            except errors() as error:
                if deadline.over():
                    return Denied(f"no-effect: session: {_named(error)}")
                backoff.pause(deadline.left_s())
            else:
                return self._wait(claim, (hold_id, key), deadline, tries_once=wait_s <= 0)

    def release(self, hold: Hold) -> Freed:
        """Gives the key back, then ends the session, which matters to nobody any more."""
        name, session = _name(hold.key), hold.handle.session
        self._undestroyed.append(session)
        try:
            freed = self._ask(lambda client: client.kv.put(name, "", release=session))
        except errors() as error:
            return Unknown(f"release: {_named(error)}")
        with suppress(*errors()):
            self._destroy_again()
        return Released() if freed else NotHeld()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Renews the session. How long it then lasts was settled when it was made."""
        handle: Handle = hold.handle
        sent_ns = time.monotonic_ns()
        try:
            self._renew(handle.session)
        except SessionGoneError:
            return NotHeld()
        except errors() as error:
            return Unknown(f"renew: {_named(error)}")
        return Granted(hold, handle.fence, sent_ns, sent_ns + handle.ttl_ns)

    def close(self) -> None:
        for client in self._clients:
            close(client)

    # The wait.

    def _wait(
        self, claim: Claim, hold: tuple[int, str], deadline: Deadline, *, tries_once: bool
    ) -> Acquired:
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        reason = "held" if tries_once else "gave-up: others had it"
        while True:
            try:
                last = deadline.over()
                if self._take(claim):
                    return self._taken(claim, *hold)
                if last:
                    break
                self._watch(claim, deadline, backoff)
            except SessionGoneError:
                reason = "gave-up: the session ended while waiting"
                break
            except errors() as error:
                reason = f"gave-up: {_named(error)}"
                if deadline.over():
                    break
                backoff.pause(deadline.left_s())
        return self._withdraw(claim, reason)

    def _take(self, claim: Claim) -> bool:
        """Whether the session has the key."""
        if claim.renewal_due_s() <= 0:
            sent_ns = time.monotonic_ns()
            self._renew(claim.session)
            claim.renewed_ns = sent_ns
        before, claim.perhaps = claim.perhaps, True
        name, token, session = claim.name, claim.token, claim.session
        taken: bool = self._ask(lambda client: client.kv.put(name, token, acquire=session))
        if not taken:  # but what was sent before may still arrive
            claim.perhaps = before
        return taken

    def _taken(self, claim: Claim, hold_id: int, key: str) -> Acquired:
        """Looks at the key, which may be another's by now."""
        _, entry = self._ask(lambda client: client.kv.get(claim.name))
        if entry is None or entry.get("Session") != claim.session:
            raise SessionGoneError
        if time.monotonic_ns() >= claim.valid_until_ns:
            return self._withdraw(claim, "gave-up: its turn came after its session's TTL")
        fence = None if self.fenced_by is None else int(entry[self.fenced_by])
        hold = Hold(hold_id, key, Handle(claim.session, claim.ttl_ns, fence))
        return Granted(hold, fence, claim.renewed_ns, claim.valid_until_ns)

    def _watch(self, claim: Claim, deadline: Deadline, backoff: Backoff) -> None:
        """Returns when the key has changed, the wait is over or the session due for renewal; after
        a pause where nobody has the key: then a lock-delay keeps it."""
        index, entry = self._ask(lambda client: client.kv.get(claim.name))
        if entry is None or entry.get("Session") in {None, "", claim.session}:
            backoff.pause(deadline.left_s())
            return
        wait_ms = int(1000 * min(deadline.left_s(), claim.renewal_due_s()))
        if wait_ms >= QUERY_MIN_MS:
            self._ask(lambda client: client.kv.get(claim.name, index=index, wait=f"{wait_ms}ms"))

    def _withdraw(self, claim: Claim, reason: str) -> Acquired:
        try:
            self._destroy(claim.session)
        except errors() as error:
            self._undestroyed.append(claim.session)
            if claim.perhaps:
                return Unknown(f"{reason}; destroy: {_named(error)}")
        return Denied(reason)

    # Requests.

    def _claim(self, key: str, token: str, ttl_s: float) -> Claim:
        delay_s = min(LOCK_DELAY_MAX_S, self.lock_delay_ttls * ttl_s)
        sent_ns = time.monotonic_ns()
        session = self._ask(
            partial(create_session, ttl_s=ttl_s, lock_delay_s=delay_s, behavior=self.behavior)
        )
        return Claim(_name(key), token, session, int(1e9 * ttl_s), sent_ns)

    def _renew(self, session: str) -> None:
        self._ask(lambda client: client.session.renew(session))

    def _destroy(self, session: str) -> None:
        """No error where there is none."""
        self._ask(lambda client: client.session.destroy(session))

    def _destroy_again(self) -> None:
        while self._undestroyed:
            self._destroy(self._undestroyed[-1])
            self._undestroyed.pop()

    def _ask(self, request: Callable[[Any], Any]) -> Any:
        """One attempt at the present server. An error makes the next one present."""
        try:
            return request(self._clients[self._at])
        except errors() as error:
            if unknown_session(error):
                raise SessionGoneError from error
            self._at = (self._at + 1) % len(self._clients)
            raise


def _name(key: str) -> str:
    return PREFIX + quote(key, safe="")


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def bare(behavior: str, lock_delay_ttls: float) -> tuple[Bare, ...]:
    """What a lock of this file sends, whose session has these settings."""
    return (Bare("consul", (PREFIX + KEY, behavior, str(lock_delay_ttls * TTL_S))),)


_SESSION_FIRST = (
    "https://developer.hashicorp.com/consul/docs/automate/application-leader-election: a session "
    "is made before anything is acquired; while that answer is missing, nothing is"
)

SYSTEM = System(
    name="consul-session",
    topologies=("consul",),
    family="consul",
    fence="LockIndex of the key",
    waits_by="blocking query on the key",
    source=SESSIONS,
    connect=ConsulSession,
    outcomes={
        "session/create: ReadTimeout": "Denied: no-effect",
        "session/create: ConnectionError": "Denied: no-effect",
        "session/create: ConsulException": "Denied: no-effect",
        "session/create: nonsense": "Denied: no-effect",
        "kv?acquire: ReadTimeout, then destroyed": "Denied: gave-up",
        "kv?acquire: ConnectionError, then destroyed": "Denied: gave-up",
        "kv?acquire: ConsulException, then destroyed": "Denied: gave-up",
        "kv?acquire: nonsense, then destroyed": "Denied: gave-up",
        "kv?acquire: ReadTimeout, not destroyed": "Unknown",
        "kv?acquire: ConnectionError, not destroyed": "Unknown",
        "kv?acquire: invalid session": "Denied: gave-up",
        "kv: ConnectionError, then destroyed": "Denied: gave-up",
        "kv: ConnectionError, not destroyed": "Unknown",
        "kv: another session, then destroyed": "Denied: gave-up",
        "kv?release: ReadTimeout": "Unknown",
        "kv?release: ConnectionError": "Unknown",
        "kv?release: ConsulException": "Unknown",
        "kv?release: nonsense": "Unknown",
        "kv?release: refused": "NotHeld",
    },
    expectations={**CONSUL, **BY_MONOTONIC_CLOCK},
    asks_first=_SESSION_FIRST,
    kept_leases=2.0 + ConsulSession.lock_delay_ttls,
    bare=bare(ConsulSession.behavior, ConsulSession.lock_delay_ttls),
)
