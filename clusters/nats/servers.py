"""NATS with JetStream on disk: one server (``nats``), or three with a bucket that has a replica on
each (``nats-cluster``).

``sync_interval: always`` syncs every message before it is acknowledged. NATS' own default is two
minutes, with which a loss of power loses what was acknowledged
(https://jepsen.io/analyses/nats-2.12.1). A stream is a Raft group of its own. Its followers wait
four to nine seconds for a leader before they elect one, and a leader without a majority goes on for
ten; no setting changes that (server/raft.go of v2.15.2, minElectionTimeoutDefault and after).

The bucket is made when the cluster is verified, and by the next probe where a server has lost it.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from lockbench.clusters.base import HARNESS, Topology
from lockbench.clusters.nats import bucket
from lockbench.clusters.nats.protocol import NoResponders, Session, greeted
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import Server, http_ok
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.wire import PROBE_FAILURES, Address, Http, Line, ProbeFailed

CONFIG = "/lockbench/nats.json"
DATA = "/lockbench/data"
HERE = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - in its pod
MONITOR = 50  # the first port for monitoring, within the cluster's block
EMPTY_LIMIT_S = 10.0
ASK_LIMIT_S = 0.5
PROBES = "lockbench-probe."  # how the keys of probes begin

SETTINGS = {"sync_interval": "always"}
CLUSTER_SETTINGS = {**SETTINGS, "num_replicas": "3", "election timeout": "4 to 9 s"}


class NatsServers(PodCluster):
    """Servers that are asked alike, alone or together.

    Neither ``Clocked`` nor ``Syncing``: a Go program reads the clock and syncs its files without
    the C library, where ``lockbench.clusters.pods.shim`` stands. Not ``Recorded``: the bucket keeps
    the last message of each key.
    """

    kind = "nats"

    def config(self, node: int) -> dict[str, Any]:
        """The configuration of a server; NATS reads JSON, too."""
        return {
            "server_name": self.node_name(node),
            "host": EVERYWHERE,
            "port": self.port(node),
            "http": f"{EVERYWHERE}:{self._monitor(node)}",
            "jetstream": {"store_dir": DATA, **SETTINGS},
        }

    def server(self, node: int) -> Server:
        """A server that answers once its JetStream does."""
        return Server(
            ["nats-server", f"--config={CONFIG}"],
            files={CONFIG: json.dumps(self.config(node), indent=1).encode()},
            ready=http_ok(self._monitor(node), "/healthz", "ok"),
        )

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Put one and the same key; or one of its own, read it from the leader, and remove it."""
        key = PROBES + (secrets.token_hex(8) if read else "same")
        value = secrets.token_hex(8).encode()
        with Session(address, limit_s) as session:
            try:
                bucket.put(session, key, value, {})
            except NoResponders:  # there is no leader now, or no bucket
                bucket.make(session, self.plan.size)
                bucket.put(session, key, value, {})
            if not read:
                return
            found = base64.b64decode(bucket.newest(session, key))
            if found != value:
                raise ProbeFailed(f"wrote {value!r} and read {found!r}")
            bucket.purge(session, key)

    def check_answer(self, address: Address, limit_s: float) -> None:
        """Its greeting, also on the port for other servers."""
        with Line(address, limit_s) as line:
            greeted(line)

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Session(address, limit_s) as session:
            yield session.ping

    def remove_everything(self, node: int) -> None:
        """Every message. Every server does this alike, so one is asked."""
        if node == 1:
            with Session(self.address(HARNESS, node), EMPTY_LIMIT_S) as session:
                bucket.purge(session)

    def wipe(self, nodes: Iterable[int]) -> None:
        self._each(list(nodes), self._replace)

    def _monitor(self, node: int) -> int:
        return self._block.base + MONITOR + node


class NatsCluster(NatsServers):
    """Servers that talk to each other through one port. ``Led``, by the leader of the bucket."""

    peers = (PeerPort("route"),)

    def config(self, node: int) -> dict[str, Any]:
        """A server that advertises 127.0.0.1, which is itself everywhere."""
        return {
            **super().config(node),
            "cluster": {
                "name": "lockbench",
                "listen": f"{EVERYWHERE}:{self.peer_port(0, node)}",
                "advertise": f"{HERE}:{self.peer_port(0, node)}",
                "no_advertise": True,  # its clients are told nothing of other servers
                # Itself too, and ignored: how many there are is how many make a majority at first.
                "routes": [f"nats://{HERE}:{self.peer_port(0, j)}" for j in self.nodes],
            },
        }

    def leader(self) -> int | None:
        """The node that a majority calls leader. One that was cut off has only its own word."""
        votes = Counter(self._each(self.nodes, self._leader_of))
        for node in self.nodes:
            if votes[self.node_name(node)] > self.plan.size // 2:
                return node
        return None

    def _leader_of(self, node: int) -> str:
        """Whom a server calls the bucket's leader, by its name; empty when it knows none or does
        not answer."""
        try:
            with Http((self._pods[node].ip, self._monitor(node)), ASK_LIMIT_S) as http:
                return leader_in(json.loads(http.get("/jsz?accounts=true&streams=true")))
        except (*PROBE_FAILURES, LookupError, TypeError):
            return ""


def leader_in(said: Any) -> str:
    """The name of the bucket's leader, of what a server's monitoring says of its streams; empty
    where it has none. Raises LookupError and TypeError for what is nothing of the kind."""
    for account in said.get("account_details", []):
        for stream in account.get("stream_detail", []):
            if stream["name"] == bucket.STREAM:
                return str(stream["cluster"].get("leader", ""))
    return ""


TOPOLOGIES = (
    Topology(
        name="nats",
        sizes=(1,),
        default_size=1,
        images=("nats",),
        settings=SETTINGS,
        make=NatsServers,
        quorum=False,
    ),
    Topology(
        name="nats-cluster",
        sizes=(3,),
        default_size=3,
        images=("nats",),
        settings=CLUSTER_SETTINGS,
        make=NatsCluster,
        quorum=True,
    ),
)
