"""A connection to whichever Redis the Sentinels call the primary.

As Redis asks of its clients (https://redis.io/docs/latest/develop/reference/sentinel-clients/): ask
one Sentinel after the other where the primary is, connect, and make sure with ROLE that it thinks
so too. Anew on every new connection; a connection that works is kept, though the Sentinels may have
changed their minds. One that answers READONLY has been demoted and is dropped.

Sentinels name an address. The port says which node is meant, and the node is reached on the link
that this client was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lockbench.clusters.redis.sentinel import MASTER_NAME, SENTINELS
from lockbench.locks.base import Address
from lockbench.locks.redis.client import exceptions
from lockbench.locks.redis.link import Guides, Link, NotSent

# "usually a few hundreds milliseconds", says the guideline.
SENTINEL_TIMEOUT_S = 0.3


class SentinelLink(Link):
    """One connection to the primary, found anew when it breaks."""

    def __init__(self, nodes: Sequence[Address], *, timeout_s: float) -> None:
        data, sentinels = nodes[: -len(SENTINELS)], nodes[-len(SENTINELS) :]
        super().__init__(data[0], timeout_s=timeout_s)
        self._by_port = {address.port: address for address in data}
        limit_s = min(timeout_s, SENTINEL_TIMEOUT_S)
        self._sentinels = Guides(sentinels, limit_s=limit_s)

    def open(self) -> None:
        """Raises NotSent unless a primary answers here, which the Sentinels call so."""
        if self.ready():
            return
        self._connection.host, self._connection.port = self._discover()
        super().open()
        try:
            role = super().call("ROLE")[0]
        except exceptions.RedisError as error:
            self.close()
            raise NotSent(f"ROLE: {type(error).__name__}: {error}") from error
        if role != b"master":
            self.close()
            raise NotSent("the Sentinels name a server that does not think it is the primary")

    def call(self, *command: str | int) -> Any:
        """One attempt. Raises RedisError; whatever is not an answer also closes the connection, and
        so does the answer of a server that is no longer the primary."""
        try:
            return super().call(*command)
        except exceptions.ReadOnlyError:
            self.close()
            raise

    def _discover(self) -> Address:
        """Where the first Sentinel that answers says the primary is."""

        def primary(sentinel: Link) -> Address:
            named = sentinel.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MASTER_NAME)
            return self._by_port[int(named[1])]

        try:
            return self._sentinels.find(primary)
        except NotSent as error:
            raise NotSent(f"no Sentinel knows a primary: {error}") from error
