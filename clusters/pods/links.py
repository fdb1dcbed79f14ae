"""The links of a cluster, and what each way of cutting does to them. Pure: nothing is contacted.

A link is one Toxiproxy proxy. A client link sits in the pod of the node it leads to; a link between
nodes sits in the pod of the node it starts from, so that nothing a node sends gets around it.

*drop*: connections hang, what is sent is lost, new connections are accepted and hang; healing
closes them all. *stall*: the same, but what is sent is kept and delivered after the heal.
*reject*: connections are closed, new ones refused (through a published port: closed at once).

One way, the kernel still acknowledges and connections still open: only what programs say is lost. A
drop ends the connections at the heal, both ways, since a stream with a hole must not go on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from lockbench.clusters.base import HARNESS, NETWORKS, ClusterError, Cut, Edge, Shape

# How the names of links begin whose refused dials are tried again, and how Toxiproxy is told.
PATIENT = "patient-"
PATIENT_ENV = {"LOCKBENCH_PATIENT_LINKS": PATIENT}

# Of a connection: what its opener sends, and what it is answered.
Direction = Literal["upstream", "downstream"]
BOTH: Sequence[Direction] = ("upstream", "downstream")


@dataclass(frozen=True, slots=True)
class PeerPort:
    """A port on which the servers of a cluster talk to each other.

    ``drop_as`` is what a drop does to it: *reject* for a listener that a silent connection blocks.
    ``patient``: the link tries a refused dial again, in the place of a client that would do so if
    it were refused, but not when it is hung up on (``images/toxiproxy/patience.go``).
    ``of_clients``: it is the port that clients use.
    """

    name: str
    drop_as: Literal["drop", "reject"] = "drop"
    patient: bool = False
    of_clients: bool = False


@dataclass(frozen=True, slots=True)
class Stream:
    """What one direction of a link suffers. The fields are those of our toxic
    (``images/toxiproxy/link_toxic.go``); all empty: nothing."""

    cut: Literal["", "drop", "stall"] = ""
    latency_us: int = 0
    jitter_us: int = 0
    rate_kb_s: int = 0
    slice_bytes: int = 0
    slice_delay_us: int = 0


@dataclass(frozen=True, slots=True)
class Link:
    """What a link is to be. ``streams`` is empty for the harness' own: nothing is put there."""

    enabled: bool = True
    streams: Mapping[Direction, Stream] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProxyCut:
    """What to cut of one proxy: refuse connections, or cut these streams."""

    pod: int
    proxy: str
    how: Cut
    streams: Sequence[Direction] = BOTH


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where a link is."""

    pod: int
    name: str


def shaped(shape: Shape) -> Link:
    """Say what a link of this shape is. ClusterError: a figure is negative."""
    common = (shape.jitter_us, shape.rate_kb_s, shape.slice_bytes, shape.slice_delay_us)
    if min(shape.request_latency_us, shape.reply_latency_us, *common) < 0:
        raise ClusterError(f"no figure of a link's shape may be negative: {shape}")
    return Link(
        streams={
            "upstream": Stream("", shape.request_latency_us, *common),
            "downstream": Stream("", shape.reply_latency_us, *common),
        }
    )


def base(network: str) -> Link:
    """Say what a link is while nothing is wrong with it. ClusterError: no such network."""
    if network not in NETWORKS:
        raise ClusterError(f"no network is called {network}; there are {', '.join(NETWORKS)}")
    return shaped(NETWORKS[network])


def client_link(group: int) -> str:
    """Name the proxy of a client group, in the pod that it leads to."""
    return f"client-{group}"


def peer_link(port: PeerPort, target: int) -> str:
    """Name the proxy towards a node, in the pod that it starts from."""
    return f"{PATIENT if port.patient else ''}{port.name}-{target}"


def edges(nodes: Sequence[int], groups: int, peers: Sequence[PeerPort]) -> list[Edge]:
    """List every link: between nodes where they talk to each other, and from every group."""
    between = [Edge(i, j) for i in nodes for j in nodes if i != j] if peers else []
    return between + [Edge(-g, j) for g in range(1, groups + 1) for j in nodes]


def proxies(edge: Edge, peers: Sequence[PeerPort]) -> list[tuple[Proxy, PeerPort | None]]:
    """List the proxies of a link, with the port that each leads to. ClusterError: the harness'."""
    if HARNESS in {edge.source, edge.target}:
        node = max(edge.source, edge.target)
        raise ClusterError(f"the harness' own link to node {node} is never cut or slowed")
    if edge.target < 0:
        raise ClusterError(f"no link starts at node {edge.source} and leads to a client group")
    if edge.source < 0:
        return [(Proxy(edge.target, client_link(-edge.source)), None)]
    return [(Proxy(edge.source, peer_link(port, edge.target)), port) for port in peers]


def cut_plan(edges_: Iterable[Edge], how: Cut, peers: Sequence[PeerPort]) -> list[ProxyCut]:
    """Say what cutting these links both ways means. ClusterError: an edge of the harness."""
    return [
        ProxyCut(proxy.pod, proxy.name, port.drop_as if port and how == "drop" else how)
        for edge in edges_
        for proxy, port in proxies(edge, peers)
    ]


def one_way_plan(edges_: Iterable[Edge], how: Cut, peers: Sequence[PeerPort]) -> list[ProxyCut]:
    """Say what cutting all that ``source`` sends to ``target`` means.

    That is the requests on the link from one to the other, and the replies on the link back. A port
    that a silent connection blocks is cut like the others: refusing would cut both ways.
    ClusterError: *reject*, which has no direction, or an edge of the harness.
    """
    if how == "reject":
        raise ClusterError("a refusal has no direction: only drop and stall cut one way")
    plan = []
    for edge in edges_:
        if edge.source < 0 and edge.target < 0:
            raise ClusterError(f"client groups have no links between them: {edge}")
        ways: list[tuple[Edge, Direction]] = []
        if edge.target >= 0:
            ways.append((edge, "upstream"))
        if edge.source >= 0:
            ways.append((Edge(edge.target, edge.source), "downstream"))
        plan += [
            ProxyCut(proxy.pod, proxy.name, how, (direction,))
            for link, direction in ways
            for proxy, _ in proxies(link, peers)
        ]
    return plan
