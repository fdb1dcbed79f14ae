"""Redis with a replica, watched by three Sentinels that promote it when they miss the primary.

Nodes 1 and 2 are the Redis servers, nodes 3 to 5 the Sentinels (``DATA_NODES``, ``SENTINELS``).
Every node announces 127.0.0.1 and its one port, to which clients and other nodes go alike, so what
a Sentinel answers is right everywhere. Replication is asynchronous.

The Sentinels know each other and the replica from their first start, as they would after a restart.
``down-after-milliseconds`` is what is declared once all is verified.

What serving means: a primary completes a write, a replica a read, a Sentinel says who the primary
is. A primary that was replaced is made a replica about ten seconds after it is back. Until then it
takes writes, and they are lost.

A Sentinel that did not run for two seconds distrusts its clock for the next thirty (TILT): it
answers and promotes nobody (``promotes_nobody``). https://redis.io/docs/latest/operate/oss_and_stack/management/sentinel/
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan, Topology
from lockbench.clusters.pods.launch import Server
from lockbench.clusters.pods.linked import PROBE_LIMIT_S
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.shim import by_image
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.nodes import CONFIG, DATA, PreloadedRedis
from lockbench.clusters.redis.protocol import ask_once
from lockbench.clusters.redis.replicated import ASK_LIMIT_S, PATIENT_MS, ReplicatedRedis
from lockbench.clusters.redis.replicated import SETTINGS as DATA_SETTINGS
from lockbench.clusters.redis.servers import RedisServers
from lockbench.clusters.wire import PROBE_FAILURES, Address, Line, ProbeFailed

MASTER_NAME = "lockbench"
DATA_NODES = (1, 2)
SENTINELS = (3, 4, 5)
QUORUM = len(SENTINELS) // 2 + 1
TILTED = "sentinel_tilt:1"
TILT_S = 30.0  # SENTINEL_TILT_PERIOD in src/sentinel.c

SENTINEL_SETTINGS = {
    "down-after-milliseconds": "1000",
    "failover-timeout": "5000",
    "parallel-syncs": "1",
}
SETTINGS = {
    "nodes": "1 and 2 are Redis, 3 to 5 Sentinels",
    "replication": "asynchronous",
    **DATA_SETTINGS,
    "quorum": str(QUORUM),
    **SENTINEL_SETTINGS,
}


class SentinelServers(RedisServers):
    """Redis servers, and Sentinels behind them. ``Replicated``."""

    @property
    def sentinels(self) -> Sequence[int]:
        """The last three."""
        return self.nodes[-len(SENTINELS) :]

    @property
    def data_nodes(self) -> Sequence[int]:
        """All before them."""
        return self.nodes[: -len(SENTINELS)]

    def node_name(self, node: int) -> str:
        """For people: ``redis-1``, ``sentinel-3``."""
        return f"{'sentinel' if node in self.sentinels else self.kind}-{node}"

    def primary(self) -> int | None:
        """Where most Sentinels send clients."""
        votes = Counter(self._each(self.sentinels, self._sent_to))
        node, count = votes.most_common(1)[0]
        return node if count > len(self.sentinels) // 2 else None

    def replicas(self) -> Sequence[int]:
        """The Redis servers that were told to follow the primary, connected to it or not."""
        primary = self.primary()
        if primary is None:
            return []
        return [node for node in self.data_nodes if self._follows(node, primary)]

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """A primary's write, a replica's read, a Sentinel's word on the primary."""
        with Line(address, limit_s) as line:
            role = resp.items(resp.ask(line, "ROLE"))[0]
            if role == "master":
                resp.write_and_delete(line, prefix=self.probes, read=read)
            elif role == "slave":
                resp.ask(line, "GET", f"{self.probes}probe")
            else:
                resp.items(resp.ask(line, *_sentinel("get-master-addr-by-name")))

    def _sent_to(self, sentinel: int) -> int | None:
        """Which node this Sentinel sends clients to; None when it does not answer."""
        at = self.address(HARNESS, sentinel)
        try:
            answer = ask_once(at, ASK_LIMIT_S, *_sentinel("get-master-addr-by-name"))
            port = int(str(resp.items(answer)[1]))
        except PROBE_FAILURES:
            return None
        return self._node_at(port)

    def _follows(self, node: int, primary: int) -> bool:
        try:
            role = resp.items(ask_once(self.address(HARNESS, node), ASK_LIMIT_S, "ROLE"))
        except PROBE_FAILURES:
            return False
        return role[0] == "slave" and role[2] == self.port(primary)


def _sentinel(command: str) -> tuple[str, ...]:
    return ("SENTINEL", command, MASTER_NAME)


def seen_by(line: Line) -> Iterator[dict[str, str]]:
    """The primary, the replicas and the other Sentinels, as a Sentinel sees them. Raises OSError or
    ProbeFailed."""
    yield resp.mapping(resp.ask(line, *_sentinel("MASTER")))
    for others in ("REPLICAS", "SENTINELS"):
        yield from map(resp.mapping, resp.items(resp.ask(line, *_sentinel(others))))


class SentinelCluster(SentinelServers, ReplicatedRedis):
    """Two Redis servers and three Sentinels."""

    peers = (PeerPort("redis", of_clients=True),)

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan)
        self._first = DATA_NODES[0]  # the primary that a node without data is told of

    def server(self, node: int) -> Server:
        """A Redis server or a Sentinel, whose configuration it rewrites itself from then on."""
        sentinel = node in SENTINELS
        config = self._sentinel_config(node) if sentinel else self._data_config(node)
        command = [f"{self.kind}-server", CONFIG, *(["--sentinel"] if sentinel else [])]
        files = {CONFIG: config, f"{DATA}/.keep": b""}
        return Server(command, files=files, ready=self._ready(node))

    def wipe(self, nodes: Iterable[int]) -> None:
        """Remove the data of killed nodes. A Redis server comes back in the role it had."""
        self._first = self.primary() or self._first
        self._each(list(nodes), self._replace)

    # --- roles ---

    def promote(self, node: int, timeout_s: float) -> None:
        if node not in DATA_NODES:
            raise ClusterError(f"{self.node_name(node)} carries no data")
        super().promote(node, timeout_s)

    def promotes_nobody(self) -> str | None:
        """So it is after a jump of their clocks. When they trust them again, a replica whose
        primary died meanwhile is too stale for them (sentinelSelectSlave in src/sentinel.c)."""
        if sum(map(self._distrusts, SENTINELS)) <= len(SENTINELS) - QUORUM:
            return None
        return "after a jump of their clocks the Sentinels distrust them for 30 s (TILT)"

    def begin_failover(self, node: int) -> None:
        """The Sentinel refuses where one is under way, as it is as a rule."""
        ask_once(self.address(HARNESS, SENTINELS[0]), ASK_LIMIT_S, *_sentinel("failover"))

    # --- verifying ---

    def _verify(self, limit_s: float) -> None:
        super()._verify(limit_s)
        self._poll(self._verify_replication, limit_s, "no replication")
        # One that distrusts its clock says what it saw before.
        patience_s = limit_s + TILT_S * any(map(self._distrusts, SENTINELS))
        self._poll_nodes(SENTINELS, self._verify_sentinel, patience_s, "does not see everybody")
        for node in SENTINELS:
            for name, value in SENTINEL_SETTINGS.items():
                at = self.address(HARNESS, node)
                ask_once(at, PROBE_LIMIT_S, *_sentinel("set"), name, value)

    def _verify_replication(self) -> None:
        primary = self.primary()
        if primary is None:
            raise ProbeFailed("the Sentinels do not agree on a primary")
        with Line(self.address(HARNESS, primary), PROBE_LIMIT_S) as line:
            resp.write_and_delete(line, read=True, replicas=len(DATA_NODES) - 1)

    def _verify_sentinel(self, node: int) -> None:
        """It is connected to the primary, to the replica and to the other Sentinels."""
        with Line(self.address(HARNESS, node), PROBE_LIMIT_S) as line:
            seen = [
                resp.mapping(resp.ask(line, *_sentinel("master"))),
                *map(resp.mapping, resp.items(resp.ask(line, *_sentinel("replicas")))),
                *map(resp.mapping, resp.items(resp.ask(line, *_sentinel("sentinels")))),
            ]
        flags = sorted(one.get("flags", "") for one in seen)
        if flags != ["master", "sentinel", "sentinel", "slave"]:
            raise ProbeFailed(f"it sees {', '.join(flags)}")

    # --- asking ---

    def _distrusts(self, sentinel: int) -> bool:
        try:
            said = ask_once(self.address(HARNESS, sentinel), ASK_LIMIT_S, "INFO", "sentinel")
        except PROBE_FAILURES:
            return False
        return TILTED in str(said).split()

    # --- configuration ---

    def _data_config(self, node: int) -> bytes:
        config = {
            "replica-announce-ip": "127.0.0.1",
            "replica-announce-port": str(self.port(node)),
            **DATA_SETTINGS,
        }
        if node != self._first:
            config["replicaof"] = f"127.0.0.1 {self.port(self._first)}"
        return self._config(node, config.items())

    def _sentinel_config(self, node: int) -> bytes:
        (replica,) = (other for other in DATA_NODES if other != self._first)
        words = [
            ("myid", self._id(node)),
            ("monitor", f"{MASTER_NAME} 127.0.0.1 {self.port(self._first)} {QUORUM}"),
            ("down-after-milliseconds", f"{MASTER_NAME} {PATIENT_MS}"),
            ("known-replica", f"{MASTER_NAME} 127.0.0.1 {self.port(replica)}"),
            ("announce-ip", "127.0.0.1"),
            ("announce-port", str(self.port(node))),
        ]
        for other in SENTINELS:
            if other != node:
                known = f"{MASTER_NAME} 127.0.0.1 {self.port(other)} {self._id(other)}"
                words.append(("known-sentinel", known))
        return self._config(node, ((f"sentinel {name}", value) for name, value in words))


class OurSentinelCluster(PreloadedRedis, SentinelCluster):
    """Servers of our own image."""

    def read_clock_s(self, node: int, address: Address, limit_s: float) -> float:
        """What INFO says: a Sentinel knows no TIME."""
        said = str(ask_once(address, limit_s, "INFO", "server"))
        found = re.search(r"server_time_usec:(\d+)", said)
        if found is None:
            raise ProbeFailed("INFO server says no time")
        return int(found[1]) / 1_000_000


make = by_image(SentinelCluster, OurSentinelCluster)

TOPOLOGY = Topology(
    name="sentinel",
    sizes=(len(DATA_NODES) + len(SENTINELS),),
    default_size=len(DATA_NODES) + len(SENTINELS),
    images=("redis",),
    settings=SETTINGS,
    make=make,
    quorum=False,
    fails_over=True,
)
