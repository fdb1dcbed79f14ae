"""How Redis servers and Sentinels are probed, whoever has started them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lockbench.clusters.pods.linked import LinkedCluster
from lockbench.clusters.redis import protocol as resp
from lockbench.clusters.redis.protocol import ask_once
from lockbench.clusters.wire import Address, Line


class RedisServers(LinkedCluster):
    """Redis servers, whatever their roles."""

    kind = "redis"
    probes = resp.PREFIX  # how the keys of probes begin

    def check_serves(self, address: Address, limit_s: float, *, read: bool) -> None:
        """Write a key, read it back, delete it."""
        with Line(address, limit_s) as line:
            resp.write_and_delete(line, prefix=self.probes, read=read)

    def check_answer(self, address: Address, limit_s: float) -> None:
        """A pong, which is refused for as long as data is being loaded."""
        ask_once(address, limit_s, "PING")

    @contextmanager
    def pinger(self, address: Address, limit_s: float) -> Iterator[Callable[[], object]]:
        with Line(address, limit_s) as line:
            yield lambda: resp.ask(line, "PING")

    def _node_at(self, port: int | None) -> int | None:
        return next((node for node in self.nodes if self.port(node) == port), None)
