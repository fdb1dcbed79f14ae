"""A cluster of Consul servers: Raft, every write synced to disk before it is acknowledged.

``raft_multiplier`` is what HashiCorp advises for production
(https://developer.hashicorp.com/consul/docs/reference/architecture/server), so a majority that has
lost its leader writes again after one to three seconds.

Not like Consul elsewhere: servers find each other by gossip, over UDP and TCP, and links carry TCP
alone. What of it TCP does suffices to join and to see who is there, but not to hear soon that
somebody is back. So nobody is ever declared dead (``suspicion_mult``), and the health of a server,
which is what a session is bound to by default, says nothing here. Sessions that are bound to
nothing but their TTL behave as everywhere.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lockbench.clusters.base import HARNESS, Topology
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import START_LIMIT_S, Server, http_ok
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.wire import PROBE_FAILURES, Address, Http, Line, ProbeFailed

CONFIG = "/lockbench/consul.json"
DATA = "/lockbench/data"
HERE = "127.0.0.1"
EVERYWHERE = "0.0.0.0"  # noqa: S104 - in its pod
EMPTY_LIMIT_S = 10.0
ASK_LIMIT_S = 0.5
PROBES = "lockbench-probe/"  # how the keys of probes begin

SETTINGS = {
    "raft_multiplier": "1",
    "session_ttl_min": "1s",
    "suspicion_mult": "3600",
    "http_max_conns_per_client": "0",
    "fsync": "every write",
}


class ConsulCluster(PodCluster):
    """Servers that talk to each other through a port for Raft and requests, and one for gossip.
    ``Led``.

    Neither ``Clocked`` nor ``Syncing``: a Go program reads the clock and syncs its files without
    the C library, where ``lockbench.clusters.pods.shim`` stands. Sessions are measured by the
    monotonic clock. Not ``Recorded``: Consul keeps the present, and no history of its keys.
    """

    kind = "consul"
    peers = (PeerPort("server"), PeerPort("gossip"))

    def server(self, node: int) -> Server:
        """A server that advertises 127.0.0.1, which is itself everywhere."""
        config = {
            "server": True,
            "node_name": self.node_name(node),
            "data_dir": DATA,
            "bootstrap_expect": self.plan.size,
            "retry_join": [f"{HERE}:{self.peer_port(1, j)}" for j in self.nodes if j != node],
            "retry_interval": "1s",
            "bind_addr": EVERYWHERE,
            "advertise_addr": HERE,
            "client_addr": EVERYWHERE,
            "ports": {
                "http": self.port(node),
                "server": self.peer_port(0, node),
                "serf_lan": self.peer_port(1, node),
                **dict.fromkeys(("serf_wan", "dns", "grpc", "https"), -1),
            },
            "performance": {"raft_multiplier": int(SETTINGS["raft_multiplier"])},
            "session_ttl_min": SETTINGS["session_ttl_min"],
            "gossip_lan": {"suspicion_mult": int(SETTINGS["suspicion_mult"])},
            # No limit: all clients of a node come through its link.
            "limits": {"http_max_conns_per_client": int(SETTINGS["http_max_conns_per_client"])},
            "disable_update_check": True,
            "log_level": "ERR",  # gossip warns every second that UDP brings it nothing
        }
        return Server(
            ["consul", "agent", f"-config-file={CONFIG}"],
            files={CONFIG: json.dumps(config, indent=1).encode()},
            ready=http_ok(self.port(node), "/v1/status/leader", HERE),
        )

    def before_linking(self, peer: PeerPort) -> None:
        """When all listen: neither port speaks HTTP."""
        which = self.peers.index(peer)

        def listens(node: int) -> None:
            Line(self._peer_address(which, node), ASK_LIMIT_S).close()

        self._poll_nodes(self.nodes, listens, START_LIMIT_S, f"does not listen for its {peer.name}")

    def leader(self) -> int | None:
        """The node that a majority calls leader. One that was cut off has only its own word."""
        votes = Counter(self._each(self.nodes, self._leader_of))
        for node in self.nodes:
            if votes[f"{HERE}:{self.peer_port(0, node)}"] > self.plan.size // 2:
                return node
        return None

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Put one and the same key; or one of its own, read it back consistently, delete it, and
        make and end a session, which takes a server that the leader has registered."""
        key = PROBES + (secrets.token_hex(8) if read else "same")
        value = secrets.token_hex(8)
        with Http(address, limit_s) as http:
            http.put("/v1/txn", _kv("set", key, Value=base64.b64encode(value.encode()).decode()))
            if not read:
                return
            if (found := http.get(f"/v1/kv/{key}?consistent&raw").decode()) != value:
                raise ProbeFailed(f"wrote {value} and read {found}")
            http.put("/v1/txn", _kv("delete", key))
            session = http.put("/v1/session/create", {"NodeChecks": []})["ID"]
            http.put(f"/v1/session/destroy/{session}", {})

    def check_answer(self, address: Address, limit_s: float) -> None:
        with Http(address, limit_s) as http:
            http.get("/v1/status/leader")

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Http(address, limit_s) as http:
            yield lambda: http.get("/v1/status/leader")

    def remove_everything(self, node: int) -> None:
        """Every key, then every session: one that holds nothing leaves no lock-delay behind. Every
        server does this alike, so one is asked."""
        if node != 1:
            return
        with Http(self.address(HARNESS, node), EMPTY_LIMIT_S) as http:
            http.put("/v1/txn", _kv("delete-tree", ""))
            for session in json.loads(http.get("/v1/session/list?consistent")):
                http.put(f"/v1/session/destroy/{session['ID']}", {})

    def _leader_of(self, node: int) -> str:
        """Whom a server calls leader, by its address; empty when it knows none or does not
        answer."""
        try:
            with Http(self.address(HARNESS, node), ASK_LIMIT_S) as http:
                return str(json.loads(http.get("/v1/status/leader")))
        except PROBE_FAILURES:
            return ""


def _kv(verb: str, key: str, **more: str) -> list[dict[str, dict[str, str]]]:
    """A transaction of one operation."""
    return [{"KV": {"Verb": verb, "Key": key, **more}}]


TOPOLOGY = Topology(
    name="consul",
    sizes=(3,),
    default_size=3,
    images=("consul",),
    settings=SETTINGS,
    make=ConsulCluster,
    quorum=True,
)
