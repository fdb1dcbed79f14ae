"""MariaDB: one server (``mariadb``), or three that replicate with Galera (``galera``).

Every server of Galera takes writes: a transaction runs on one of them, and is certified by all when
it commits (https://mariadb.com/docs/galera-cluster). A part without a majority refuses every query
(``wsrep_sync_wait`` and ``wsrep_dirty_reads`` are left as they come). All servers begin with the
same data, at the same position, so nobody has to copy it. They begin like a cluster whose servers
all died: each knows who was in it, and when all are there again it is that cluster
(``pc.recovery``). So does a majority that was killed, and less than that asks the others.

Servers tell each other their addresses, and take what they listen at for it, or else what a
connection comes from. So each listens on 127.0.0.1 alone, and every pod has inlets there for what
comes from the others' links. Timeouts of the group are less than half of Galera's own (5 s and
15 s): a peer is suspected after 2 s and gone after 4 s at the latest.

Needs our own image, which carries the data directory that all servers start from.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from lockbench.clusters.base import HARNESS, ClusterPlan, Topology
from lockbench.clusters.mariadb.protocol import DATABASE, USER, Session
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import Server
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.shim import ClockedPods, by_image
from lockbench.clusters.pods.toxiproxy import Listen
from lockbench.clusters.wire import Address, ProbeFailed

CONFIG = "/lockbench/my.cnf"
DATA = "/lockbench/data"
VIEW = f"{DATA}/gvwstate.dat"
RECOVER = "/lockbench/recover.sh"
PROVIDER = "/usr/lib/galera/libgalera_smm.so"
HERE = "127.0.0.1"
INLETS = 50  # the first port of an inlet, within the cluster's block
EMPTY_LIMIT_S = 10.0
ASK_LIMIT_S = 1.0
# After a crash InnoDB recovers, twice where the position has to be found first.
RESTART_S = 8.0

SETTINGS = {
    "innodb_flush_log_at_trx_commit": "1",
    "innodb_buffer_pool_size": "32M",
    "innodb_log_file_size": "16M",
    "max_connections": "300",
}
# What Galera needs (https://mariadb.com/docs/galera-cluster/galera-management/configuration).
GALERA_SETTINGS = {
    **SETTINGS,
    "binlog_format": "ROW",
    "innodb_autoinc_lock_mode": "2",
    "wsrep_slave_threads": "4",
}
PROVIDER_OPTIONS = (
    "gcache.size=16M;evs.keepalive_period=PT0.5S;evs.inactive_check_period=PT0.5S;"
    "evs.suspect_timeout=PT2S;evs.inactive_timeout=PT4S;evs.install_timeout=PT4S"
)

PROBE = "INSERT INTO probes VALUES"
OTHERS = "SELECT id FROM information_schema.processlist WHERE user = '{}' AND id <> CONNECTION_ID()"


class MariadbServers(PodCluster):
    """Servers that are asked alike, alone or together."""

    kind = "mariadb"

    def __init__(self, plan: ClusterPlan, settings: Mapping[str, str]) -> None:
        super().__init__(plan)
        self.settings = settings

    def config(self, node: int) -> dict[str, str]:
        """The options of a server."""
        return {
            **self.settings,
            "datadir": DATA,
            "user": "mysql",
            "bind_address": "0.0.0.0",  # noqa: S104 - in its pod
            "port": str(self.port(node)),
            "socket": "/tmp/mysql.sock",  # noqa: S108 - in its container
            "pid_file": "/tmp/mysql.pid",  # noqa: S108 - in its container
            "skip_name_resolve": "ON",
            "default_storage_engine": "InnoDB",
        }

    def server(self, node: int) -> Server:
        """One that starts from the image's own data."""
        lines = (f"{name} = {value}" for name, value in self.config(node).items())
        return Server(
            ["mariadbd", f"--defaults-file={CONFIG}"],
            files={CONFIG: "\n".join(("[mariadbd]", *lines, "")).encode()},
            ready=[
                *("mariadb", "--no-defaults", f"--host={HERE}", f"--port={self.port(node)}"),
                *(f"--user={USER}", "--skip-ssl", "--execute=SELECT 1"),
            ],
        )

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Commit a row of one's own; or do so, find it and delete it."""
        name = secrets.token_hex(8)
        with Session(address, limit_s) as session:
            session.query(f"{PROBE} ('{name}')")
            if not read:
                return
            if session.query(f"SELECT name FROM probes WHERE name = '{name}'") != [[name]]:  # noqa: S608
                raise ProbeFailed(f"wrote {name} and did not find it")
            session.query(f"DELETE FROM probes WHERE name = '{name}'")  # noqa: S608

    def check_answer(self, address: Address, limit_s: float) -> None:
        """A session is accepted."""
        with Session(address, limit_s):
            pass

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Session(address, limit_s) as session:
            yield session.ping

    def remove_everything(self, node: int) -> None:
        """The sessions of clients; then, on the first node, whose word the others follow, what they
        have written."""
        with Session(self.address(HARNESS, node), EMPTY_LIMIT_S) as session:
            for (other,) in session.query(OTHERS.format(USER)):
                session.query(f"KILL SOFT CONNECTION {other}")
            if node != 1:
                return
            session.query(f"DROP DATABASE {DATABASE}")
            session.query(f"CREATE DATABASE {DATABASE}")
            session.query(f"CREATE TABLE {DATABASE}.probes (name VARCHAR(32) PRIMARY KEY)")


class GaleraCluster(MariadbServers):
    """Servers that replicate."""

    peers = (PeerPort("group"), PeerPort("increments"), PeerPort("copies"))

    def config(self, node: int) -> dict[str, str]:
        """A member that is known to the others as 127.0.0.1, which is itself everywhere."""
        group = self.peer_port(0, node)
        options = (
            f"gmcast.listen_addr=tcp://{HERE}:{group}",
            f"ist.recv_addr={HERE}:{self.peer_port(1, node)}",
            PROVIDER_OPTIONS,
        )
        everybody = ",".join(f"{HERE}:{self.peer_port(0, other)}" for other in self.nodes)
        return {
            **super().config(node),
            "wsrep_on": "ON",
            "wsrep_provider": PROVIDER,
            "wsrep_cluster_name": "lockbench",
            "wsrep_cluster_address": f"gcomm://{everybody}",
            "wsrep_node_name": self.node_name(node),
            "wsrep_node_address": f"{HERE}:{group}",
            "wsrep_sst_method": "rsync",
            "wsrep_sst_receive_address": f"{HERE}:{self.peer_port(2, node)}",
            "wsrep_provider_options": f'"{";".join(options)}"',
        }

    def server(self, node: int) -> Server:
        """A member of a cluster that was whole before: with the others it makes it again."""
        server = super().server(node)
        start = " ".join((RECOVER, *server.command))
        return Server(
            ["sh", "-c", f"chown mysql {VIEW}; exec {start}"],
            files={**server.files, VIEW: self._view(node)},
            ready=server.ready,
        )

    def _view(self, node: int) -> bytes:
        """The members, as a server of Galera notes them for the time after its end."""
        members = [f"member: {_member(other)} 0" for other in self.nodes]
        lines = (
            f"my_uuid: {_member(node)}",
            *("#vwbeg", f"view_id: 3 {_member(1)} 1", "bootstrap: 0", *members, "#vwend", ""),
        )
        return "\n".join(lines).encode()

    def before_linking(self, peer: PeerPort) -> None:
        """At once: who finds nobody tries again, and only the group listens all the time."""

    def _peer_links(self, which: int, node: int, host: Callable[[int], str]) -> list[Listen]:
        """Links lead to the inlet of the pod where they end. Here is that of this pod, too."""
        others = [other for other in self.nodes if other != node]
        links = super()._peer_links(which, node, host)
        inlet = Listen(
            f"inlet-{self.peers[which].name}",
            f"0.0.0.0:{self._inlet(which, node)}",
            f"{HERE}:{self.peer_port(which, node)}",
        )
        return [
            *(
                replace(link, upstream=f"{host(other)}:{self._inlet(which, other)}")
                for link, other in zip(links, others, strict=True)
            ),
            inlet,
        ]

    def _inlet(self, which: int, node: int) -> int:
        return self._block.base + INLETS + (self.plan.size + 1) * which + node

    def _verify(self, limit_s: float) -> None:
        self._poll_nodes(self.nodes, self._verify_group, limit_s, "is not with all the others")
        super()._verify(limit_s)

    def _verify_group(self, node: int) -> None:
        with Session(self.address(HARNESS, node), ASK_LIMIT_S) as session:
            found = {row[0]: row[1] for row in session.query("SHOW STATUS LIKE 'wsrep_%'")}
        seen = {name: found.get(f"wsrep_{name}") for name in ("cluster_size", "ready")}
        if seen != {"cluster_size": str(self.plan.size), "ready": "ON"}:
            raise ProbeFailed(str(seen))


def _member(node: int) -> str:
    """A number that a member gives itself elsewhere: a time, and what is its own."""
    return f"{node}c6f636b-6265-11ee-8000-6e6f6465000{node}"


class ClockedMariadb(ClockedPods, MariadbServers):
    """Servers of our own image."""

    def read_clock_s(self, node: int, address: Address, limit_s: float) -> float:
        with Session(address, limit_s) as session:
            ((found,),) = session.query("SELECT UNIX_TIMESTAMP(SYSDATE(6))")
        return float(str(found))


class OurGalera(ClockedMariadb, GaleraCluster):
    """The same, together."""


TOPOLOGIES = (
    Topology(
        name="mariadb",
        sizes=(1,),
        default_size=1,
        images=("mariadb",),
        settings=SETTINGS,
        make=by_image(MariadbServers, ClockedMariadb, settings=SETTINGS),
        quorum=False,
        restart_s=RESTART_S,
    ),
    Topology(
        name="galera",
        sizes=(3,),
        default_size=3,
        images=("mariadb",),
        settings={**GALERA_SETTINGS, "wsrep_provider_options": PROVIDER_OPTIONS},
        make=by_image(GaleraCluster, OurGalera, settings=GALERA_SETTINGS),
        quorum=True,
        restart_s=RESTART_S,
    ),
)
