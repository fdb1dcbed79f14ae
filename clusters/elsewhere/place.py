"""What a system elsewhere needs: how one is let in, whether it is what the file says, and what is
under the prefix.

``enter`` works on connections of the relay, everything else on addresses behind it, where no
password is asked for any more.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from lockbench.clusters.elsewhere.site import Site
from lockbench.clusters.wire import Address

LOOK_LIMIT_S: Final = 20.0  # for all keys of a server
ASK_LIMIT_S: Final = 5.0
CLAIM_LIMIT_S: Final = 2.0  # to see whose it is, of a server that may be frozen
CHUNK: Final = 65536


class Refused(Exception):
    """A server does not let one in; the text goes on after its name."""


@dataclass(frozen=True)
class Side:
    """One side of a relayed connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def pass_on(self, to: Side) -> None:
        """Hand over what is said, until this side ends. Raises OSError."""
        while data := await self.reader.read(CHUNK):
            to.writer.write(data)
            await to.writer.drain()


@dataclass(frozen=True)
class Talk:
    """One relayed connection whose client was let in: bytes pass unchanged."""

    client: Side
    server: Side

    async def requests(self) -> None:
        """Hand over what the client says, until it ends. Raises Refused, OSError."""
        await self.client.pass_on(self.server)

    async def answers(self) -> None:
        """Hand over what the server says, until it ends. Raises Refused, OSError."""
        await self.server.pass_on(self.client)


@dataclass(frozen=True)
class Where:
    """Which node is meant, and where the same client reaches each node of the file."""

    node: int
    ways: Mapping[int, Address]


Dial = Callable[[], Awaitable[Side]]


class Place(ABC):
    """One system."""

    sizes: Sequence[int]
    """How many nodes a file may name."""

    protocols: Sequence[str] = ()
    """What is offered by ALPN."""

    in_clear: bytes = b""
    """What a server without TLS answers, where it waits for more of what begins TLS."""

    asks_for_tls: bool = False
    """Whether something is said before a connection is encrypted."""

    async def before_tls(self, server: Side) -> None:
        """Ask for it. Raises Refused, OSError, EOFError."""
        del server

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        """Be let in, in the client's place. Raises Refused, OSError, EOFError."""
        del site, where
        return Talk(client, server)

    def learn(self, site: Site, at: Mapping[int, Address]) -> None:
        """What has to be known of the servers before anybody but the harness is let in. Raises
        SiteError, OSError or ProbeFailed."""
        del site, at

    async def keep_up(self, site: Site, dials: Sequence[Dial]) -> None:
        """What has to be done for as long as the relay runs; ``dials`` opens a connection to each
        server, past all links."""
        del site, dials

    @abstractmethod
    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """The servers' version, where the cluster is what the file says. Raises SiteError for one
        that is not, OSError or ProbeFailed."""

    @abstractmethod
    def count(self, site: Site, at: Address) -> int:
        """How much there is under the prefix beside the claim. Raises OSError or ProbeFailed."""

    @abstractmethod
    def clear(self, site: Site, at: Address) -> None:
        """Remove it. Raises OSError or ProbeFailed."""

    @abstractmethod
    def claim(self, site: Site, at: Address, word: str) -> str:
        """Put the word of a claim there (``lockbench.clusters.elsewhere.claim``), unless there is
        one. Which is there now; ``word`` where this node keeps none. Raises OSError or
        ProbeFailed."""

    @abstractmethod
    def claimed(self, site: Site, at: Address) -> str:
        """Which claim is there; empty: none. Raises OSError or ProbeFailed."""

    @abstractmethod
    def give_back(self, site: Site, at: Address, word: str) -> None:
        """Remove this claim, and no other one. Raises OSError or ProbeFailed."""


def place_of(site: Site) -> Place:
    """The system that a file names. Each call makes a new one."""
    if site.topology == "etcd":
        from lockbench.clusters.elsewhere.etcd import EtcdPlace

        return EtcdPlace()
    if site.topology == "zookeeper":
        from lockbench.clusters.elsewhere.zookeeper import ZooKeeperPlace

        return ZooKeeperPlace()
    if site.topology == "postgres":
        from lockbench.clusters.elsewhere.postgres import PostgresPlace

        return PostgresPlace()
    from lockbench.clusters.elsewhere import redis

    if site.topology == "sentinel":
        return redis.SentinelPlace()
    return redis.ShardedPlace() if site.topology == "redis-cluster" else redis.RedisPlace()
