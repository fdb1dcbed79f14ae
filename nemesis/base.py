"""What a fault is.

A fault is injected between two readings of the clock, proven by a probe that must fail while it is
on, healed whatever happens, and proven healed by the same probe. It knows capabilities of clusters
and clients, never a system's or a lock's name.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from clusters.base import Cluster


class NemesisError(Exception):
    """A fault could not be injected or healed; the message says which and where."""


class Clients(Protocol):
    """What can be done to the load's clients."""

    def hold(self, timeout_s: float) -> int | None:
        """Makes the victim keep its next grant until ``let_go`` or shortly before its promise ends.
        Returns the hold's id once it is held, None if it got no grant in time."""

    def promise_left_s(self) -> float:
        """How long the kept hold is still promised; 0 when nothing is kept."""

    def let_go(self) -> None: ...

    @property
    def victim_worker(self) -> int:
        """Number of the worker process that client faults are aimed at."""

    def freeze(self) -> None:
        """Stops the victim's process (SIGSTOP)."""

    def thaw(self) -> None: ...

    def frozen(self) -> bool:
        """Whether the kernel says that it is stopped."""


@dataclass(frozen=True, slots=True)
class Injection:
    """One fault of a schedule, fully resolved: when it begins, in seconds after the start of the
    contended phase, how long it lasts, and the seed of its own draws."""

    fault: str
    begin_s: float
    duration_s: float
    seed: int = 0


@dataclass
class Arena:
    """What a fault works on while it happens, and what it found out (``facts``, JSON values)."""

    cluster: Cluster
    clients: Clients
    injection: Injection
    lease_ttl_s: float
    facts: dict[str, object] = field(default_factory=dict)
    targets: tuple[int, ...] = ()

    @property
    def rng(self) -> random.Random:
        """The same draws whenever the schedule is played again."""
        return random.Random(self.injection.seed)

    def names(self) -> tuple[str, ...]:
        return tuple(self.cluster.node_name(node) for node in self.targets)


class Fault(ABC):
    """One kind of fault. Instances hold no state: everything about one injection is in the arena.

    ``rules`` are what must have been true for the fault to have been able to hurt; the checker
    decides them from the history (``checker.exposure``).
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    rules: ClassVar[tuple[str, ...]]
    # Whether the victim goes on holding after the heal, until its promise ends: what comes back
    # from a restart is only tested by a promise that outlives it.
    outlived: ClassVar[bool] = False

    @abstractmethod
    def unfit(self, cluster: Cluster) -> str | None:
        """Why this fault cannot be applied to the cluster, or None."""

    @abstractmethod
    def duration_s(self, lease_ttl_s: float) -> float:
        """How long it lasts by default."""

    @abstractmethod
    def aim(self, arena: Arena) -> None:
        """Resolves ``arena.targets`` now, when roles are known."""

    @abstractmethod
    def begin(self, arena: Arena) -> None: ...

    @abstractmethod
    def took_effect(self, arena: Arena) -> bool:
        """The probe: True only while the fault is on."""

    @abstractmethod
    def heal(self, arena: Arena) -> None:
        """Undoes it; safe to call whether or not ``begin`` got through."""

    @abstractmethod
    def recovered(self, arena: Arena) -> bool:
        """Whether what was broken serves again; asked repeatedly for a bounded time."""
