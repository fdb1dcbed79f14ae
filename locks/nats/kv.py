"""NATS: a key of a bucket, made only if it is absent, with a time to live of its own.

Acquire is ``create`` as NATS' clients have it (ADR-8): a publish that expects no message of the key
(revision 0). Where one is there, it is read; if it is a marker (the key was deleted, or its time to
live has ended) the publish is tried once more and expects that marker to be the last. Waiting is
polling, with pauses that grow and are jittered. A renewal is ``update``, which expects the revision
that this client wrote last; release is a delete that expects it, so that one that comes too late
deletes nobody else's. The fence is the revision of the grant. The revision is the number of the
message in the bucket's stream, which grows with every message for as long as the stream is there.

The time to live is that of the message (``Nats-TTL``, from server 2.11 on, ADR-43), in whole
seconds. A bucket's own limit (``max_age``) would be the same for all of its locks. Create of the
clients takes a time to live, their update takes none, so that a key renewed by it stays for ever
(https://docs.nats.io/learn/key-value/ttl-and-limits: 'only at create time'). A renewal here is the
publish that update makes, with the header that create has.

A renewal counts only if it was acknowledged before the promise ended that it renews. When a time to
live has ended, the server writes its marker without a condition (server/filestore.go of v2.15.2,
handleRemovalOrSdm), and a value that was stored meanwhile, and acknowledged, is removed with it
(docs/track/nats-marker-removes-renewal.md).

Reads are direct gets, which any replica answers, so they may be older than the newest write. They
grant nothing: each write says which message it expects, and the leader compares. An old read costs
a try, or makes a release unknown.

The promise starts when the publish was sent; the server counts from when it stored the message,
which is later. Nobody is told that a time to live has ended; a holder learns it from its next
renewal or from its release.

Does not guarantee: that a holder stops when its time is over, that waiters are served in order, nor
anything once the bucket's files are lost.

What each error means (``outcomes`` holds the same as data):

- No connection, or no answer to the PING on a new one: nothing was sent. No effect.
- "No responders": the bucket has no leader now, and nobody was handed the request. No effect.
- "Wrong last sequence": another message is the key's last, or is in process and will be. Held,
  unless the last one is a marker.
- Any error of the read: create was refused before. No effect.
- Any other error of a publish: it may have been stored, or may yet. Unknown, and no clean-up: it
  takes a free key for one time to live, or changes nothing.
- A renewal that is acknowledged too late: Unknown.
- Release: a later message is NotHeld; after a renewal of unknown outcome the key is read first, as
  it may be the own hold's. A leader that knows of no message as late as the hold's was cut off
  before, and what is in process may be an earlier request of the hold: Unknown, as any other error.
"""

from __future__ import annotations

import math
import random
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lockbench.clusters.nats.bucket import (
    DELETE,
    EXPECTED,
    IN_PROCESS,
    TTL,
    WRONG_LAST,
    Entry,
    Refused,
    look,
    put,
)
from lockbench.clusters.nats.protocol import NoResponders, Session
from lockbench.clusters.wire import PROBE_FAILURES, ProbeFailed
from lockbench.locks.bare import KEY, Bare
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
from lockbench.locks.nats.expectations import KV_DOC, NATS, TTL_DOC

POLL_MIN_S: Final = 0.005
POLL_MAX_S: Final = 0.050
RESTED_S: Final = 0.1  # a connection unused for so long may have been ended
ERRORS: Final = PROBE_FAILURES
# As the outcomes call refusals of what expects another message than the key's last.
NOT_THE_LAST: Final = ("wrong last sequence", "older last sequence", "in process")


class NotSent(Exception):
    """There is no connection, so nothing was asked."""


@dataclass(slots=True)
class Handle:
    """What a hold needs to be extended and given back."""

    fence: int
    until_ns: int  # when the promise ends
    revision: int  # of the last message that this client knows to be its own
    unsure: bool = False  # whether a renewal of it may have been stored since


class NatsKv:
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
        self._nodes = random.sample(list(nodes), len(nodes))
        self._at = 0
        self._session: Session | None = None
        self._used_s = 0.0

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Polls until the key is free, the wait is over or the outcome is unknown."""
        deadline = Deadline(wait_s)
        backoff = Backoff(POLL_MIN_S, POLL_MAX_S)
        while True:
            last = deadline.over()
            answer = self._try(key, hold_id, ttl_s)
            if not isinstance(answer, Denied) or wait_s <= 0:
                return answer
            if last:
                return Denied(f"gave-up: {answer.reason}")
            backoff.pause(deadline.left_s())

    def release(self, hold: Hold) -> Freed:
        """Deletes the key if its last message is this hold's."""
        try:
            revision = self.free(hold)
        except (NotSent, *ERRORS) as error:
            self._drop()
            return Unknown(f"release: {_named(error)}")
        return NotHeld() if revision is None else Released()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Lets the hold live ``ttl_s`` from now, if the key's last message is this hold's."""
        sent_ns = time.monotonic_ns()
        handle: Handle = hold.handle
        try:
            revision = self._change(hold, token_of(hold.id).encode(), {TTL: _seconds(ttl_s)})
        except (NotSent, *ERRORS) as error:
            self._drop()
            handle.unsure = True
            return Unknown(f"extend: {_named(error)}")
        if revision is None:
            return NotHeld()
        handle.revision, handle.unsure = revision, False
        if time.monotonic_ns() >= handle.until_ns:
            return Unknown("extend: acknowledged after the time to live, so it may yet be removed")
        handle.until_ns = sent_ns + _whole_ns(ttl_s)
        return Granted(hold, handle.fence, sent_ns, handle.until_ns)

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None

    # What variants do otherwise.

    def renew_marker(
        self, session: Session, key: str, value: bytes, marker: Entry, ttl: Mapping[str, str]
    ) -> int:
        """Puts the value in the place of a marker; its revision."""
        return put(session, key, value, {EXPECTED: str(marker.revision), **ttl})

    def free(self, hold: Hold) -> int | None:
        """Deletes the key; the revision of the marker. None: it is not this hold's any more."""
        return self._change(hold, b"", DELETE)

    # One try.

    def _try(self, key: str, hold_id: int, ttl_s: float) -> Acquired:
        try:
            session = self.open()
        except NotSent as error:
            return Denied(f"no-effect: {error}")
        name, value = name_of(key), token_of(hold_id).encode()
        ttl = {TTL: _seconds(ttl_s)}
        sent_ns = time.monotonic_ns()
        try:
            revision = put(session, name, value, {EXPECTED: "0", **ttl})
        except ERRORS as error:
            if not _not_the_last(error):
                return self._failed(error)
            try:
                found = look(session, name)
            except ERRORS as failed:
                self._drop()
                return Denied(f"no-effect: look: {_named(failed)}")
            if found is None or found.value is not None:
                return Denied("held")
            sent_ns = time.monotonic_ns()
            try:
                revision = self.renew_marker(session, name, value, found, ttl)
            except ERRORS as failed:
                return Denied("held") if _not_the_last(failed) else self._failed(failed)
        until_ns = sent_ns + _whole_ns(ttl_s)
        hold = Hold(hold_id, key, Handle(revision, until_ns, revision))
        return self._in_time(Granted(hold, revision, sent_ns, until_ns))

    def _failed(self, error: Exception) -> Acquired:
        """What a publish of an acquire means that was not acknowledged."""
        self._drop()
        if isinstance(error, NoResponders):
            return Denied(f"no-effect: {error}")
        return Unknown(f"acquire: {_named(error)}")

    def _in_time(self, granted: Granted) -> Acquired:
        """The grant, or given back where its promise has ended."""
        assert granted.valid_until_ns is not None
        if time.monotonic_ns() < granted.valid_until_ns:
            return granted
        freed = self.release(granted.hold)
        if isinstance(freed, Unknown):
            return freed
        return Denied("gave-up: granted, but the answer came after the time to live")

    # A hold.

    def _change(self, hold: Hold, value: bytes, headers: Mapping[str, str]) -> int | None:
        """Puts this in the place of the hold's last message; its revision. None: the key's last
        message is not this hold's. Raises NotSent and ``ERRORS``."""
        session, name, handle = self.open(), name_of(hold.key), hold.handle
        try:
            return put(session, name, value, {EXPECTED: str(handle.revision), **headers})
        except Refused as error:
            # Whose the message is that is in process is not known. A leader that was cut off goes
            # on refusing for a while, and may not know of the hold.
            if error.code != WRONG_LAST or error.last < handle.revision:
                raise
        if not handle.unsure:
            return None
        found = look(session, name)
        if found is None or found.revision <= handle.revision:
            raise ProbeFailed("the key as it is read is older than what was refused")
        if found.value != token_of(hold.id).encode():
            return None
        handle.revision, handle.unsure = found.revision, False
        return self._change(hold, value, headers)

    # The connection.

    def open(self) -> Session:
        """The one to the present server, made anew where it has ended. Raises NotSent, and then the
        next server is the present one."""
        rested = time.monotonic() - self._used_s > RESTED_S
        if self._session is not None and rested and self._session.ended():
            self.close()
        if self._session is None:
            try:
                self._session = Session(self._nodes[self._at], self._timeout_s)
            except ERRORS as error:
                self._drop()
                raise NotSent(_named(error)) from error
        self._session.within(self._timeout_s)
        self._used_s = time.monotonic()
        return self._session

    def _drop(self) -> None:
        """Hangs up; the next server is the present one."""
        self.close()
        self._at = (self._at + 1) % len(self._nodes)


def _not_the_last(error: Exception) -> bool:
    return isinstance(error, Refused) and error.code in {WRONG_LAST, IN_PROCESS}


def name_of(key: str) -> str:
    """A key as NATS allows it, different for different keys."""
    return re.sub(r"[^A-Za-z0-9_/-]", lambda found: _escaped(found[0]), key)


def _escaped(letter: str) -> str:
    return "".join(f"={byte:02x}" for byte in letter.encode())


def _seconds(ttl_s: float) -> str:
    return f"{math.ceil(ttl_s)}s"


def _whole_ns(ttl_s: float) -> int:
    return math.ceil(ttl_s) * 1_000_000_000


def _named(error: Exception) -> str:
    return str(error) if isinstance(error, NotSent) else f"{type(error).__name__}: {error}"


_LOOKS_FIRST = (
    f"{KV_DOC}: where a delete is the key's last message, create is refused first; while that "
    "answer is missing, nothing is taken"
)

SYSTEM = System(
    name="nats-kv",
    topologies=("nats-cluster", "nats"),
    family="nats",
    fence="revision of the grant",
    waits_by=f"polling, pauses of {POLL_MIN_S * 1e3:g} to {POLL_MAX_S * 1e3:g} ms",
    source=f"{KV_DOC}; {TTL_DOC}; https://github.com/nats-io/nats-server/issues/3375",
    connect=NatsKv,
    outcomes={
        "create: no connection": "Denied: no-effect",
        "create: no responders": "Denied: no-effect",
        "create: silent": "Unknown",
        "create: closes": "Unknown",
        "create: nonsense": "Unknown",
        "create: error reply": "Unknown",
        "create: wrong last sequence": "Denied: held",
        "create: in process": "Denied: held",
        "look: silent": "Denied: no-effect",
        "look: closes": "Denied: no-effect",
        "look: no responders": "Denied: no-effect",
        "look: nothing": "Denied: held",
        "create after a marker: no responders": "Denied: no-effect",
        "create after a marker: silent": "Unknown",
        "create after a marker: closes": "Unknown",
        "create after a marker: wrong last sequence": "Denied: held",
        "create after a marker: in process": "Denied: held",
        "create: granted too late": "Denied: gave-up",
        "release: no connection": "Unknown",
        "release: no responders": "Unknown",
        "release: silent": "Unknown",
        "release: closes": "Unknown",
        "release: error reply": "Unknown",
        "release: in process": "Unknown",
        "release: older last sequence": "Unknown",
        "release: wrong last sequence": "NotHeld",
    },
    expectations=NATS,
    asks_first=_LOOKS_FIRST,
    # A follower waits for up to nine seconds before it elects another leader: a fault of two leases
    # outlasts that.
    pace={"lease_ttl_s": 5.0},
    settles_s=10.0,
    bare=(Bare("nats", (KEY, "expecting put", "expecting delete")),),
)
