"""The contract of the ways to do without a lock.

A way *does* a numbered thing to a key (sells a unit of it, charges an order) so that everything is
done once and in some order, by other means than keeping everybody else out. It is asked again with
the same number after a conflict and after an unknown outcome, as a client that delivers at least
once does.

The state lives in a real store under the faults, so that its promises are tested too: the guarded
resource, which no fault reaches, would make every way look right. All ways here use PostgreSQL,
because one store makes them comparable, and each needs no more of it than other stores offer: a
conditional update, a unique key, an append.

A way declares itself as a ``System`` of the kind ``none`` and is run like a lock, under the
workloads that say so (``inventory``, ``payment``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from lockbench.locks.base import ANY, Address, Observer, System, Unknown
from lockbench.locks.postgres.recipe import CREATORS_APART
from lockbench.locks.postgres.session import Broken, NotSent, Refused, Session, literal
from lockbench.locks.shared.expectations import SERVER_CLOCKS, SLOW_LINKS, Faults, holds, may_break
from lockbench.locks.shared.sessions import Kept, prepared

UNIQUE_VIOLATION: Final = "23505"

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Done:
    """It was done now; ``place`` is how many things had been done to the key before."""

    place: int


@dataclass(frozen=True, slots=True)
class DoneAlready:
    """It had been done before; nothing was done now."""


@dataclass(frozen=True, slots=True)
class Conflict:
    """Certainly nothing was done: somebody else was first, or the store could not be asked."""

    reason: str


Outcome = Done | DoneAlready | Conflict | Unknown


@dataclass(frozen=True, slots=True)
class Entry:
    """One thing that the store shows as done, and by whom."""

    key: str
    thing: int
    place: int
    by: int


@dataclass(frozen=True, slots=True)
class Thinking:
    """The work itself, which takes its time. ``seconds`` where that is all there is to it; None
    where the client has to be there (a fault is aimed at it)."""

    spend: Callable[[], None]
    seconds: float | None = None


@runtime_checkable
class Way(Protocol):
    """One client's access to a way."""

    def do(self, key: str, thing: int, *, by: int, work: Thinking) -> Outcome:
        """Tries once to do ``thing`` to ``key``, in the name of ``by`` (a positive number)."""

    def ledger(self) -> list[Entry]:
        """Everything that was done, as the store shows it now. Raises OSError if it cannot be
        asked."""

    def close(self) -> None:
        """Drops the connections; never raises."""


class PostgresWay(ABC):
    """One client of a way whose state is in PostgreSQL."""

    create: str
    entries: str  # selects key, thing, place, by

    def __init__(
        self,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,  # nothing here ends by itself
        observer: Observer,
    ) -> None:
        self._nodes = nodes
        self._timeout_s = timeout_s
        self._kept = Kept(self.new_session)

    @abstractmethod
    def do(self, key: str, thing: int, *, by: int, work: Thinking) -> Outcome:
        """See the contract."""

    def asked(self, ask: Callable[[Session], T]) -> T | Conflict | Unknown:
        """What came of asking the store. An error reply is certainly no effect; no reply is
        unknown."""
        try:
            return ask(self.session())
        except (NotSent, Refused) as error:
            return Conflict(f"no-effect: {error}")
        except Broken as error:
            return Unknown(str(error))

    def ledger(self) -> list[Entry]:
        try:
            rows = self.session().ask(self.entries)
        except (NotSent, Refused, Broken) as error:
            raise OSError(f"the store cannot be read: {error}") from error
        return [Entry(str(key), int(thing), int(place), int(by)) for key, thing, place, by in rows]

    def close(self) -> None:
        self._kept.close()

    def session(self) -> Session:
        """The session, made anew where the last one is gone. Raises NotSent."""
        return self._kept.get()

    def new_session(self) -> Session:
        """One of its own, with the tables there. Raises NotSent."""
        session = Session(self._nodes, timeout_s=self._timeout_s)
        return prepared(session, lambda new: new.ask(f"{CREATORS_APART}; {self.create}"))


class StatementWay(PostgresWay):
    """One client of a way that every client goes by itself."""

    @abstractmethod
    def attempt(self, session: Session, key: str, thing: int, by: int, work: Thinking) -> Outcome:
        """One try. ``key`` as it stands in a statement. Raises Refused, Broken."""

    def do(self, key: str, thing: int, *, by: int, work: Thinking) -> Outcome:
        return self.asked(lambda session: self.attempt(session, literal(key), thing, by, work))


def way(name: str, connect: type[PostgresWay], **declared: Any) -> System:
    """The declaration of a way: ``waits_by``, ``source``, and ``expectations``, ``fence`` where
    others than all have."""
    return System(
        name=name,
        topologies=("postgres", "postgres-sync"),
        family="postgres",
        connect=connect,  # type: ignore[arg-type]  # a Way, as its kind says
        outcomes=OUTCOMES,
        kind="none",
        limited=False,
        **{"fence": None, "expectations": EXPECTATIONS, **declared},
    )


ATOMIC_DOC = (
    "https://www.postgresql.org/docs/17/transaction-iso.html: an UPDATE waits for the row and then "
    "looks at its condition again"
)
FAILOVER_DOC = (
    "https://www.postgresql.org/docs/17/warm-standby.html#STREAMING-REPLICATION: asynchronous, so "
    "what the standby had not received is lost when it is promoted"
)
# A commit that was confirmed and is gone: nobody has it, or it is given out again.
EXPECTATIONS: Faults = {
    "failover": may_break(FAILOVER_DOC, "lost-charge", "oversold", "charged-twice")
}
_WAL_DOC = (
    "https://www.postgresql.org/docs/17/wal-reliability.html: 'all data recorded by a committed "
    "transaction should be stored in a nonvolatile area'"
)


def in_one_statement(source: str) -> Faults:
    """Of ways in which one statement of PostgreSQL decides, as ``source`` says: it does not matter
    who is slow, dead or wrong about the time, and what was committed is still there afterwards."""
    clients = ("client-pause", "client-gc", "client-kill", "client-clock-jump")
    decided = (*clients, *SERVER_CLOCKS, "pause", "reset", *SLOW_LINKS)
    return {
        **EXPECTATIONS,
        **dict.fromkeys(decided, holds(source, ANY)),
        **dict.fromkeys(("kill", "restart", "rolling-restart"), holds(_WAL_DOC, ANY)),
    }


OUTCOMES = {
    "no server": "Conflict: no-effect",
    "error reply": "Conflict: no-effect",
    "silent": "Unknown",
    "closes": "Unknown",
    "terminated": "Unknown",
}
