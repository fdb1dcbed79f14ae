"""What a cluster is and what can be done to it.

Capabilities are protocols: a fault asks with ``isinstance`` whether the cluster offers what it
needs, and never for a system's name.

Nodes are numbered from 1. ``127.0.0.1:port(j)`` means node j inside every pod and for the harness;
a client group g reaches node j at ``127.0.0.<1+g>:port(j)`` through a link of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

HARNESS = 0  # the client group of probes and readiness checks; never cut


class ClusterError(Exception):
    """The cluster could not be brought up, verified, broken or healed; the message says what and
    where, and what to look at."""


# What happens to a cut link: see ``clusters.links``.
Cut = Literal["drop", "stall", "reject"]


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed link. ``source`` is a node number, or the negative of a client group's number."""

    source: int
    target: int


@dataclass(frozen=True)
class Topology:
    """The declaration of a topology. ``settings`` are the server settings that decide verdicts or
    times (persistence, ticks, election timeouts), printed and recorded with every result."""

    name: str
    sizes: tuple[int, ...]  # sizes that are tried and supported
    default_size: int
    image: str
    settings: Mapping[str, str]
    make: Callable[[ClusterPlan], Cluster]
    quorum: bool  # True: has a leader and needs a majority. False: independent nodes


@dataclass(frozen=True)
class ClusterPlan:
    """What to start. ``groups`` is the number of client groups beside the harness (1..groups)."""

    topology: str
    size: int
    groups: int
    run_id: str
    lease_ttl_s: float  # systems with sessions configure their bounds so that this fits
    log_dir: str
    images: Mapping[str, str] = field(default_factory=dict)  # overrides: image name → reference


class Cluster(ABC):
    """A running cluster; a context manager whose exit removes every trace, whatever happened."""

    plan: ClusterPlan

    @property
    @abstractmethod
    def nodes(self) -> Sequence[int]:
        """1..size"""

    @abstractmethod
    def start(self) -> None:
        """Returns when verified: a leader by quorum where there is one, and a write and a read
        through every client link. Raises ClusterError, leaving nothing behind."""

    @abstractmethod
    def verify(self) -> None:
        """The same check again, bounded in time; raises ClusterError naming the link that fails."""

    @abstractmethod
    def stop(self) -> None:
        """Saves the servers' logs to ``plan.log_dir`` and removes everything. Never raises."""

    @abstractmethod
    def addresses(self, group: int) -> Sequence[tuple[str, int]]:
        """Node addresses as seen by a client group, node 1 first."""

    @abstractmethod
    def node_name(self, node: int) -> str:
        """For people: ``redis-3``."""

    @abstractmethod
    def serves(self, node: int, timeout_s: float, group: int = HARNESS) -> bool:
        """Whether this node alone completes a write or a linearizable read, sent to it over the
        link of ``group``, within ``timeout_s``. Faults are proven with it; never raises."""

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


@runtime_checkable
class Pausable(Protocol):
    """Freezes server processes (cgroup freezer): sockets stay open, clocks and TTLs run on."""

    def pause(self, nodes: Iterable[int]) -> None:
        """Freezes servers, all at once; returns when each is frozen."""

    def unpause(self, nodes: Iterable[int]) -> None:
        """Thaws servers; no error for one that is not frozen."""


@runtime_checkable
class Killable(Protocol):
    """SIGKILL and restart. The page cache survives, so what was written is kept."""

    def kill(self, nodes: Iterable[int]) -> None:
        """Kills servers, frozen ones too; returns when their processes are gone."""

    def restart(self, nodes: Iterable[int]) -> None:
        """Starts killed nodes again; returns when each answers, quorum or not (bounded)."""


@runtime_checkable
class Wipeable(Protocol):
    """A killed node can lose its data before it is restarted."""

    def wipe(self, nodes: Iterable[int]) -> None:
        """Removes the data of killed nodes."""


@runtime_checkable
class Cuttable(Protocol):
    """Links can be broken one by one, in one direction each."""

    def edges(self) -> Sequence[Edge]:
        """Every directed link between nodes, and from every client group to every node."""

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        """Cuts both streams of each link. Not atomic: callers record the interval."""

    def heal(self) -> None:
        """Restores every link to its base state, verified empty; raises ClusterError otherwise."""


@runtime_checkable
class Led(Protocol):
    """Has one leader, agreed by a quorum."""

    def leader(self) -> int | None:
        """The node that a majority calls leader, or None. Asks through the harness' links."""


@runtime_checkable
class Measurable(Protocol):
    """The cost of the link itself can be measured."""

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """Median microseconds of the system's cheapest request on one open connection to node 1:
        ``linked`` (published port and Toxiproxy) and ``direct`` (the pod's own address)."""
