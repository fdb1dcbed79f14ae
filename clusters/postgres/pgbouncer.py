"""PostgreSQL behind PgBouncer: as ``postgres``, with a PgBouncer on the host of each server.

Clients reach the PgBouncer of a node, and it reaches the server beside it. In ``pgbouncer-session``
a client has a connection of the server for as long as it is connected, in ``pgbouncer-transaction``
until its transaction ends; the next one may get another (https://www.pgbouncer.org/features.html).
Replication does not pass through it.

What is frozen, killed or told another time is both of them. Pools are large enough for all clients
at once, so nobody waits for a connection; the one that was used last is given away first, which is
PgBouncer's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from lockbench.clusters.base import ClusterPlan, Topology
from lockbench.clusters.pods.launch import Server
from lockbench.clusters.pods.links import PeerPort
from lockbench.clusters.pods.shim import by_image
from lockbench.clusters.postgres.protocol import USER
from lockbench.clusters.postgres.replicated import (
    AS_POSTGRES,
    RESTART_S,
    SETTINGS,
    OurPostgres,
    PostgresCluster,
)

INI = "/lockbench/pgbouncer.ini"

# Without the second, clients are refused for 15 s once the server has refused PgBouncer.
POOLER_SETTINGS = {
    "default_pool_size": "200",
    "server_login_retry": "0.2",
    "max_client_conn": "1000",
}


class BehindPgBouncer(PostgresCluster):
    """Two servers, each with its PgBouncer."""

    kind = "pgbouncer"
    peers = (PeerPort("postgres"),)

    def __init__(self, plan: ClusterPlan, settings: Mapping[str, str], pool_mode: str) -> None:
        super().__init__(plan, settings)
        self._pool_mode = pool_mode

    def server(self, node: int) -> Server:
        """A server of ``postgres``, and PgBouncer as its child."""
        server = super().server(node)
        config = {
            "listen_addr": "*",
            "listen_port": str(self.port(node)),
            "unix_socket_dir": "",
            "auth_type": "any",
            "pool_mode": self._pool_mode,
            **POOLER_SETTINGS,
        }
        there = f"* = host=127.0.0.1 port={self.peer_port(0, node)} user={USER}"
        lines = (f"{name} = {value}" for name, value in config.items())
        ini = "\n".join(("[databases]", there, "[pgbouncer]", *lines, ""))
        pooler = " ".join((*AS_POSTGRES, "pgbouncer", "--quiet", INI))
        return replace(
            server,
            command=["sh", "-c", f'{pooler} & exec "$@"', "sh", *server.command],
            files={**server.files, INI: ini.encode()},
        )


class OurBehindPgBouncer(BehindPgBouncer, OurPostgres):
    """Both of our own image."""


TOPOLOGIES = tuple(
    Topology(
        name=f"pgbouncer-{pool_mode}",
        sizes=(2,),
        default_size=2,
        images=("pgbouncer",),
        settings={
            "nodes": "primary and streaming replica, each behind a PgBouncer",
            "pool_mode": pool_mode,
            **POOLER_SETTINGS,
            **SETTINGS,
        },
        make=by_image(BehindPgBouncer, OurBehindPgBouncer, settings=SETTINGS, pool_mode=pool_mode),
        quorum=False,
        fails_over=True,
        restart_s=RESTART_S,
    )
    for pool_mode in ("session", "transaction")
)
