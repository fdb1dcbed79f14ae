"""Redis nodes that know nothing of each other: one for a plain lock, five for Redlock.

Persistence is an append-only file, written before each answer and synced once a second, no
snapshots. A killed node therefore keeps what it acknowledged (the page cache survives); a wiped one
has lost everything.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from clusters.base import Topology
from clusters.launch import Server
from clusters.pods import PodCluster
from clusters.wire import Address, Line, ProbeFailed

CONFIG = "/lockbench/redis.conf"
DATA = "/lockbench/data"
PROBE_KEY_TTL_MS = 10_000

SETTINGS = {
    "appendonly": "yes",
    "appendfsync": "everysec",
    "save": '""',
    "maxmemory-policy": "noeviction",
}


class RedisCluster(PodCluster):
    """Independent nodes, each a Redis of its own."""

    kind = "redis"

    def server(self, node: int) -> Server:
        """A server with the declared settings, its data in a plain directory."""
        config = {
            "port": str(self.port(node)),
            "bind": "0.0.0.0",  # noqa: S104 - in its own namespace, for the pod's Toxiproxy
            "protected-mode": "no",
            "dir": DATA,
            **SETTINGS,
        }
        text = "".join(f"{name} {value}\n" for name, value in config.items())
        return Server(
            ["redis-server", CONFIG],
            # The file that nobody reads makes the directory.
            files={CONFIG: text.encode(), f"{DATA}/.keep": b""},
        )

    def wipe(self, nodes: Iterable[int]) -> None:
        """Remove the data of killed nodes, by putting new containers in their place."""
        self._each(list(nodes), self._replace)

    def check_link(self, address: Address, limit_s: float) -> None:
        """Write a key, read it back, delete it."""
        with Line(address, limit_s) as line:
            _write_and_delete(line, read=True)

    def check_write(self, address: Address, limit_s: float) -> None:
        """Write a key and delete it."""
        with Line(address, limit_s) as line:
            _write_and_delete(line, read=False)

    def check_answer(self, address: Address, limit_s: float) -> None:
        """A pong, which is refused for as long as data is being loaded."""
        with Line(address, limit_s) as line:
            _ask(line, "PING")

    @contextmanager
    def pinger(self, address: Address) -> Iterator[Callable[[], None]]:
        """PING."""
        with Line(address, limit_s=2.0) as line:

            def ping() -> None:
                line.renew(2.0)
                _ask(line, "PING")

            yield ping


def _write_and_delete(line: Line, *, read: bool) -> None:
    key, value = f"lockbench:probe:{secrets.token_hex(8)}", secrets.token_hex(8)
    # It also ends by itself, should the delete be lost.
    _ask(line, "SET", key, value, "PX", str(PROBE_KEY_TTL_MS))
    if read and (found := _ask(line, "GET", key)) != value:
        raise ProbeFailed(f"wrote {value} and read {found}")
    _ask(line, "DEL", key)


def _ask(line: Line, *words: str) -> str | None:
    """One command; an error that the server answers raises ProbeFailed."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    line.send("".join(parts).encode())
    head = line.until(b"\r\n").decode()
    if head.startswith("-"):
        raise ProbeFailed(head)
    if head.startswith("$"):
        size = int(head[1:])
        return None if size < 0 else line.exactly(size + 2)[:-2].decode()
    return head[1:]


TOPOLOGIES = (
    Topology(
        name="redis",
        sizes=(1, 3, 5),
        default_size=1,
        image="redis",
        settings=SETTINGS,
        make=RedisCluster,
        quorum=False,
    ),
    Topology(
        name="redlock",
        sizes=(3, 5, 7),
        default_size=5,
        image="redis",
        settings=SETTINGS,
        make=RedisCluster,
        quorum=False,
    ),
)
