"""etcd: a lease, a key made once under it, and a queue by create revision.

The recipe is that of etcd's own ``concurrency`` package (client/v3/concurrency/mutex.go). Acquire
grants a lease, writes ``lockbench/<key>/<lease id>`` under it unless that key exists, and holds the
lock when no key of the prefix was created earlier. Otherwise it watches the key created just before
its own, and when that is gone looks again: its own key must still be there, at its own revision,
and none before it. That look is one transaction, so it proves the lease to be alive at that
revision (https://github.com/etcd-io/etcd/issues/11456: handed over after the lease had expired).
Release revokes the lease, which deletes the key. The fence is the key's create revision.
The value of the key is the hold's token, which the recipe does not look at: with it the revisions
tell of every hold (``lockbench.locks.shared.tenures``).

One key per lease makes every step safe to repeat: writing again finds the own key, revoking again
finds no lease, and a write that arrives after the revocation is refused for want of a lease. So an
attempt whose answer was lost goes on at the next endpoint while its wait lasts, and in the end one
confirmed revocation turns "perhaps" into "certainly not".

The promise starts when the last acknowledged grant or keepalive of the lease was sent, and lasts as
long as the server said (whole seconds, at least one and a half election timeouts). While waiting,
the lease is renewed whenever a third of it has passed, so a grant is promised at least two thirds.
The transactions renew nothing. A new leader starts all leases afresh, so they do not end early,
unless an old leader goes on after a freeze (docs/track/etcd-old-leader-revokes.md).

In etcd v3.6.16 (server/lease/lessor.go) Grant, which gives at least MinLeaseTTL, and Renew start a
lease when the leader carries them out, and answer with the whole time to live; Promote starts all
of them again, plus an election timeout; a loop revokes what has expired every half second. Before
it renews, a leader asks a quorum whether it still leads, unless it has ticked within three
heartbeats (server/etcdserver/server.go, ensureLeadership). So one that was cut off acknowledges
keepalives until it steps down, one to two election timeouts after the cut; the next leader adds one
to every lease when it is elected, which is one after the cut at the earliest.

A lease whose revocation was not confirmed is revoked again before the client's next acquire. Other
clients need not wait then until it runs out, which a change of leader delays.

Does not guarantee: that a holder stops when its lease is over; that a lease ends on time (etcd
looks every half second, and a change of leader lengthens all).

What each error means (``OUTCOMES`` holds the same as data):

- Any error of the lease grant: at worst a lease without a key is left behind. No effect.
- Any error of the write: it may have run. Revoked and confirmed: gave-up. Not confirmed: Unknown.
- "lease not found" from the write, or the own key gone when looking: gave-up, nothing left behind.
- Errors of looks, watches and keepalives change nothing; the wait goes on at the next endpoint.
- Release: "lease not found" is NotHeld, every other error Unknown.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from lockbench.locks.bare import KEY, Bare
from lockbench.locks.base import (
    ANY,
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
from lockbench.locks.etcd.expectations import ETCD
from lockbench.locks.etcd.gateway import (
    Ahead,
    client_of,
    encoded,
    errors,
    wait_for_deletion,
    watch_errors,
)
from lockbench.locks.shared.expectations import BY_MONOTONIC_CLOCK
from lockbench.locks.shared.tenures import etcd_entry

PREFIX = "lockbench"
RETRY_MIN_S = 0.010  # between an error and the next endpoint
RETRY_MAX_S = 0.100
RENEW_AFTER = 1 / 3  # of the lease


class LeaseGoneError(Exception):
    """The server says that the lease, and with it the key, does not exist."""


class Handle(NamedTuple):
    """What a hold needs to be given back."""

    lease: int
    revision: int


@dataclass(slots=True)
class Claim:
    """One attempt's place in the queue."""

    key: str
    token: str  # names the hold in the service
    lease: int
    ttl_ns: int
    renewed_ns: int  # when the last acknowledged grant or keepalive was sent
    revision: int | None = None
    written: bool = False  # whether a write of the key was ever sent

    @property
    def prefix(self) -> str:
        """The prefix of all claims on the key."""
        return f"{PREFIX}/{self.key}/"

    @property
    def name(self) -> str:
        """The own key."""
        return f"{self.prefix}{self.lease:x}"

    @property
    def valid_until_ns(self) -> int:
        """The promise that the lease gives."""
        return self.renewed_ns + self.ttl_ns

    def renewal_due_s(self) -> float:
        """Seconds until the lease should be renewed."""
        return (self.renewed_ns + RENEW_AFTER * self.ttl_ns - time.monotonic_ns()) / 1e9


class Etcd:
    """One client of the lock."""

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # each grant names its own
        observer: Observer,  # nothing happens in the background
    ) -> None:
        self._timeout_s = timeout_s
        self._nodes = list(nodes)
        random.shuffle(self._nodes)
        self._clients = [client_of(node, timeout_s) for node in self._nodes]
        self._at = 0
        self._unrevoked: list[int] = []  # leases to be revoked again

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Queues for the key and waits for its turn."""
        deadline = Deadline(wait_s)
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        while True:
            try:
                self._revoke_again()
                claim = self._claim(key, token_of(hold_id), ttl_s)
            except errors() as error:
                if deadline.over():
                    return Denied(f"no-effect: lease: {_named(error)}")
                backoff.pause(deadline.left_s())
            else:
                return self._wait_for_turn(claim, hold_id, deadline, tries_once=wait_s <= 0)

    def release(self, hold: Hold) -> Freed:
        """Revokes the lease of the hold."""
        try:
            self._revoke(hold.handle.lease)
        except LeaseGoneError:
            return NotHeld()
        except errors() as error:
            self._unrevoked.append(hold.handle.lease)
            return Unknown(f"revoke: {_named(error)}")
        return Released()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Renews the lease. How long it then lasts was settled when it was granted."""
        handle: Handle = hold.handle
        sent_ns = time.monotonic_ns()
        try:
            ttl_ns = self._keep_alive(handle.lease)
        except LeaseGoneError:
            return NotHeld()
        except errors() as error:
            return Unknown(f"keepalive: {_named(error)}")
        return Granted(hold, handle.revision, sent_ns, sent_ns + ttl_ns)

    def close(self) -> None:
        for client in self._clients:
            client.session.close()

    # The queue.

    def _wait_for_turn(
        self, claim: Claim, hold_id: int, deadline: Deadline, *, tries_once: bool
    ) -> Acquired:
        backoff = Backoff(RETRY_MIN_S, RETRY_MAX_S)
        reason = "held" if tries_once else "gave-up: others were before it"
        while True:
            try:
                last = deadline.over()
                ahead = self._look(claim)
                if ahead is None:
                    return self._turn_has_come(claim, hold_id)
                if last:
                    break
                self._watch(claim, ahead, deadline)
            except LeaseGoneError:
                return Denied("gave-up: the lease ran out while waiting")
            except watch_errors() as error:
                self._rotate()
                reason = f"gave-up: {_named(error)}"
                if deadline.over():
                    break
                backoff.pause(deadline.left_s())
        return self._withdraw(claim, reason)

    def _turn_has_come(self, claim: Claim, hold_id: int) -> Acquired:
        if time.monotonic_ns() >= claim.valid_until_ns:
            return self._withdraw(claim, "gave-up: its turn came after its lease")
        return self._granted(claim, hold_id)

    @staticmethod
    def _granted(claim: Claim, hold_id: int) -> Granted:
        assert claim.revision is not None
        hold = Hold(hold_id, claim.key, Handle(claim.lease, claim.revision))
        return Granted(hold, claim.revision, claim.renewed_ns, claim.valid_until_ns)

    def _withdraw(self, claim: Claim, reason: str) -> Acquired:
        try:
            self._revoke(claim.lease)
        except LeaseGoneError:
            pass
        except errors() as error:
            self._unrevoked.append(claim.lease)
            if claim.written:
                return Unknown(f"{reason}; revoke: {_named(error)}")
        return Denied(reason)

    def _look(self, claim: Claim) -> Ahead | None:
        """Who is before us. None: nobody, and our own key was there at that moment."""
        if claim.renewal_due_s() <= 0:
            sent_ns = time.monotonic_ns()
            claim.ttl_ns = self._keep_alive(claim.lease)
            claim.renewed_ns = sent_ns
        if claim.revision is None:
            return self._enter(claim)
        return self._look_again(claim, claim.revision)

    def _enter(self, claim: Claim) -> Ahead | None:
        """Writes our key and reads, in the same transaction, the two keys created last: ours and
        the one before it."""
        claim.written = True
        name = encoded(claim.name)
        put = {"key": name, "value": encoded(claim.token), "lease": claim.lease}
        last_two = {**by_creation(claim.prefix), "limit": 2}
        answer = self._post(
            "kv/txn",
            {
                "compare": [{"key": name, "target": "CREATE", "create_revision": 0}],
                "success": [{"request_put": put}, {"request_range": last_two}],
                "failure": [{"request_range": {"key": name, "keys_only": True}}],
            },
        )
        found = answer["responses"][-1]["response_range"]["kvs"]
        claim.revision = int(found[0]["create_revision"])
        if not answer.get("succeeded"):  # an earlier write of ours had run, its answer was lost
            return self._look_again(claim, claim.revision)
        return ahead_of(found[1:], answer)

    def _look_again(self, claim: Claim, revision: int) -> Ahead | None:
        mine = {"key": encoded(claim.name), "target": "CREATE", "create_revision": revision}
        before = {**by_creation(claim.prefix), "limit": 1, "max_create_revision": revision - 1}
        answer = self._post("kv/txn", {"compare": [mine], "success": [{"request_range": before}]})
        if not answer.get("succeeded"):
            raise LeaseGoneError
        return ahead_of(answer["responses"][0]["response_range"].get("kvs", []), answer)

    def _watch(self, claim: Claim, ahead: Ahead, deadline: Deadline) -> None:
        """Returns when the key is gone, the wait over or the lease due for renewal."""
        limit_s = min(deadline.left_s(), claim.renewal_due_s())
        if limit_s > 0:
            wait_for_deletion(self._nodes[self._at], ahead, self._timeout_s, limit_s)

    # Requests.

    def _claim(self, key: str, token: str, ttl_s: float) -> Claim:
        sent_ns = time.monotonic_ns()
        answer = self._post("lease/grant", {"TTL": math.ceil(ttl_s)})
        return Claim(key, token, int(answer["ID"]), int(answer["TTL"]) * 1_000_000_000, sent_ns)

    def _keep_alive(self, lease: int) -> int:
        """Returns the time to live in nanoseconds; a lease that is gone has none."""
        answer = self._post("lease/keepalive", {"ID": lease})
        ttl_s = int(answer.get("result", {}).get("TTL", 0))
        if ttl_s <= 0:
            raise LeaseGoneError
        return ttl_s * 1_000_000_000

    def _revoke(self, lease: int) -> None:
        self._post("lease/revoke", {"ID": lease})

    def _revoke_again(self) -> None:
        while self._unrevoked:
            with suppress(LeaseGoneError):
                self._revoke(self._unrevoked[-1])
            self._unrevoked.pop()

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        """One attempt at the present endpoint. An error makes the next one present."""
        client = self._clients[self._at]
        try:
            return client.post(client.get_url(path), json=body)
        except errors() as error:
            if _is_lease_not_found(error):
                raise LeaseGoneError from error
            self._rotate()
            raise

    def _rotate(self) -> None:
        self._at = (self._at + 1) % len(self._clients)


def ahead_of(found: Sequence[Any], answer: Any) -> Ahead | None:
    """The first of the keys found."""
    return Ahead(found[0]["key"], int(answer["header"]["revision"])) if found else None


def by_creation(prefix: str) -> dict[str, Any]:
    """A range over the prefix, created last first. The prefix ends in a slash, and the byte after
    the slash is zero's."""
    return {
        "key": encoded(prefix),
        "range_end": encoded(f"{prefix[:-1]}0"),
        "sort_order": "DESCEND",
        "sort_target": "CREATE",
        "keys_only": True,
    }


def _is_lease_not_found(error: Exception) -> bool:
    return "requested lease not found" in (getattr(error, "detail_text", None) or "")


def _named(error: Exception) -> str:
    detail = getattr(error, "detail_text", None) or error
    return f"{type(error).__name__}: {detail}"


_SOURCE = "https://pkg.go.dev/go.etcd.io/etcd/client/v3/concurrency#Mutex"

_LEASE_FIRST = (
    "https://github.com/etcd-io/etcd/blob/v3.6.16/client/v3/concurrency/session.go: NewSession "
    "grants the lease before anything is locked; while that answer is missing, nothing is"
)

# As every lock that queues like etcd's own: a key for each who waits, below the name of the lock.
QUEUES_BY_PREFIX = {
    "a_key_does_not_touch_those_that_begin_with_it": (
        "it waits for every key that begins with its name and a slash (etcd-io/website#710)"
    )
}

SYSTEM = System(
    name="etcd",
    topologies=("etcd",),
    suites={"quick": (ANY,)},
    family="etcd",
    fence="create revision of the holder's key",
    waits_by="watch on the key created just before",
    source=_SOURCE,
    connect=Etcd,
    outcomes={
        "lease/grant: ConnectionTimeoutError": "Denied: no-effect",
        "lease/grant: ConnectionFailedError": "Denied: no-effect",
        "lease/grant: InternalServerError": "Denied: no-effect",
        "lease/grant: Etcd3Exception": "Denied: no-effect",
        "lease/grant: JSONDecodeError": "Denied: no-effect",
        "kv/txn: ConnectionTimeoutError, then revoked": "Denied: gave-up",
        "kv/txn: ConnectionFailedError, then revoked": "Denied: gave-up",
        "kv/txn: InternalServerError, then revoked": "Denied: gave-up",
        "kv/txn: JSONDecodeError, then revoked": "Denied: gave-up",
        "kv/txn: ConnectionTimeoutError, not revoked": "Unknown",
        "kv/txn: ConnectionFailedError, not revoked": "Unknown",
        "kv/txn: lease not found": "Denied: gave-up",
        "lease/revoke: ConnectionTimeoutError": "Unknown",
        "lease/revoke: ConnectionFailedError": "Unknown",
        "lease/revoke: InternalServerError": "Unknown",
        "lease/revoke: Etcd3Exception": "Unknown",
        "lease/revoke: JSONDecodeError": "Unknown",
        "lease/revoke: lease not found": "NotHeld",
    },
    elsewhere=True,
    expectations={**ETCD, **BY_MONOTONIC_CLOCK},
    entry=etcd_entry,
    asks_first=_LEASE_FIRST,
    bare=(Bare("etcd", (f"{PREFIX}/{KEY}/",)),),
    not_owed=QUEUES_BY_PREFIX,
)
