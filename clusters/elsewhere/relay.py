"""Lets clients into servers that ask for TLS, a user and a password.

A relay listens here, once for each client group and node. Whoever connects is connected to the
server, through the group's near link: encrypted, with the client's certificate, the password
proven. Then bytes pass unchanged. So a client of any language and library works as it is, and no
worker, no sidecar and no file of the run has the password or the key.

Guarantees: only processes of the user who runs it are let in (the kernel says whose a socket is). A
connection that a server or a link ends with RST ends with RST here too; one that is not let in is
ended, and ``why`` says the reason.

Does not guarantee: that a client learns why it was not let in.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import struct
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from lockbench.clusters.elsewhere.place import Place, Refused, Side, place_of
from lockbench.clusters.elsewhere.site import Site
from lockbench.clusters.wire import Address

LET_IN_S: Final = 10.0  # longer than any client waits
TLS_CLOSES_S: Final = 1.0
# Off at once, and what was not sent is thrown away: the other side is sent RST.
NO_LINGER: Final = struct.pack("ii", 1, 0)
HEX: Final = 16


@dataclass(frozen=True)
class Route:
    """Where is listened for whom: ``node``, reached at ``via`` (None: at its own address)."""

    listen: Address
    node: int
    via: Address | None = None


class Relay:
    """Lives in one event loop."""

    def __init__(self, site: Site) -> None:
        """Raises SiteError for certificates that cannot be read."""
        self._site = site
        self._place: Place = place_of(site)
        self._tls = site.context()
        if self._tls is not None and self._place.protocols:
            self._tls.set_alpn_protocols(list(self._place.protocols))
        self._servers: dict[Address, asyncio.Server] = {}
        self._open: dict[Address, set[asyncio.Task[None]]] = {}
        self._beside: asyncio.Task[None] | None = None
        self.why: dict[int, str] = {}

    async def open(self, routes: Sequence[Route]) -> None:
        """Listen. Raises OSError."""
        for route in routes:
            self._open[route.listen] = set()
            serve = partial(self._serve, route)
            self._servers[route.listen] = await asyncio.start_server(serve, *route.listen)
        if self._beside is None:
            nodes = range(1, len(self._site.nodes) + 1)
            dials = [partial(self._dial, Route(("", 0), node)) for node in nodes]
            self._beside = asyncio.create_task(self._place.keep_up(self._site, dials))

    async def close(self, listens: Sequence[Address]) -> None:
        """End these, and every connection that came in there."""
        for listen in listens:
            self._servers.pop(listen).close()
            for task in self._open.pop(listen):
                task.cancel()

    async def _serve(
        self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client, server = Side(reader, writer), None
        task = asyncio.current_task()
        assert task is not None
        self._open.get(route.listen, set()).add(task)
        try:
            if not _is_ours(writer):
                return
            async with asyncio.timeout(LET_IN_S):
                server = await self._dial(route)
                await self._place.enter(self._site, server, client)
            self.why.pop(route.node, None)
            await _first_end(
                self._place.pass_requests(client, server), self._place.pass_answers(server, client)
            )
        except ConnectionResetError:
            _reset(writer)
        except (OSError, EOFError, Refused, TimeoutError, ValueError) as error:
            self.why[route.node] = self._site.hidden(self._sentence(error))
        except asyncio.CancelledError:
            _reset(writer)
        finally:
            self._open.get(route.listen, set()).discard(task)
            for side in (client, server):
                if side is not None:
                    with suppress(OSError):
                        side.writer.close()

    async def _dial(self, route: Route) -> Side:
        at = self._site.nodes[route.node - 1]
        host, port = route.via or (at.host, at.port)
        name = (self._site.tls.server_name if self._site.tls else "") or at.host
        if self._tls is None:
            return Side(*await asyncio.open_connection(host, port))
        if not self._place.asks_for_tls:
            opened = asyncio.open_connection(
                host,
                port,
                ssl=self._tls,
                server_hostname=name,
                ssl_shutdown_timeout=TLS_CLOSES_S,
            )
            return Side(*await opened)
        side = Side(*await asyncio.open_connection(host, port))
        try:
            await self._place.before_tls(side)
            await side.writer.start_tls(self._tls, server_hostname=name)
        except BaseException:
            side.writer.transport.abort()
            raise
        return side

    def _sentence(self, error: BaseException) -> str:
        """What keeps one out; goes on after the server's name."""
        if isinstance(error, Refused):
            return str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"has a certificate that is not trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError):
            return f"does not agree on TLS: {error.reason or error}"
        if isinstance(error, EOFError):
            return "ended the connection" + ("" if self._tls else ": does it ask for TLS?")
        if isinstance(error, socket.gaierror):
            return f"has a name that nobody knows: {error.strerror}"
        if isinstance(error, TimeoutError):
            return f"does not answer within {LET_IN_S:g} s"
        return f"cannot be reached: {getattr(error, 'strerror', None) or error}"


async def _first_end(*ways: Coroutine[Any, Any, None]) -> None:
    """Run both directions until one ends, and end the other. Raises what the first ended with."""
    tasks = [asyncio.create_task(way) for way in ways]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Whether the process at the other end of a local connection is of our user, as the kernel
    lists it (proc_net_tcp: local address, remote address, …, uid)."""
    peer, mine = (_listed(writer.get_extra_info(it)) for it in ("peername", "sockname"))
    for line in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
        fields = line.split()
        if fields[1:3] == [peer, mine]:
            return int(fields[7]) == os.getuid()
    return False


def _listed(address: Address) -> str:
    """``127.0.0.1:80`` as the kernel writes it: ``0100007F:0050``."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"
