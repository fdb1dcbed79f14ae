"""The contract of a guarded store: what a lock is for, with the check where the damage would be.

A store keeps a text per key. Whoever holds the lock reads it, works, and writes it back; the
store's *guard* decides whether the write is applied. What the guard is made of (a condition of a
statement, a script, a transaction) is declared with its source and with the text that runs, which
is what a page shows to be copied.

A store keeps a record of what it applied, in its own order, by its own means (a trigger, an element
beside the write in the same script or transaction, its revisions). ``written`` reads it. From it
the checker works out whether the guard did what its rule says (``lockbench.checker.guard``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from lockbench.history import guarded
from lockbench.history.guarded import Rule
from lockbench.locks.base import Address, Unknown

# One write in a store's record.
Entry = guarded.Applied
# How the names of all that stores keep begin.
PREFIX: Final = "guarded"


class Away(Exception):
    """The store could not be asked, or refused to serve: certainly nothing was done."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What a read found: how often the key was written, and what the store calls this state."""

    version: int
    mark: Any = None


@dataclass(frozen=True, slots=True)
class Write:
    """What one hold writes, on top of what it had read. ``handle`` is what its lock knows it by
    (``lockbench.locks.base.Hold``), ``thing`` the number of the piece of work that it does."""

    key: str
    hold: int
    seen: Seen
    fence: int | None = None
    handle: Any = None
    thing: int | None = None

    @property
    def value(self) -> str:
        """The text that is stored: who wrote it, and from which state."""
        return json.dumps({"hold": self.hold, "read": self.seen.version, "fence": self.fence})


@dataclass(frozen=True, slots=True)
class Applied:
    """It was applied, and made this version, or did the thing of this number."""

    version: int


@dataclass(frozen=True, slots=True)
class Refused:
    """The guard refused it: certainly nothing was done."""


Outcome = Applied | Refused | Unknown


class GuardedStore(Protocol):
    """One client of a store. Used by one thread or greenlet."""

    def read(self, key: str) -> Seen:
        """The state of a key. Raises Away."""

    def write(self, write: Write) -> Outcome:
        """One write through the guard. Raises Away."""

    def written(self) -> list[Entry]:
        """Everything that was applied, each key in the store's order. Raises Away."""

    def close(self) -> None:
        """Drops the connections; never raises."""


@runtime_checkable
class Ledger(GuardedStore, Protocol):
    """One that knows which things were done, where its guard's rule is ``once``."""

    def done(self, key: str, thing: int) -> bool:
        """Whether a thing was done to a key. Raises Away."""


@dataclass(frozen=True)
class Guard:
    """A way to check. ``snippet`` is the text that runs, in ``language``; ``promises`` says in one
    sentence what is refused and ``source`` where that is said. ``locks``: those that it is made
    for, because it asks for their own entry, on their own cluster; none: it is made for every lock
    that has what its rule needs. ``helpers``: what its snippet begins with, where other guards of
    its store begin so, too."""

    name: str
    rule: Rule
    language: str
    snippet: str
    promises: str
    source: str
    locks: tuple[str, ...] = ()
    helpers: str = ""

    @property
    def after_helpers(self) -> str:
        """Its snippet, where the helpers are shown already."""
        return self.snippet.removeprefix(self.helpers).lstrip("\n")

    @property
    def needs_fence(self) -> bool:
        return self.rule == "newer"

    @property
    def once(self) -> bool:
        """Whether it refuses the second write of a hold, which a client sends whose answer was
        lost."""
        return self.rule in {"newer", "unchanged", "once"}


@dataclass(frozen=True)
class Where:
    """Where a store is: its servers as a client group reaches them, or a folder of this machine.
    ``topology`` is what they are; ``timeout_s`` bounds every request."""

    nodes: Sequence[Address] = ()
    folder: Path = Path()
    topology: str = ""
    timeout_s: float = 1.0


# (where, guard, whether a record is kept) → one client
Connect = Callable[[Where, Guard, bool], GuardedStore]


@dataclass(frozen=True)
class Store:
    """The declaration of a store. ``topologies`` are the clusters that it runs on, the usual one
    first; none: a folder of this machine. ``record`` says what its record is. ``loses``: why
    confirmed writes may be gone after a failover, by topology; ``forgets``: or after another fault
    at its servers, by fault. The first of ``guards`` is the
    usual one."""

    name: str
    summary: str
    topologies: tuple[str, ...]
    guards: tuple[Guard, ...]
    connect: Connect
    record: str
    loses: Mapping[str, str] = field(default_factory=dict)
    forgets: Mapping[str, str] = field(default_factory=dict)

    def guard(self, name: str) -> Guard:
        """By its name. KeyError."""
        return {guard.name: guard for guard in self.guards}[name]


ONCE_PROMISES: Final = (
    "A row is inserted if the thing that it stands for was not done before; needs no fence, but "
    "work of which each piece has a number (--workload payment)."
)
UNGUARDED: Final = "unguarded"
UNGUARDED_PROMISES: Final = "Nothing: it is what the others are compared with."


def entry(key: str, place: int, made: int, value: str) -> Entry:
    """An entry of a record from the text that was stored."""
    said = json.loads(value)
    return Entry(key, place, int(said["hold"]), made, int(said["read"]), said["fence"])
