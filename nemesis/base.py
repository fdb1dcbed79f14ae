"""What a fault is.

A fault is injected between two readings of the clock, proven by a probe that must fail while it is
on, healed whatever happens, and proven healed by the same probe. It knows capabilities of clusters
and clients, never a system's or a lock's name.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from lockbench.clusters.base import Cluster
from lockbench.declarations.parameters import Parameter, Value
from lockbench.history.facts import Facts

# A fault's parameters, every one with its value.
Asked = Mapping[str, Value]

# What a fault takes hold of. Two faults that overlap must not take hold of the same.
LINKS, SERVERS, CLOCKS = "links", "servers", "clocks"
VICTIM, WORKERS = "the victim", "the workers"
OF_SERVERS = frozenset({LINKS, SERVERS, CLOCKS})


class Impossible(str):
    """Why a fault cannot be applied, where that lies in what the cluster or the lock is: it has
    nothing that the fault could take away. A reason that is a plain text is one of the bench, which
    cannot do it there; that says nothing of the lock."""

    __slots__ = ()


class NemesisError(Exception):
    """A fault could not be injected or healed; the message says which and where."""


class Clients(Protocol):
    """What can be done to the load's clients. The victim is one client in a process of its own.

    The defaults are those of a cluster without a load: nobody asks or is granted anything.
    """

    def hold(self, timeout_s: float) -> int | None:
        """Makes the victim keep its next grant until ``let_go`` or shortly before its promise ends.
        Returns the hold's id once it is held, None if it got no grant in time."""
        return None

    def promise_left_s(self) -> float:
        """How long the kept hold is still promised; 0 when nothing is kept."""
        return 0.0

    def let_go(self) -> None:
        """The victim does what it would have done: it writes, releases and goes on."""

    def stop_before_acquire(self, timeout_s: float) -> bool:
        """Makes the victim stop before its next acquire. Whether it stands there in time."""
        return False

    def go_on(self) -> None:
        """Lets the victim ask."""

    def asking(self) -> bool:
        """Whether an acquire of the victim is under way."""
        return False

    def occupy(self, timeout_s: float) -> bool:
        """Makes a rival keep the aimed key until ``vacate`` or shortly before its promise ends.
        Whether one holds it in time."""
        return False

    def vacate(self) -> None: ...

    def extend(self) -> None:
        """Tells the victim to extend the hold that it keeps, once."""

    @property
    def victim_worker(self) -> int:
        """Number of the worker process that client faults are aimed at."""
        return 0

    @property
    def other_workers(self) -> Sequence[int]:
        """Numbers of the worker processes that hold all the other clients."""
        return ()

    def group(self, worker: int) -> int:
        """The client group whose links a worker uses."""
        return worker + 1

    def freeze(self, workers: Sequence[int]) -> None:
        """Stops processes (SIGSTOP)."""

    def thaw(self, workers: Sequence[int]) -> None: ...

    def frozen(self, worker: int) -> bool:
        """Whether the kernel says that it is stopped."""
        return False

    def kill(self, workers: Sequence[int]) -> None:
        """SIGKILL, for the rest of the case; returns when they are gone, their deaths recorded."""

    def killed(self, worker: int) -> bool:
        """Whether it is gone because it was killed."""
        return False

    def shift_clock(self, offset_s: float) -> None:
        """The victim's process reads the wall clock with this offset from now on."""

    def clock_offset_s(self) -> float:
        """By how much the victim's own reading of the wall clock is off, as it says itself."""
        return 0.0


# Whose servers a fault strikes: those of the lock, or those of the store that the lock guards.
OF_LOCK, OF_RESOURCE = "lock", "resource"


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault of a schedule, fully resolved: when it begins, in seconds after the start of the
    contended phase, how long it lasts, the seed of its own draws, all of its parameters, and whose
    servers it strikes."""

    fault: str
    begin_s: float
    duration_s: float
    seed: int = 0
    parameters: tuple[tuple[str, Value], ...] = ()
    strikes: str = OF_LOCK

    @property
    def end_s(self) -> float:
        return self.begin_s + self.duration_s


@dataclass
class Arena:
    """What a fault works on while it happens, and what it found out (``facts``)."""

    cluster: Cluster
    clients: Clients
    injection: Injection
    lease_ttl_s: float
    facts: Facts = field(default_factory=Facts)
    targets: tuple[int, ...] = ()
    begun_ns: int = 0  # set once ``begin`` has returned

    def __post_init__(self) -> None:
        # The same draws whenever the schedule is played again.
        self.rng = random.Random(self.injection.seed)

    @property
    def asked(self) -> Asked:
        return dict(self.injection.parameters)

    def word(self, parameter: str) -> str:
        return str(self.asked[parameter])

    def number(self, parameter: str) -> float:
        return float(self.asked[parameter])

    @property
    def heal_due_ns(self) -> int:
        """When the heal is to begin."""
        return self.begun_ns + int(self.injection.duration_s * 1e9)

    def names(self) -> tuple[str, ...]:
        return tuple(self.cluster.node_name(node) for node in self.targets)


class Fault(ABC):
    """One kind of fault. Instances hold no state: everything about one injection is in the arena.

    ``rules`` are what must have been true for the fault to have been able to hurt; the checker
    decides them from the history (``lockbench.checker.rules``).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    during: ClassVar[str] = ""  # when something happened, in a sentence; empty: "under <name>"
    rules: ClassVar[tuple[str, ...]]
    touches: ClassVar[frozenset[str]]
    parameters: ClassVar[Mapping[str, Parameter]] = {}
    # The suites that have it beside ``exhaustive``: see ``lockbench.bench.suites``. Not inherited.
    suites: ClassVar[frozenset[str]] = frozenset()
    # How long it lasts by default, in leases.
    lasts_leases: ClassVar[float] = 1.0
    # Whether the victim goes on holding after the heal, until its promise ends: what comes back
    # from a restart is only tested by a promise that outlives it.
    outlived: ClassVar[bool] = False
    # Whether it stops a client in its work. A client that sleeps through its lease acts too late,
    # whatever the lock does: no lease prevents that, fencing does.
    stops_clients: ClassVar[bool] = False
    # Whether it ends server processes: what a server did last may be missing in what it kept.
    ends_servers: ClassVar[bool] = False
    # Whether a case can go on as before once it is over: what a random schedule may draw.
    repeatable: ClassVar[bool] = True
    # What may pass after the heal until what was struck has its part again.
    settles_s: ClassVar[float] = 0.0
    # How often ``tick`` is called while the fault is on; None: never.
    period_s: ClassVar[float | None] = None

    def __init_subclass__(cls) -> None:
        cls.suites = vars(cls).get("suites", frozenset())

    def unfit(self, cluster: Cluster, asked: Asked) -> str | None:
        """Why this fault cannot be applied to the cluster, or None. ``Impossible`` where it has
        nothing that the fault could take away."""
        del cluster, asked
        return None

    def needs_extend(self, asked: Asked) -> bool:
        """Whether it is aimed at an extend, which not every lock has."""
        del asked
        return False

    def needs_lease(self) -> bool:
        """Whether it can only hurt a grant that has an end, which not every lock's have."""
        return False

    def duration_s(self, lease_ttl_s: float, kept_leases: float = 1.0) -> float:
        """How long it lasts by default, against a lock of so many ``kept_leases``
        (``lockbench.locks.base.System``)."""
        del kept_leases
        return self.lasts_leases * lease_ttl_s

    def aim(self, arena: Arena) -> None:
        """Resolves ``arena.targets`` now, when roles are known; here it is the victim."""
        arena.facts.worker = arena.clients.victim_worker

    def stage(self, arena: Arena) -> None:
        """Brings the victim where the fault is to strike it. Raises NemesisError."""
        from lockbench.nemesis.staging import fresh_hold

        fresh_hold(arena)

    @abstractmethod
    def begin(self, arena: Arena) -> None: ...

    @abstractmethod
    def took_effect(self, arena: Arena) -> bool:
        """The probe: True only while the fault is on."""

    def shown_in_s(self, arena: Arena) -> float:
        """How long it may take until the probe shows the fault, where that is more than usual."""
        del arena
        return 0.0

    def tick(self, arena: Arena) -> None:
        """Called every ``period_s`` while the fault is on."""
        del arena

    @abstractmethod
    def heal(self, arena: Arena) -> None:
        """Undoes it; safe to call whether or not ``begin`` got through."""

    @abstractmethod
    def recovered(self, arena: Arena) -> bool:
        """Whether what was broken serves again; asked repeatedly for a bounded time."""

    def rules_for(self, arena: Arena) -> tuple[str, ...]:
        """The rules of exposure of one injection that was aimed, where they depend on its
        parameters or on what it struck."""
        del arena
        return self.rules

    def holds_of(self, asked: Asked) -> frozenset[str]:
        """What it takes hold of, where that depends on the parameters."""
        del asked
        return self.touches

    def claims(self, injection: Injection) -> frozenset[str]:
        """What an injection takes hold of; the servers of lock and resource are not the same."""
        held = self.holds_of(dict(injection.parameters))
        if injection.strikes == OF_LOCK:
            return held
        return frozenset(f"{what} of the resource" if what in OF_SERVERS else what for what in held)

    def defaults(self) -> dict[str, Value]:
        return {name: parameter.default for name, parameter in self.parameters.items()}
