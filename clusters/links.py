"""The links of a cluster, and what each way of cutting does to them. Pure: nothing is contacted.

A link is one Toxiproxy proxy. A client link sits in the pod of the node it leads to; a link between
nodes sits in the pod of the node it starts from, so that nothing a node sends gets around it.

*drop*: connections hang, what is sent is lost, new connections are accepted and hang; healing
closes them all. *stall*: the same, but what is sent is kept and delivered after the heal.
*reject*: connections are closed, new ones refused (through a published port: closed at once).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clusters.base import HARNESS, ClusterError, Cut, Edge

HOUR_MS = 3_600_000

# How the names of links begin whose refused dials are tried again, and how Toxiproxy is told.
PATIENT = "patient-"
PATIENT_ENV = {"LOCKBENCH_PATIENT_LINKS": PATIENT}
STREAMS = ("upstream", "downstream")


@dataclass(frozen=True, slots=True)
class PeerPort:
    """A port on which the servers of a cluster talk to each other.

    ``drop_as`` is what a drop does to it: *reject* for a listener that a silent connection blocks.
    ``patient``: the link tries a refused dial again, in the place of a client that would do so if
    it were refused, but not when it is hung up on (``images/toxiproxy/patience.go``).
    """

    name: str
    drop_as: Literal["drop", "reject"] = "drop"
    patient: bool = False


@dataclass(frozen=True, slots=True)
class Toxic:
    """One toxic on one stream. Always applied to every connection, always with exact figures:
    Toxiproxy's own randomness cannot be seeded."""

    type: str
    stream: str
    attributes: Mapping[str, int]

    @property
    def name(self) -> str:
        """Unique within a proxy."""
        return f"{self.type}_{self.stream}"


@dataclass(frozen=True, slots=True)
class ProxyCut:
    """What to do to one proxy: disable it, or add these toxics in this order."""

    pod: int
    proxy: str
    toxics: Sequence[Toxic]
    disable: bool = False


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


def cut_plan(
    edges_: Iterable[Edge], how: Cut, peers: Sequence[PeerPort], paused: Iterable[int] = ()
) -> list[ProxyCut]:
    """Say what cutting these links means.

    ClusterError: an edge of the harness, or a link to be disabled that leads to a paused node.

    Disabling waits for dials under way, and a paused node may never answer one; Toxiproxy's whole
    API then hangs. A drop towards a paused node therefore drops on every port.
    """
    frozen = set(paused)
    plan = []
    for edge in edges_:
        if edge.source == HARNESS:
            raise ClusterError(f"the harness' own link to node {edge.target} is never cut")
        if how == "reject" and edge.target in frozen:
            raise ClusterError(
                f"node {edge.target} is paused: unpause it before refusing links to it"
            )
        if edge.source < 0:
            plan.append(_proxy_cut(edge.target, client_link(-edge.source), how))
            continue
        for port in peers:
            way = port.drop_as if how == "drop" and edge.target not in frozen else how
            plan.append(_proxy_cut(edge.source, peer_link(port, edge.target), way))
    return plan


def toxics(how: Cut) -> list[Toxic]:
    """Return the toxics of a cut, in order: what keeps the closing back comes first for a drop,
    or the end of a connection would slip through before bytes are dropped.

    A stall holds bytes by an hour of latency. A bandwidth of zero would do too, but cannot be let
    go safely: Toxiproxy crashes when the rate changes at the wrong moment.
    """
    kept_open = {"slow_close": {"delay": HOUR_MS}}
    if how == "drop":
        order = kept_open | {"timeout": {"timeout": 0}}
    elif how == "stall":
        order = {"latency": {"latency": HOUR_MS}} | kept_open
    else:
        return []
    return [Toxic(kind, stream, what) for stream in STREAMS for kind, what in order.items()]


def _proxy_cut(pod: int, proxy: str, how: Cut) -> ProxyCut:
    return ProxyCut(pod, proxy, toxics(how), disable=how == "reject")
