"""An etcd cluster: Raft, every write synced to disk before it is acknowledged.

Heartbeat and election timeout are etcd's defaults, so a majority that has lost its leader writes
again after one to two seconds. Probes go through the JSON gateway, as etcd3gw does.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from lockbench.clusters.base import HARNESS, Change, ClusterError, ServerLog, Topology
from lockbench.clusters.etcd.members import EtcdMembers, encoded
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import Server, http_ok
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.wire import PROBE_FAILURES, Address, Http, ProbeFailed

DATA = "/lockbench/data"
HISTORY_LIMIT_S = 20.0
EMPTY_LIMIT_S = 10.0

SETTINGS = {
    "heartbeat-interval": "100",
    "election-timeout": "1000",
    "fsync": "every write",
}


class EtcdCluster(EtcdMembers, PodCluster):
    """Members that talk to each other through one peer port.

    A booting member asks its peers who is there, and when one of them is reached but does not
    answer yet, it waits a second: so links come when all serve.

    Neither ``Clocked`` nor ``Syncing``: a Go program reads the clock and syncs its files without
    the C library, where ``lockbench.clusters.pods.shim`` stands. Leases are measured by the
    monotonic clock. ``Recorded``: nothing compacts, so a watch from the first revision tells of
    all.
    """

    record_name = "etcd's revisions"
    peers = (PeerPort("peer"),)

    def server(self, node: int) -> Server:
        """A member that advertises 127.0.0.1, which is itself everywhere."""
        members = ",".join(
            f"{self.node_name(j)}=http://127.0.0.1:{self.peer_port(0, j)}" for j in self.nodes
        )
        options = {
            "name": self.node_name(node),
            "data-dir": DATA,
            "listen-peer-urls": f"http://0.0.0.0:{self.peer_port(0, node)}",
            "initial-advertise-peer-urls": f"http://127.0.0.1:{self.peer_port(0, node)}",
            "listen-client-urls": f"http://0.0.0.0:{self.port(node)}",
            "advertise-client-urls": f"http://127.0.0.1:{self.port(node)}",
            "initial-cluster": members,
            "initial-cluster-state": "new",
            "initial-cluster-token": self.id,
            "heartbeat-interval": SETTINGS["heartbeat-interval"],
            "election-timeout": SETTINGS["election-timeout"],
            "log-level": "warn",
        }
        return Server(
            ["etcd", *(f"--{name}={value}" for name, value in options.items())],
            ready=http_ok(self.port(node), "/health", "true"),
        )

    def server_logs(self) -> Sequence[ServerLog]:
        """All revisions, up to one that is made for it, as any member that serves tells them."""
        said = ""
        for node in self.nodes:
            try:
                revisions = self._revisions(self.address(HARNESS, node))
                return [ServerLog("etcd", "etcd", revisions)]
            except (*PROBE_FAILURES, KeyError, TypeError) as error:
                said = f"{self.node_name(node)}: {error}"
        raise ClusterError(f"no member tells its revisions; {said}")

    def _revisions(self, address: Address) -> list[Change]:
        last = f"{self.probes}probe/{secrets.token_hex(8)}"
        with Http(address, HISTORY_LIMIT_S) as http:
            http.post("/v3/kv/put", {"key": encoded(last), "value": ""})
            everything = {"key": encoded("\0"), "range_end": encoded("\0"), "start_revision": 1}
            found: list[Change] = []
            for message in http.stream("/v3/watch", {"create_request": everything}):
                result = message["result"]
                if result.get("canceled"):
                    raise ProbeFailed(f"the watch of all revisions ended: {result}")
                for event in result.get("events", []):
                    found.append(_change(event))
                    if found[-1].name == last:  # others may write behind it
                        return found
        raise ProbeFailed("the watch of all revisions ended before the last one")

    def remove_everything(self, node: int) -> None:
        """Every lease, and with it the keys that end with it; then every other key. Every member
        does this alike, so one is asked."""
        if node != 1:
            return
        with Http(self.address(HARNESS, node), EMPTY_LIMIT_S) as http:
            for lease in http.post("/v3/lease/leases", {}).get("leases", []):
                with suppress(ProbeFailed):  # it has ended meanwhile
                    http.post("/v3/lease/revoke", {"ID": lease["ID"]})
            http.post("/v3/kv/deleterange", {"key": encoded("\0"), "range_end": encoded("\0")})

    def commands(self, address: Address, limit_s: float) -> int:
        """Messages that gRPC has received from clients, which is what the JSON gateway turns each
        request into; heartbeats and watches included."""
        with Http(address, limit_s) as http:
            lines = http.get("/metrics").decode().splitlines()
        received = [line for line in lines if line.startswith("grpc_server_msg_received_total{")]
        if not received:
            raise ProbeFailed("its metrics do not tell how many messages were received")
        return sum(round(float(line.rpartition(" ")[2])) for line in received)


def _change(event: Any) -> Change:
    """One event of a watch, as the gateway writes it."""
    entry = event["kv"]
    name = base64.b64decode(entry["key"]).decode(errors="replace")
    place = int(entry["mod_revision"])
    if event.get("type") == "DELETE":
        return Change(place, "deleted", name)
    value = base64.b64decode(entry.get("value", "")).decode(errors="replace")
    made = entry["create_revision"] == entry["mod_revision"]
    return Change(place, "made" if made else "renewed", name, value)


TOPOLOGY = Topology(
    name="etcd",
    sizes=(3, 5),
    default_size=3,
    images=("etcd",),
    settings=SETTINGS,
    make=EtcdCluster,
    quorum=True,
    over_hosts=True,
)
