"""PostgreSQL: a primary and one streaming replica, asynchronous (``postgres``) or not
(``postgres-sync``: a commit waits until the replica has it on disk).

Node 1 begins as the primary. Every node has one port, for clients and for replication, and is known
everywhere as 127.0.0.1 and that port. Clients try the nodes in order and keep the first that takes
writes, as libpq does with ``target_session_attrs=read-write``.

Nothing is failed over by itself. ``promote`` is the operator's ``pg_promote``; it does not stop the
old primary, which takes writes for as long as it runs. When it is reached again, by a heal or a
restart, it is rebuilt as a replica of the new one from a base backup, as failover managers do. It
needs its links for that, so heal before you restart. A synchronous primary that was promoted
confirms no commit until then.

What serving means: a primary commits a transaction, a replica answers a query.

Needs our own image, which carries the data directory that both nodes start from.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan, Topology
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import POLL_S, Server
from lockbench.clusters.pods.linked import PROBE_LIMIT_S
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.shim import ClockedPods, by_image
from lockbench.clusters.postgres.protocol import USER, Session
from lockbench.clusters.postgres.servers import PostgresServers, write
from lockbench.clusters.wire import PROBE_FAILURES, Address, ProbeFailed

CONFIG = "/lockbench/postgresql.conf"
ACCESS = "/lockbench/pg_hba.conf"
DATA = "/lockbench/data"
REBUILT = "/tmp/rebuilt"  # noqa: S108 - in the container
# After a crash PostgreSQL syncs every file of its data directory before it serves
# (recovery_init_sync_method): 4.3 s on two busy cores.
RESTART_S = 5.0

EMPTY_LIMIT_S = 10.0
# Names come back quoted.
END_HOLDERS = (
    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend' "
    "AND pid <> pg_backend_pid() AND pid IN (SELECT pid FROM pg_locks)"
)
OTHER_DATABASES = (
    "SELECT quote_ident(datname) FROM pg_database WHERE NOT datistemplate "
    "AND datname <> current_database()"
)
SCHEMAS = (
    r"SELECT quote_ident(nspname) FROM pg_namespace "
    r"WHERE nspname NOT LIKE 'pg\_%' AND nspname <> 'information_schema'"
)

ANYBODY = "host all all 0.0.0.0/0 trust\nhost replication all 0.0.0.0/0 trust\n"
# PostgreSQL refuses to run as root.
AS_POSTGRES = ("setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups")

SETTINGS = {
    "fsync": "on",
    "synchronous_commit": "on",
    "synchronous_standby_names": "",
    "wal_retrieve_retry_interval": "200ms",
    "wal_receiver_timeout": "5s",
    "wal_sender_timeout": "5s",
    "shared_buffers": "32MB",
    "max_connections": "300",
}
SYNC_SETTINGS = {**SETTINGS, "synchronous_standby_names": "*"}


class PostgresCluster(PostgresServers, PodCluster):
    """Two servers."""

    peers = (PeerPort("postgres", of_clients=True),)
    elects = False

    def __init__(self, plan: ClusterPlan, settings: Mapping[str, str]) -> None:
        super().__init__(plan)
        self.settings = settings
        self._leads = 1  # the last node that was made the primary
        self._deposed: set[int] = set()  # was primary and may still think so

    def server(self, node: int) -> Server:
        """A primary, a replica from the image's own data, or one from a base backup."""
        config = {
            **self.settings,
            "hba_file": ACCESS,
            "listen_addresses": "*",
            "unix_socket_directories": "",
            "port": str(self.peer_port(0, node)),
            "hot_standby": "on",
            "primary_conninfo": (
                f"host=127.0.0.1 port={self.peer_port(0, self._leads)} user={USER} "
                f"application_name={self.node_name(node)}"
            ),
        }
        text = "".join(f"{name} = '{value}'\n" for name, value in config.items())
        files = {CONFIG: text.encode(), ACCESS: ANYBODY.encode()}
        command = ["postgres", "-D", DATA, "-c", f"config_file={CONFIG}"]
        if node in self._deposed:
            source = f"--host=127.0.0.1 --port={self.peer_port(0, self._leads)}"
            backup = f"pg_basebackup {source} --username={USER} --pgdata={DATA} --checkpoint=fast"
            # Once in the life of this container: it may be restarted when it leads again. The
            # primary may be starting, too.
            rebuild = (
                f"until rm -rf {DATA} && {backup}; do sleep {POLL_S}; done; "
                f"touch {DATA}/standby.signal {REBUILT}"
            )
            ready = f"test -e {REBUILT} || {{ {rebuild}; }}"
            command = ["sh", "-c", f"{ready}; exec {' '.join(command)}"]
        elif node != self._leads:
            files[f"{DATA}/standby.signal"] = b""
        return Server(
            [*AS_POSTGRES, *command],
            files=files,
            ready=[
                "pg_isready",
                "--quiet",
                "--host=127.0.0.1",
                f"--port={self.peer_port(0, node)}",
            ],
        )

    # --- roles ---

    def promotes_nobody(self) -> str | None:
        return None

    def promote(self, node: int, timeout_s: float) -> None:
        """``pg_promote`` on the replica."""
        if self.primary() == node:
            return
        try:
            with Session(self.address(HARNESS, node), timeout_s) as session:
                done = session.query(f"SELECT pg_promote(true, {max(1, round(timeout_s))})")
        except PROBE_FAILURES as error:
            raise ClusterError(f"{self.node_name(node)} was not promoted: {error}") from error
        if done != [["t"]]:
            raise ClusterError(f"{self.node_name(node)} was not promoted in {timeout_s} s")
        self._deposed.add(self._leads)
        self._deposed.discard(node)
        self._leads = node

    # --- what comes back ---

    def heal(self) -> None:
        """Restore every link; an old primary that still runs is rebuilt as a replica."""
        super().heal()
        back = self._deposed - self._killed
        if back:
            self.kill(back)
            self.restart(back)

    def restart(self, nodes: Iterable[int]) -> None:
        """Start killed nodes; an old primary is rebuilt as a replica."""
        chosen = list(nodes)
        self._each([node for node in chosen if node in self._deposed], self._replace)
        super().restart(chosen)
        self._deposed.difference_update(chosen)

    def remove_everything(self, node: int) -> None:
        """On the primary: sessions that hold a lock, advisory ones too; then every database and
        schema that is not the server's own."""
        if node != self.primary():
            return
        with Session(self.address(HARNESS, node), EMPTY_LIMIT_S) as session:
            session.query(END_HOLDERS)
            for (name,) in session.query(OTHER_DATABASES):
                session.query(f"DROP DATABASE {name} WITH (FORCE)")
            for (name,) in session.query(SCHEMAS):
                session.query(f"DROP SCHEMA {name} CASCADE")
            session.query("CREATE SCHEMA public")

    # --- verifying ---

    def _verify(self, limit_s: float) -> None:
        # First, so that a write that waits for a replica is told as what it is.
        self._poll(self._verify_replication, limit_s, "no replication")
        super()._verify(limit_s)

    def _verify_replication(self) -> None:
        """Everybody else follows the primary as declared, and has what it wrote."""
        primary, replicas = self.primary(), self.replicas()
        if primary is None or len(replicas) != self.plan.size - 1:
            raise ProbeFailed(f"primary {primary}, replicas {replicas}")
        way = "sync" if self.settings["synchronous_standby_names"] else "async"
        with Session(self.address(HARNESS, primary), PROBE_LIMIT_S) as session:
            write(session)
            ((end,),) = session.query("SELECT pg_current_wal_lsn()")
            seen = session.query(
                "SELECT application_name, state, sync_state FROM pg_stat_replication ORDER BY 1"
            )
        if seen != [[self.node_name(node), "streaming", way] for node in replicas]:
            raise ProbeFailed(f"{self.node_name(primary)} is followed by {seen}")
        for node in replicas:
            with Session(self.address(HARNESS, node), PROBE_LIMIT_S) as session:
                behind = f"SELECT pg_last_wal_replay_lsn() >= '{end}'"
                if session.query(behind) != [["t"]]:
                    raise ProbeFailed(f"{self.node_name(node)} has not replayed {end}")


class OurPostgres(ClockedPods, PostgresCluster):
    """Servers of our own image. What they have synced is not told: they sync before they answer."""

    def read_clock_s(self, node: int, address: Address, limit_s: float) -> float:
        with Session(address, limit_s) as session:
            ((found,),) = session.query("SELECT extract(epoch from clock_timestamp())")
        return float(str(found))


TOPOLOGIES = tuple(
    Topology(
        name=name,
        sizes=(2,),
        default_size=2,
        images=("postgres",),
        settings={"nodes": "primary and streaming replica", **settings},
        make=by_image(PostgresCluster, OurPostgres, settings=settings),
        quorum=False,
        fails_over=True,
        restart_s=RESTART_S,
    )
    for name, settings in (("postgres", SETTINGS), ("postgres-sync", SYNC_SETTINGS))
)
