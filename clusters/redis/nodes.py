"""Redis nodes that know nothing of each other: one for a plain lock, five for Redlock.

Persistence is an append-only file, written before each answer and synced once a second, no
snapshots. A killed node therefore keeps what it acknowledged (the page cache survives); one that
lost its power has lost about the last second; a wiped one has lost everything. The variants called
``-fsync`` sync before they answer, and lose nothing with the power.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan, ServerLog, Topology
from lockbench.clusters.engine.docker import EngineError
from lockbench.clusters.pods.cluster import PodCluster
from lockbench.clusters.pods.launch import Server
from lockbench.clusters.pods.shim import ClockedPods, SyncingPods, by_image
from lockbench.clusters.redis import append_only_file as aof
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.protocol import ask_once, items
from lockbench.clusters.redis.servers import RedisServers
from lockbench.clusters.wire import Address, Line, ProbeFailed

CONFIG = "/lockbench/redis.conf"
DATA = "/lockbench/data"
EMPTY_LIMIT_S = 10.0

SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
    # A key whose time is over leaves as UNLINK, and one that a client deletes as DEL (db.c,
    # propagateDeletion): the append-only file tells them apart.
    "lazyfree-lazy-expire": "yes",
}
FSYNC_SETTINGS = {**SETTINGS, "appendfsync": "always"}


class RedisPods(RedisServers, PodCluster):
    """Redis servers and Sentinels of our own, whatever their roles."""

    def remove_everything(self, node: int) -> None:
        """Every key of every database, scripts too, of a node that takes writes."""
        with Line(self.address(HARNESS, node), EMPTY_LIMIT_S) as line:
            if resp.items(resp.ask(line, "ROLE"))[0] == "master":
                resp.ask(line, "FLUSHALL")
                resp.ask(line, "SCRIPT", "FLUSH")

    def commands(self, address: Address, limit_s: float) -> int:
        """Every command counts, those of scripts and of other servers too."""
        said = str(ask_once(address, limit_s, "INFO", "stats"))
        processed = resp.fields(said).get("total_commands_processed")
        if processed is None:
            raise ProbeFailed("INFO does not tell how many commands were processed")
        return int(processed)

    def _ready(self, node: int) -> Sequence[str]:
        """`check_answer`, asked in the container."""
        return [f"{self.kind}-cli", "-e", "-p", str(self.port(node)), "PING"]

    def _config(self, node: int, more: Iterable[tuple[str, str]]) -> bytes:
        """A configuration file: what all have in common, and more."""
        common = [
            ("port", str(self.port(node))),
            ("bind", "0.0.0.0"),  # noqa: S104 - in its own namespace, for the pod's Toxiproxy
            ("protected-mode", "no"),
            ("dir", DATA),
        ]
        return "".join(f"{name} {value}\n" for name, value in [*common, *more]).encode()


class RedisNodes(RedisPods):
    """Independent nodes, each a Redis of its own. ``Recorded``: in their append-only files."""

    record_name = "Redis' append-only file"

    def __init__(self, plan: ClusterPlan, settings: Mapping[str, str] = SETTINGS) -> None:
        super().__init__(plan)
        self._settings = settings
        self._wiped: list[ServerLog] = []
        self._powerless: set[int] = set()

    def server(self, node: int) -> Server:
        """A server with the declared settings, its data in a plain directory."""
        return Server(
            [f"{self.kind}-server", CONFIG],
            # The file that nobody reads makes the directory.
            files={CONFIG: self._config(node, self._settings.items()), f"{DATA}/.keep": b""},
            ready=self._ready(node),
        )

    def wipe(self, nodes: Iterable[int]) -> None:
        """Remove the data of killed nodes, by putting new containers in their place. What it says
        of the past is kept here, where the plan says so."""
        chosen = list(nodes)
        if self.plan.keeps_records and all(node in self._killed for node in chosen):
            self._wiped += self._each(chosen, lambda node: self._server_log(node, lost=True))
        self._each(chosen, self._replace)

    def server_logs(self) -> Sequence[ServerLog]:
        """One of every node, and one of each that was wiped, up to then."""
        return [*self._wiped, *self._each(self.nodes, self._server_log)]

    def _server_log(self, node: int, *, lost: bool = False) -> ServerLog:
        server = name = self.node_name(node)
        wiped = sum(log.server == server for log in self._wiped)
        if wiped:
            name += f" after wipe {wiped}"
        if node in self._powerless:
            missing = f"{name} lost its power, and the end of its file"
            return ServerLog(server, name, (), lost, missing)
        try:
            changes = aof.changes(self._engine_of(node).read_folder(self._server(node), DATA))
        except aof.UnreadableFile as error:
            return ServerLog(server, name, (), lost, f"{name}: {error}")
        except EngineError as error:
            raise ClusterError(f"{name}: {error}") from error
        return ServerLog(server, name, changes, lost)


class ClockedRedis(ClockedPods):
    """Redis servers of our own image, whose clocks can be moved."""

    def read_clock_s(self, node: int, address: Address, limit_s: float) -> float:
        seconds, microseconds = items(ask_once(address, limit_s, "TIME"))
        return int(str(seconds)) + int(str(microseconds)) / 1_000_000


class PreloadedRedis(ClockedRedis, SyncingPods):
    """All that our own image adds to Redis servers, where their data is all that they keep."""

    data = DATA


class OurRedisNodes(PreloadedRedis, RedisNodes):
    """Independent nodes of our own image."""

    def lose_unsynced(self, nodes: Iterable[int]) -> Mapping[int, int]:
        """What is cut off is missing in the record, too."""
        chosen = list(nodes)
        self._powerless.update(chosen)
        return super().lose_unsynced(chosen)


make = by_image(RedisNodes, OurRedisNodes)

TOPOLOGIES = tuple(
    Topology(
        name=name + variant,
        sizes=sizes,
        default_size=default_size,
        images=("redis",),
        settings=settings,
        make=by_image(RedisNodes, OurRedisNodes, settings=settings),
        quorum=False,
        over_hosts=True,
    )
    for name, sizes, default_size in (("redis", (1,), 1), ("redlock", (3, 5, 7), 5))
    for variant, settings in (("", SETTINGS), ("-fsync", FSYNC_SETTINGS))
)
