"""What a cluster is and what can be done to it.

Capabilities are protocols: a fault asks with ``isinstance`` whether the cluster offers what it
needs, and never for a system's name.

Nodes are numbered from 1. ``127.0.0.1:port(j)`` means node j inside every pod and for the harness;
a client group g reaches node j at ``127.0.0.<1+g>:port(j)`` through a link of its own. Over several
hosts (``ClusterPlan.hosts``) that is an address of node j's host, with a port for each group.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Literal, Protocol, Self, runtime_checkable

HARNESS = 0  # the client group of probes and readiness checks; never cut


class ClusterError(Exception):
    """The cluster could not be brought up, verified, broken or healed; the message says what and
    where, and what to look at."""


# What happens to a cut link: see ``lockbench.clusters.pods.links``.
Cut = Literal["drop", "stall", "reject"]


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed link. ``source`` is a node number, or the negative of a client group's number."""

    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Shape:
    """How a link treats what crosses it. All zero: as fast as the machine."""

    request_latency_us: int = 0  # added to what the opener of a connection sends
    reply_latency_us: int = 0  # added to what it is answered
    jitter_us: int = (
        0  # at most so much more in each direction, drawn anew for what is sent at once
    )
    rate_kb_s: int = 0  # kilobytes a second in each direction; 0: no limit
    slice_bytes: int = 0  # what crosses is cut into pieces of this size; 0: it is not
    slice_delay_us: int = 0  # between two pieces


# Base states of every link, by name, as measured between machines of one provider:
# rack: a round trip of 0.2 to 0.35 ms within a zone
#   (http://orensol.com/2009/05/24/network-latency-inside-and-across-amazon-ec2-availability-zones/);
# az: 0.3 to 1.5 ms between zones of a region
#   (https://www.bitsand.cloud/posts/cross-az-latencies,
#   https://www.flashgrid.io/news/latencies-between-aws-availability-zones-what-are-they-and-how-to-minimize-them/);
# region: some 30 ms between regions of a continent (https://www.cloudping.co/).
NETWORKS: Mapping[str, Shape] = {
    "loopback": Shape(),
    "rack": Shape(request_latency_us=100, reply_latency_us=100, jitter_us=50),
    "az": Shape(request_latency_us=450, reply_latency_us=450, jitter_us=100),
    "region": Shape(request_latency_us=15_000, reply_latency_us=15_000, jitter_us=1_000),
}


@dataclass(frozen=True)
class Topology:
    """The declaration of a topology. ``settings`` are the server settings that decide verdicts or
    times (persistence, ticks, election timeouts), printed and recorded with every result."""

    name: str
    sizes: tuple[int, ...]  # sizes that are tried and supported
    default_size: int
    images: tuple[str, ...]  # of its servers, by name
    settings: Mapping[str, str]
    make: Callable[[ClusterPlan], Cluster]
    quorum: bool  # True: has a leader and needs a majority. False: independent nodes
    # Whether others take over for a server that is gone, and what was not copied is lost with it.
    fails_over: bool = False
    restart_s: float = 0.0  # what a killed server needs to serve again, where it is seconds
    # The topology in whose place other servers speak the same protocol. Every lock that declares
    # that one runs on this, too.
    in_place_of: str = ""
    # Whether each node may be on an engine of its own: no server tells a client where others are,
    # and a server reaches no other one on the port that clients use.
    over_hosts: bool = False


@dataclass(frozen=True, slots=True)
class Host:
    """Another machine with a Docker engine. ``engine`` is where the engine is reached
    (``unix:///run/a.sock``), or a command that makes a socket at ``{socket}`` lead there. At
    ``address`` it is reached by this machine and by the other hosts."""

    name: str
    engine: str
    address: str


@dataclass(frozen=True)
class ClusterPlan:
    """What to start. ``groups`` is the number of client groups beside the harness (1..groups).
    ``hosts``: one for each node; empty: all are on this machine's engine."""

    topology: str
    size: int
    groups: int
    run_id: str
    lease_ttl_s: float  # systems with sessions configure their bounds so that this fits
    log_dir: str
    images: Mapping[str, str] = field(default_factory=dict)  # overrides: image name → reference
    network: str = "loopback"  # the base state of every link but the harness' own
    keeps_records: bool = True  # of nodes that are wiped; for as long as the cluster stands
    ours: frozenset[str] = frozenset()  # of ``images``, those that a recipe of ours has made
    hosts: tuple[Host, ...] = ()

    def is_swapped(self, image: str) -> bool:
        """Whether it is one of others: it is started in another way, without our library."""
        return image in self.images and image not in self.ours


class Cluster(ABC):
    """A running cluster; a context manager whose exit removes every trace, whatever happened, or
    raises ClusterError that names what is left."""

    plan: ClusterPlan
    key_prefix: str = ""
    """How the names of a lock's keys have to begin here."""

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
    def stop(self) -> Sequence[str]:
        """Saves the servers' logs to ``plan.log_dir`` and removes everything, bounded in time. The
        names of what could not be removed, nothing as a rule. Never raises."""

    @abstractmethod
    def empty(self) -> None:
        """Removes all that clients have written, and ends their sessions where these hold
        something. Needs every server. Raises ClusterError."""

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

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        left = self.stop()
        if left and kind is None:
            raise ClusterError(f"could not be removed: {', '.join(left)}")


@runtime_checkable
class Pausable(Protocol):
    """Freezes server processes (cgroup freezer): sockets stay open, clocks and TTLs run on."""

    def pause(self, nodes: Iterable[int]) -> None:
        """Freezes servers, all at once; returns when each is frozen."""

    def unpause(self, nodes: Iterable[int]) -> None:
        """Thaws servers; no error for one that is not frozen."""

    def frozen(self, node: int) -> bool:
        """Whether the engine says that this server is frozen."""


@runtime_checkable
class Killable(Protocol):
    """SIGKILL and restart. The page cache survives, so what was written is kept."""

    def kill(self, nodes: Iterable[int]) -> None:
        """Kills servers, frozen ones too; returns when their processes are gone."""

    def restart(self, nodes: Iterable[int]) -> None:
        """Starts killed nodes again; returns when each answers, quorum or not (bounded)."""


@runtime_checkable
class Delaying(Protocol):
    """Killed servers come back only after every earlier lease has ended."""

    @property
    def restart_delay_s(self) -> float:
        """The shortest time for which a killed server stays away."""


@runtime_checkable
class Wipeable(Protocol):
    """A killed node can lose its data before it is restarted."""

    def wipe(self, nodes: Iterable[int]) -> None:
        """Removes the data of killed nodes."""


@runtime_checkable
class Cuttable(Protocol):
    """Links can be broken one by one, in both directions or in one."""

    def edges(self) -> Sequence[Edge]:
        """Every directed link between nodes, and from every client group to every node."""

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        """Cuts both streams of each link. Not atomic: callers record the interval."""

    def cut_one_way(self, edges: Iterable[Edge], how: Cut) -> None:
        """Cuts what ``source`` sends to ``target``, on connections that either side opened; what
        ``target`` sends still arrives. Here either end may be a client group: ``Edge(3, -1)`` are
        the replies of node 3 to group 1. ``reject`` has no direction: ClusterError."""

    def broken_links(self) -> Sequence[str]:
        """What is not in its base state, as Toxiproxy says: a line each."""

    def heal(self) -> None:
        """Restores every link to its base state (``ClusterPlan.network``), and sees that Toxiproxy
        says so; raises ClusterError otherwise."""


@runtime_checkable
class CutByCommand(Cuttable, Protocol):
    """Servers are cut from each other by commands, of which it is known only that they succeeded.
    What they cut is lost (*drop*), with TCP's acknowledgements; nothing else can be done to the
    links between servers."""

    sees_peers: bool
    """Whether the servers tell whom they no longer hear."""

    def apart(self, pairs: Iterable[frozenset[int]]) -> bool:
        """Whether of each of these pairs one server has said, since they were cut, that it hears
        nothing of the other. Asks the servers, at most twice a second."""


@runtime_checkable
class Shapable(Protocol):
    """Links can be made slow. ``Cuttable.heal`` restores them."""

    def shape(self, edges: Iterable[Edge], shape: Shape) -> None:
        """Gives each link this shape in place of its base state. May be called again and again on
        the same links: what changes is changed in place, connections stay open."""

    def reset(self, edges: Iterable[Edge]) -> int:
        """Ends every open connection of these links, abruptly (RST where the proxy can); new ones
        are served. Returns when the old ones are closed, how many there were on either side."""


@runtime_checkable
class Clocked(Protocol):
    """The wall clocks of servers can be moved, live; their monotonic clocks are not."""

    def shift_clock(self, nodes: Iterable[int], offset_s: float) -> None:
        """From now on these servers read the machine's wall clock plus ``offset_s`` (0: the truth
        again). Lasts across a restart of the server."""

    def clock_offset_s(self, node: int, timeout_s: float) -> float:
        """How far a server's wall clock is ahead of the machine's, as the server itself tells when
        asked over the harness' link. Raises ClusterError."""


@runtime_checkable
class Syncing(Protocol):
    """It is known which bytes a server has synced, so that a loss of power can be told apart from
    the death of a process."""

    def lose_unsynced(self, nodes: Iterable[int]) -> Mapping[int, int]:
        """Removes from the disk of killed nodes what was written after the last sync that had
        returned. Answers the bytes lost, per node."""


@runtime_checkable
class Replicated(Protocol):
    """One primary takes the writes and replicas follow it; they can take its place."""

    def primary(self) -> int | None:
        """The node that clients are sent to now, as they would find it, or None."""

    def replicas(self) -> Sequence[int]:
        """The nodes that follow the primary now."""


@runtime_checkable
class Electing(Replicated, Protocol):
    """``elects``: the system itself puts a replica in the place of a primary that it misses."""

    elects: bool


@runtime_checkable
class Promotable(Electing, Protocol):
    """A replica can be made the primary, by the system's own mechanism or as an operator would."""

    def promotes_nobody(self) -> str | None:
        """Why no replica would be promoted now if the primary died, where that is known."""

    def promote(self, node: int, timeout_s: float) -> None:
        """Returns when clients are sent to this replica, by an election already under way or by
        the operator's command for a primary that is gone. What had not been replicated is lost. No
        error where it is the primary already. Raises ClusterError."""


@runtime_checkable
class Sharded(Protocol):
    """Keys are spread over the nodes. Whoever looks for the primary means that of the aimed key."""

    def beside_aimed(self, key: str) -> str:
        """A key of such a name on the same nodes as the aimed one."""


@runtime_checkable
class Composed(Protocol):
    """Several systems side by side, each with a quorum of its own."""

    @property
    def quorums(self) -> Sequence[Sequence[int]]:
        """The nodes of each."""

    @property
    def independent(self) -> Sequence[int]:
        """The nodes of the system whose nodes know nothing of each other."""


@runtime_checkable
class Led(Protocol):
    """Has one leader, agreed by a quorum."""

    def leader(self) -> int | None:
        """The node that a majority calls leader, or None. Asks through the harness' links."""


@runtime_checkable
class Direct(Protocol):
    """Servers are reached past the links, too."""

    def direct_addresses(self) -> Sequence[tuple[str, int]]:
        """Where this machine reaches each node's server: the node's own address and port."""


@runtime_checkable
class Measurable(Protocol):
    """The cost of the link itself can be measured."""

    def link_overhead_us(self, rounds: int) -> Mapping[str, float]:
        """Median microseconds of the system's cheapest request on one open connection to node 1:
        ``linked`` (published port and Toxiproxy) and ``direct`` (the pod's own address)."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What servers (not the links) take and have used since they were started. None: unknown."""

    servers: int
    memory_bytes: int | None  # now, without file pages that the kernel would drop first
    cpu_ns: int | None
    commands: int | None  # requests as the servers count them, the question itself included

    @staticmethod
    def total(parts: Iterable[Usage]) -> Usage:
        """All of them together; what is unknown of one is unknown of all."""
        each = list(parts)
        columns = zip(*(astuple(one)[1:] for one in each), strict=True)
        totals = (None if None in column else sum(column) for column in columns)
        return Usage(sum(one.servers for one in each), *totals)


@runtime_checkable
class Metered(Protocol):
    """What the servers cost can be read while they work."""

    def usage(self) -> Usage:
        """One short question to the engine and one to each server. Raises ClusterError."""


@runtime_checkable
class Attended(Protocol):
    """Needs processes on this machine for as long as it stands, beside containers."""

    def attendants(self) -> Sequence[tuple[str, int]]:
        """Their names and numbers; each has a log of its name in ``ClusterPlan.log_dir``."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of a server's own record: the entry ``name`` was ``made`` with ``value``,
    ``renewed`` (its term was set anew) or is gone, ``deleted`` by itself, with its ``session``, or
    ``expired`` at the end of its term.

    ``place`` grows along a log. ``until_ms``: the end of the entry's term as the server noted it,
    in milliseconds of its wall clock.
    """

    place: int
    how: Literal["made", "renewed", "deleted", "session", "expired"]
    name: str
    value: str = ""
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ServerLog:
    """What one server, or all of a quorum together, did in its own order. ``lost``: the data that
    it tells of was taken away after its end; what ``server`` did from then on stands in a log of
    its own. ``partial`` says what is missing."""

    server: str
    name: str
    changes: Sequence[Change]
    lost: bool = False
    partial: str | None = None


@runtime_checkable
class Composable(Protocol):
    """What was started can be written down, to be started without Lockbench."""

    def compose(self) -> str:
        """A ``docker-compose.yml``. Raises EngineError."""


@runtime_checkable
class Recorded(Protocol):
    """Servers that keep a record of what they did, which can be read after a case."""

    record_name: str
    """For a sentence: ``etcd's revisions``."""

    def server_logs(self) -> Sequence[ServerLog]:
        """All of it, since the start. Takes a second or two. Raises ClusterError."""
