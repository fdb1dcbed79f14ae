"""Redis Cluster: three primaries that share the slots, and a replica of each.

Nodes 1 to 3 begin as primaries, 4 to 6 as their replicas. Every node announces 127.0.0.1, a port
for clients and replication, and a port for the cluster bus; both have links. Replication is
asynchronous.

The nodes know each other, their roles and their slots from the first start (``nodes.conf``), as
they would after a restart. ``cluster-node-timeout`` is what is declared once all is verified.

There is a primary for each third of the slots. ``primary`` and ``replicas`` are those of the slot
of the key that faults are aimed at, ``AIMED_KEY``.

What serving means: a primary completes a write to one of its own slots, a replica a read.
https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/
"""

from __future__ import annotations

import binascii
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lockbench.clusters.base import HARNESS, Topology
from lockbench.clusters.pods.launch import Server
from lockbench.clusters.pods.linked import PROBE_LIMIT_S
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.shim import by_image
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.nodes import CONFIG, DATA, ClockedRedis
from lockbench.clusters.redis.protocol import ask_once
from lockbench.clusters.redis.replicated import ASK_LIMIT_S, PATIENT_MS, ReplicatedRedis
from lockbench.clusters.redis.replicated import SETTINGS as REPLICATED_SETTINGS
from lockbench.clusters.redis.servers import RedisServers
from lockbench.clusters.wire import PROBE_FAILURES, Address, Line, ProbeFailed

AIMED_KEY = "aimed"  # the load's, which this layer does not know; a test holds them together
PRIMARIES = 3
SIZE = 2 * PRIMARIES
SLOTS = 16384
TIMEOUT = "cluster-node-timeout"

SETTINGS = {
    "nodes": "1 to 3 begin as primaries, 4 to 6 as their replicas",
    "replication": "asynchronous",
    **REPLICATED_SETTINGS,
    TIMEOUT: "1000",
    "cluster-require-full-coverage": "yes",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A node as another one, or itself, describes it (one line of CLUSTER NODES)."""

    id: str
    port: int
    flags: frozenset[str]
    primary: str  # of a replica, the id of its primary
    slots: tuple[range, ...]

    @classmethod
    def read(cls, line: str) -> Seen:
        """ValueError for what is no such line."""
        id_, address, flags, primary, _, _, _, _, *slots = line.split()
        port = address.partition("@")[0].rpartition(":")[2]
        ranges = tuple(map(_range, (slot for slot in slots if not slot.startswith("["))))
        return cls(id_, int(port), frozenset(flags.split(",")), primary, ranges)


class ShardedServers(RedisServers):
    """Nodes of one Redis Cluster. ``Replicated``, for the slot of the aimed key."""

    def primary(self) -> int | None:
        """Whom most nodes that answer call the owner of the aimed key's slot."""
        views = [view for view in self._each(self.nodes, self._view) if view]
        owners = Counter(_owner(view, slot_of(self.key_prefix + AIMED_KEY)) for view in views)
        if not owners:
            return None
        owner, count = owners.most_common(1)[0]
        return self._node_at(owner) if count > len(views) // 2 else None

    def beside_aimed(self, key: str) -> str:
        """In the slot of the aimed key, whose name is its hash tag."""
        return f"{{{self.key_prefix}{AIMED_KEY}}}{key}"

    def replicas(self) -> Sequence[int]:
        """The nodes that follow this primary, as it says itself."""
        primary = self.primary()
        view = self._view(primary) if primary is not None else []
        mine = [seen.id for seen in view if "myself" in seen.flags]
        found = [self._node_at(seen.port) for seen in view if seen.primary in mine]
        return sorted(node for node in found if node is not None)

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """A primary's write to one of its slots, a replica's read."""
        with Line(address, limit_s) as line:
            _check(line, self.probes, read=read)

    def _view(self, node: int) -> list[Seen]:
        """The cluster as a node sees it; nothing when it does not answer."""
        try:
            said = ask_once(self.address(HARNESS, node), ASK_LIMIT_S, "CLUSTER", "NODES")
            return [Seen.read(line) for line in str(said).splitlines()]
        except PROBE_FAILURES:
            return []


class ShardedRedis(ShardedServers, ReplicatedRedis):
    """Six servers."""

    peers = (PeerPort("redis", of_clients=True), PeerPort("bus"))

    def waves(self) -> Sequence[Sequence[int]]:
        """The primaries first: each waits for two seconds before it takes writes
        (CLUSTER_WRITABLE_DELAY in src/cluster_legacy.c), in which the replicas are started."""
        return [self.nodes[:PRIMARIES], self.nodes[PRIMARIES:]]

    def server(self, node: int) -> Server:
        """A server that knows the cluster."""
        config = {
            "cluster-enabled": "yes",
            "cluster-config-file": "nodes.conf",
            "cluster-port": str(self.peer_port(1, node)),
            "cluster-announce-ip": "127.0.0.1",
            "cluster-announce-port": str(self.port(node)),
            "cluster-announce-bus-port": str(self.peer_port(1, node)),
            "cluster-require-full-coverage": SETTINGS["cluster-require-full-coverage"],
            TIMEOUT: str(PATIENT_MS),
            **REPLICATED_SETTINGS,
        }
        known = "".join(self._described(other, myself=other == node) for other in self.nodes)
        known += f"vars currentEpoch {PRIMARIES} lastVoteEpoch 0\n"
        files = {
            CONFIG: self._config(node, config.items()),
            f"{DATA}/nodes.conf": known.encode(),
        }
        return Server([f"{self.kind}-server", CONFIG], files=files, ready=self._ready(node))

    # --- roles ---

    def begin_failover(self, node: int) -> None:
        """``CLUSTER FAILOVER TAKEOVER`` on the replica, unless it was elected before."""
        at = self.address(HARNESS, node)
        if resp.items(ask_once(at, ASK_LIMIT_S, "ROLE"))[0] == "slave":
            ask_once(at, ASK_LIMIT_S, "CLUSTER", "FAILOVER", "TAKEOVER")

    # --- verifying ---

    def _verify(self, limit_s: float) -> None:
        self._poll_nodes(self.nodes, self._verify_connected, limit_s, "is not connected to all")
        # Now, because a primary that had nobody at first waits that long before it serves.
        for node in self.nodes:
            at = self.address(HARNESS, node)
            ask_once(at, PROBE_LIMIT_S, "CONFIG", "SET", TIMEOUT, SETTINGS[TIMEOUT])
            ask_once(at, PROBE_LIMIT_S, "CONFIG", "REWRITE")
        self._poll_nodes(self.nodes, self._verify_state, limit_s, "does not see a whole cluster")
        super()._verify(limit_s)
        self._poll_nodes(self.nodes, self._verify_replication, limit_s, "has no replication")

    def _verify_connected(self, node: int) -> None:
        at = self.address(HARNESS, node)
        seen = str(ask_once(at, PROBE_LIMIT_S, "CLUSTER", "NODES")).splitlines()
        away = [line for line in seen if line.split()[7] != "connected" or "fail" in line]
        if len(seen) != SIZE or away:
            raise ProbeFailed(f"it knows {len(seen)} nodes; {''.join(away[:1])}")

    def _verify_state(self, node: int) -> None:
        at = self.address(HARNESS, node)
        state = str(ask_once(at, PROBE_LIMIT_S, "CLUSTER", "INFO")).split()
        for line in ("cluster_state:ok", f"cluster_slots_ok:{SLOTS}"):
            if line not in state:
                raise ProbeFailed(f"it does not say {line}")

    def _verify_replication(self, node: int) -> None:
        with Line(self.address(HARNESS, node), PROBE_LIMIT_S) as line:
            if resp.items(resp.ask(line, "ROLE"))[0] == "master":
                _check(line, self.probes, read=True, replicas=1)

    # --- configuration ---

    def _described(self, node: int, *, myself: bool) -> str:
        """A line of nodes.conf."""
        shard = (node - 1) % PRIMARIES
        leads = node <= PRIMARIES
        at = f"127.0.0.1:{self.port(node)}@{self.peer_port(1, node)},"
        at += f",tls-port=0,shard-id={self._id(f'shard-{shard}')}"
        flags = ("myself," if myself else "") + ("master" if leads else "slave")
        primary = "-" if leads else self._id(shard + 1)
        slots = f" {_first(shard)}-{_first(shard + 1) - 1}" if leads else ""
        return f"{self._id(node)} {at} {flags} {primary} 0 0 {shard + 1} connected{slots}\n"


def slot_of(key: str) -> int:
    """The slot of a key; of ``{tag}`` in it, where it has one."""
    tag, closed, _ = key.partition("{")[2].partition("}")
    hashed = tag if closed and tag else key
    return binascii.crc_hqx(hashed.encode(), 0) % SLOTS


def _check(line: Line, prefix: str, *, read: bool, replicas: int = 0) -> None:
    view = [Seen.read(text) for text in str(resp.ask(line, "CLUSTER", "NODES")).splitlines()]
    (myself,) = (seen for seen in view if "myself" in seen.flags)
    if "master" in myself.flags:
        if myself.slots:
            tag = f"{{{_tag_in(myself.slots)}}}"
            resp.write_and_delete(line, prefix=prefix, tag=tag, read=read, replicas=replicas)
        return
    (primary,) = (seen for seen in view if seen.id == myself.primary)
    resp.ask(line, "READONLY")
    resp.ask(line, "GET", f"{prefix}probe:{{{_tag_in(primary.slots)}}}")


def _tag_in(slots: Sequence[range]) -> str:
    """A tag whose slot is one of these."""
    if not slots:
        raise ProbeFailed("its primary has no slots")
    tags = map(str, itertools.count())
    return next(tag for tag in tags if any(slot_of(tag) in part for part in slots))


def _owner(view: Sequence[Seen], slot: int) -> int | None:
    """The port of the node that owns a slot in this view."""
    owners = (seen.port for seen in view if any(slot in part for part in seen.slots))
    return next(owners, None)


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _first(shard: int) -> int:
    return shard * SLOTS // PRIMARIES


class OurShardedRedis(ClockedRedis, ShardedRedis):
    """Servers of our own image. They also keep who they are, and do not always sync that: a node
    that lost it is another node, and what becomes of it then depends on the file system."""


TOPOLOGY = Topology(
    name="redis-cluster",
    sizes=(SIZE,),
    default_size=SIZE,
    images=("redis",),
    settings=SETTINGS,
    make=by_image(ShardedRedis, OurShardedRedis),
    quorum=False,
    fails_over=True,
)
