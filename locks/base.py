"""The contract of every lock.

``acquire`` grants, denies or does not know; ``release`` and ``extend`` likewise. A request that
timed out or a broken connection is Unknown, never Denied. A wait that ran out and whose clean-up is
confirmed is Denied.

``valid_until_ns`` is the promise, in this machine's monotonic clock: send time of the last
acknowledged attempt, extend or heartbeat, plus the time to live that the *server* returned or
negotiated, minus drift. None only where there truly is no limit. Anchoring at the completion
instead would promise more than the server does.

A lock object belongs to one client: it has connections of its own and is used by one greenlet at a
time. Timeouts are explicit and retries are zero, so that one call is one attempt.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, runtime_checkable

from lockbench.declarations.parameters import Parameter
from lockbench.locks.bare import Bare


class Address(NamedTuple):
    """Where a client of one group reaches one node (always through that group's own link)."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class Hold:
    """One grant. ``handle`` is what the lock itself needs to give it back."""

    id: int
    key: str
    handle: Any = None


@dataclass(frozen=True, slots=True)
class Granted:
    """The lock is held. ``fence`` grows with every grant of the key, where the system has one."""

    hold: Hold
    fence: int | None
    sent_ns: int
    valid_until_ns: int | None


@dataclass(frozen=True, slots=True)
class Denied:
    """Certainly not held and nothing left behind. ``reason`` begins with ``held``, ``gave-up``
    (the wait ran out, or too late to be of use) or ``no-effect`` (refused before it was sent)."""

    reason: str


@dataclass(frozen=True, slots=True)
class Unknown:
    """The request may or may not have taken effect, now or later."""

    reason: str


@dataclass(frozen=True, slots=True)
class Released:
    """The service confirmed that this hold existed and is gone."""


@dataclass(frozen=True, slots=True)
class NotHeld:
    """The service says that this hold no longer existed."""


Acquired = Granted | Denied | Unknown
Freed = Released | NotHeld | Unknown
Extended = Granted | NotHeld | Unknown


class Lock(Protocol):
    """One client's access to a lock service."""

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """Asks for ``key`` under the id ``hold_id``, waiting up to ``wait_s`` (0: one try)."""

    def release(self, hold: Hold) -> Freed:
        """Gives a hold back. Never touches anybody else's, unless that is this lock's defect."""

    def close(self) -> None:
        """Drops the connections; never raises, never waits longer than the client timeout."""


@runtime_checkable
class Extendable(Protocol):
    """A lock whose holder can lengthen the promise."""

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        """Lets the hold live ``ttl_s`` from now, if it is still this client's."""


@runtime_checkable
class Shareable(Protocol):
    """A lock that many readers may hold together, but none of them beside a writer."""

    def acquire_shared(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        """As ``Lock.acquire``, which asks to write; this asks to read."""


class Observer(Protocol):
    """Where a lock reports what happens to a hold in the background.

    Called from the client's own process at any time between grant and release; must not block.
    """

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        """A heartbeat or renewal was acknowledged: the promise goes on without a gap."""

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        """The service or the client library announced that the hold is over. ``alive_ns``: when a
        lock that polls last saw it alive, which is when the promise ends; None: the loss is told as
        it happens."""


class NoObserver:
    """For callers that only want the lock."""

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        """Ignored."""

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        """Ignored."""


@runtime_checkable
class QueueObserver(Protocol):
    """An observer that is told of places in a queue."""

    def queued(self, key: str, hold_id: int, *, acknowledged_ns: int) -> None:
        """The service has acknowledged the place of an acquire that waits: it has had it since then
        at the latest. Told again when that place may have been lost and taken anew."""


class LockUnusableError(Exception):
    """This lock cannot be used on this machine; the message is one sentence that says why."""


class Connect(Protocol):
    """How a client is made: node addresses as its group sees them, a limit for every request."""

    def __call__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> Lock:
        """Returns at once: a server that is down is noticed by the first acquire."""


# ``undeclared`` is what silence means (``lockbench.bench.judge``); no declaration says it.
Verdict = Literal["holds", "breaks", "may-break", "n/a", "undeclared"]
# In a declaration: every verdict that is not named beside it.
ANY: Final = "*"
Kind = Literal["documented-limit", "defect", "control"]
# "none": no lock at all, but a way to do without one (``lockbench.locks.without``).
LockKind = Literal["mutex", "reentrant", "read-write", "semaphore", "none"]


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a lock is expected to do under a fault, and who says so.

    ``breaks`` only for aimed, deterministic faults: it must show within ``tries`` runs.
    """

    expected: Verdict
    source: str
    kind: Kind | None = None
    tries: int = 1

    def __post_init__(self) -> None:
        if not self.source.strip():
            raise ValueError("an expectation without a source")


@dataclass(frozen=True)
class System:
    """The declaration of a lock. ``expectations`` maps fault → verdict (or ``ANY``) → what
    is expected. A verdict that is not listed holds without a fault and under the faults that are
    listed, on the word of ``source``; a fault that is not listed is undeclared.

    ``parameters`` are what may be written behind the name (``redis-token:backoff=fixed``);
    ``connect`` takes them as keywords. ``pace`` changes the load where a lock shows what it is only
    under another one (see ``lockbench.workloads.load.Pace``). ``prepare`` builds what must be there
    before the first client; it is quick when it is there already, and raises LockUnusableError.
    """

    name: str
    topologies: tuple[str, ...]
    family: str
    fence: str | None
    waits_by: str
    source: str
    connect: Connect
    # What the client or the library says → what it means. A test holds recipes to it.
    outcomes: Mapping[str, str]
    # Of a library behind a sidecar: the errors, by class, that its documentation names, or that of
    # the client which its user gives it → where. None: what it raises is not judged.
    raises: Mapping[str, str] | None = None
    expectations: Mapping[str, Mapping[str, Expectation]] = field(default_factory=dict)
    kind: LockKind = "mutex"
    permits: int | None = None  # of a semaphore
    limited: bool = True  # whether every grant has a ``valid_until_ns``
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    pace: Mapping[str, float] = field(default_factory=dict)
    # In an exploration, where the lock needs another than that usually has.
    explored_lease_s: float | None = None
    # Who promises that waiters are served in order; the lock then tells a ``QueueObserver`` of each
    # place.
    queue: str = ""
    # Until it grants again after servers, links and clocks are whole, where that takes seconds.
    settles_s: float = 0.0
    # The longest that a client takes to go on when its connection broke or its session ended.
    recovers_s: float = 0.0
    # For how many leases the service may keep what nobody renews, where the lease is only the least
    # that it promises. Until then a frozen client has lost nothing, and a dead one's key is taken.
    kept_leases: float = 1.0
    prepare: Callable[[], None] | None = None
    # From the name and value of an entry in the service's own record to the key and hold that it
    # stands for (None: for none). Without it the record is not read: see
    # ``lockbench.locks.shared.tenures``.
    entry: Callable[[str, str], tuple[str, int] | None] | None = None
    # Where the first request of an acquire takes no lock yet: who says so. ``reply-lost`` takes
    # away the answer to that request, so nothing is left to judge.
    asks_first: str = ""
    # It differs from another lock of its family only in its settings, in who is woken or in its
    # cluster. The suite ``full`` has it only under the faults that can show that.
    variant: bool = False
    # Of locks whose clients cost alike: the name of these clients. Latencies of two systems are
    # compared through locks of one name. Empty: this lock has no part in that.
    client_family: str = ""
    # Suite that samples locks → the faults under which it has this one; ``ANY``: all of that suite.
    # ``full`` and ``exhaustive`` have every lock.
    suites: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    bare: tuple[Bare, ...] = ()  # of a recipe: what it sends when nobody is in its way
    # What the conformance tests do not ask of it (a duty is called as its test) → why.
    not_owed: Mapping[str, str] = field(default_factory=dict)
    late_release: Literal["NotHeld", "Released", "Unknown"] = "NotHeld"  # of a hold that has ended
    gives_up_s: float = 20.0  # the longest that a release and a try take while servers are silent
    # Whether all that it writes stands under its key's name, behind what its recipe puts before
    # every key, so that it may be run on servers of others (``lockbench.clusters.elsewhere``). Said
    # anew by each lock that is derived.
    elsewhere: bool = False
    writes_besides: str = ""  # what it is known to write under other names
    # With how many replicas it keeps what it promises; None: with any number.
    replicas_max: int | None = None
    represents: bool = False  # a library that ``make test`` has too, not ``make fuzz`` alone
    untested: str = ""  # why it is not tested at all

    @property
    def kinds_expected(self) -> set[str | None]:
        """Of all expectations: why a break is expected (``Expectation.kind``)."""
        return {one.kind for under in self.expectations.values() for one in under.values()}

    def derived(self, **changed: Any) -> System:
        """The declaration of another lock, which differs in what is ``changed``. It joins no suite
        and no comparison by its origin, and what its origin writes says nothing of what it does
        (``elsewhere``)."""
        plain = {"suites": {}, "client_family": "", "elsewhere": False}
        return replace(self, **{**plain, **changed})


def new_hold_id() -> int:
    """A random positive 63-bit number: unique over all workers without asking anybody."""
    return secrets.randbits(63) | 1  # not ``random``: workers may share a seed, ids must not repeat


def token_of(hold_id: int) -> str:
    """The hold's id as the token written into the lock service, so that a key names its hold."""
    return f"{hold_id:016x}"


_jitter = random.SystemRandom()  # a shared seed would make all waiters ask in the same instant


class Deadline:
    """A point in monotonic time up to which something may take."""

    __slots__ = ("at_ns",)

    def __init__(self, seconds: float) -> None:
        self.at_ns = time.monotonic_ns() + int(seconds * 1e9)

    def left_s(self) -> float:
        """Negative once it is over."""
        return (self.at_ns - time.monotonic_ns()) / 1e9

    def over(self) -> bool:
        """Whether no time is left."""
        return time.monotonic_ns() >= self.at_ns


BackoffStyle = Literal["jitter", "exponential", "fixed"]
BACKOFFS: tuple[BackoffStyle, ...] = ("jitter", "exponential", "fixed")


class Backoff:
    """Pauses between the tries of one wait, up to a ceiling that doubles from twice ``min_s`` to
    ``max_s``. ``jitter`` draws each between ``min_s`` and the ceiling, ``exponential`` takes the
    ceiling itself, ``fixed`` always the geometric mean of ``min_s`` and ``max_s``."""

    __slots__ = ("_ceiling_s", "_style", "max_s", "min_s")
    every_s: ClassVar[float | None] = None
    """How long every pause in this process is, for who wants to see the same waits each time."""

    def __init__(self, min_s: float, max_s: float, style: BackoffStyle = "jitter") -> None:
        self.min_s = min_s
        self.max_s = max_s
        self._style = style
        self._ceiling_s = min_s

    def pause(self, limit_s: float) -> None:
        """Sleeps for the next pause, but never longer than ``limit_s``."""
        time.sleep(max(0.0, min(limit_s, self._next_s())))

    def _next_s(self) -> float:
        if self.every_s is not None:
            return self.every_s
        if self._style == "fixed":
            return math.sqrt(self.min_s * self.max_s)
        self._ceiling_s = min(self.max_s, 2 * self._ceiling_s)
        if self._style == "exponential":
            return self._ceiling_s
        return _jitter.uniform(self.min_s, self._ceiling_s)
