"""A ZooKeeper ensemble: every write synced to disk by a quorum before it is acknowledged.

The tick is chosen so that the lease of the run fits between the shortest and the longest session
that ZooKeeper grants (2 and 20 ticks). It also sets how fast a leader that lost its followers gives
up, and followers their leader (``syncLimit`` ticks), and how long a leader whom nobody follows
waits after a split vote (``initLimit`` ticks).

A server that is cut off asks for votes ever more rarely, by default up to once a minute, and would
come back that late after a heal. It is held to two seconds here.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from contextlib import suppress

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan, ServerLog, Topology
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import START_LIMIT_S, Server, says
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.shim import ClockedPods, by_image
from lockbench.clusters.wire import Address, Line, ProbeFailed
from lockbench.clusters.zookeeper import protocol as jute
from lockbench.clusters.zookeeper import transaction_log as txnlog
from lockbench.clusters.zookeeper.servers import ASK_LIMIT_S, ZooKeeperServers, after

CONFIG = "/lockbench/zoo.cfg"
DATA = "/lockbench/data"
EMPTY_LIMIT_S = 10.0

TICKS_PER_LEASE = 15
TICK_MS_MIN = 100

SETTINGS = {
    "tickTime": f"lease / {TICKS_PER_LEASE} (200 ms for a lease of 3 s)",
    "initLimit": "10",
    "syncLimit": "8",
    "fastleader.maxNotificationInterval": "2000 ms",
    "forceSync": "yes",
    "heap": "256 MB",
}

# What Debian's packages and the official image need to start the same server.
JVM = (
    "-Xms256m",
    "-Xmx256m",
    # On two processors and this heap the JVM would choose it too; elsewhere it would not.
    "-XX:+UseSerialGC",
    "-Dzookeeper.fastleader.maxNotificationInterval=2000",
)
JAVA = (
    "java",
    *JVM,
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-cp",
    "/usr/share/java/zookeeper.jar:/usr/share/java/slf4j-simple.jar",
    "org.apache.zookeeper.server.quorum.QuorumPeerMain",
    CONFIG,
)
OFFICIAL = ("zkServer.sh", "start-foreground", CONFIG)


class ZooKeeperCluster(PodCluster, ZooKeeperServers):
    """An ensemble. A silent connection to the election port blocks its listener, so a drop refuses
    there instead. ``Recorded``: in its leader's transaction log."""

    record_name = "ZooKeeper's transaction log"
    peers = (PeerPort("election", drop_as="reject"), PeerPort("quorum", patient=True))

    def __init__(self, plan: ClusterPlan) -> None:
        super().__init__(plan)
        self.tick_ms = max(round(1000 * plan.lease_ttl_s / TICKS_PER_LEASE), TICK_MS_MIN)

    def server(self, node: int) -> Server:
        """A server whose peers are all at 127.0.0.1, while it listens on every address."""
        config = {
            "tickTime": str(self.tick_ms),
            "initLimit": SETTINGS["initLimit"],
            "syncLimit": SETTINGS["syncLimit"],
            "forceSync": SETTINGS["forceSync"],
            "dataDir": DATA,
            "clientPort": str(self.port(node)),
            # All clients share an address.
            "maxClientCnxns": "0",
            "quorumListenOnAllIPs": "true",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,mntr,ruok,cons",
        }
        for j in self.nodes:
            config[f"server.{j}"] = f"127.0.0.1:{self.peer_port(1, j)}:{self.peer_port(0, j)}"
        text = "".join(f"{name}={value}\n" for name, value in config.items())
        return Server(
            OFFICIAL if self.plan.is_swapped(self.kind) else JAVA,
            files={CONFIG: text.encode(), f"{DATA}/myid": f"{node}\n".encode()},
            env={"JVMFLAGS": " ".join(JVM)},
            ready=says(self.port(node), "srvr", "Mode"),
        )

    def before_linking(self, peer: PeerPort) -> None:
        """Only a leader listens on its quorum port. A follower that is refused tries again in a
        tenth of a second; one that is hung up on starts a new election."""
        if peer.name != "quorum":
            return

        def somebody_leads() -> None:
            for node in self.nodes:
                with suppress(OSError), Line(self._peer_address(1, node), ASK_LIMIT_S):
                    return
            raise ProbeFailed("nobody listens on a quorum port")

        self._poll(somebody_leads, START_LIMIT_S, "no leader is elected")

    def server_logs(self) -> Sequence[ServerLog]:
        """The leader's, which has all that was ever committed and nothing else."""
        leader = self.leader()
        if leader is None:
            raise ClusterError("zookeeper has no leader whose transaction log could be read")
        try:
            files = self._engine_of(leader).read_folder(self._server(leader), f"{DATA}/version-2")
            changes = txnlog.changes(files)
        except (txnlog.UnreadableLog, struct.error) as error:
            missing = f"{self.node_name(leader)}: {error}"
            return [ServerLog("zookeeper", "zookeeper", (), partial=missing)]
        except EngineError as error:
            raise ClusterError(f"{self.node_name(leader)}: {error}") from error
        return [ServerLog("zookeeper", "zookeeper", changes)]

    def _verify(self, limit_s: float) -> None:
        """A server that does not serve yet prints a stack trace for every session that it refuses,
        while it has better things to do."""
        self._poll_nodes(self.nodes, self._verify_mode, limit_s, "neither leads nor follows")
        super()._verify(limit_s)

    def _verify_mode(self, node: int) -> None:
        said = jute.four_letters(self.address(HARNESS, node), "srvr", ASK_LIMIT_S)
        if "Mode: " not in said:
            raise ProbeFailed(said.strip())

    def remove_everything(self, node: int) -> None:
        """Every node but ZooKeeper's own. All servers have the same tree, so one is asked."""
        if node != 1:
            return
        at = self.address(HARNESS, node)
        with jute.Session(at, EMPTY_LIMIT_S, session_ms=self._session_ms) as session:
            paths = [path for path in session.children("/") if path != "/zookeeper"]
            for path in paths:  # those below are added meanwhile
                paths += session.children(path)
            for path in reversed(paths):
                session.delete(path)
            session.end()

    def check_answer(self, address: Address, limit_s: float) -> None:
        """It says that it is in good order, with or without a quorum."""
        if "imok" not in jute.four_letters(address, "ruok", limit_s):
            raise ProbeFailed("no answer to ruok")

    def commands(self, address: Address, limit_s: float) -> int:
        """Packets that clients have sent, heartbeats included."""
        said = jute.four_letters(address, "mntr", limit_s)
        return round(float(after(said, "zk_packets_received\t")))


class OurZooKeeperCluster(ClockedPods, ZooKeeperCluster):
    """An ensemble of our own image, whose wall clock can be moved: times of nodes, certificates,
    logs. Sessions and elections are measured by the monotonic clock. Not ``Syncing``: the log is
    written into space that was allocated before, so its length does not tell what is synced."""

    def read_clock_s(self, node: int, address: Address, limit_s: float) -> float:
        """Open a session and ask when its connection began, which this server notes by itself; the
        time of a znode would be the leader's. Takes a quorum."""
        with jute.Session(address, limit_s, session_ms=self._session_ms) as session:
            said = jute.four_letters(address, "cons", limit_s)
            session.end()
        mine = f"sid={session.id % 2**64:#x}"
        for line in said.splitlines():
            if mine in line:
                return int(re.split(r"[,)]", after(line, "est="))[0]) / 1000
        raise ProbeFailed("it does not list the session")


make = by_image(ZooKeeperCluster, OurZooKeeperCluster)

TOPOLOGY = Topology(
    name="zookeeper",
    sizes=(3, 5),
    default_size=3,
    images=("zookeeper",),
    settings=SETTINGS,
    make=make,
    quorum=True,
    over_hosts=True,
)
