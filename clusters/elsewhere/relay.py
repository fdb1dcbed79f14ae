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
from typing import Any, Final, TypeVar

from lockbench.clusters.elsewhere.place import Place, Refused, Side, Talk, Where, place_of
from lockbench.clusters.elsewhere.site import Site
from lockbench.clusters.wire import Address, Line, ProbeFailed

LET_IN_S: Final = 10.0  # longer than any client waits
TLS_CLOSES_S: Final = 1.0
SAYS_S: Final = 2.0
SILENT_S: Final = 0.5  # in which a server answers the first record of TLS, as a rule
ENDED: Final = "ended the connection"
REMEDY: Final = "name its port for TLS, or leave out the table [tls]"
NO_TLS: Final = f"does not speak TLS: {REMEDY}"
# RFC 8446, 5.1: the two types of a record with which a server answers a client's first one, and the
# first byte of its version, which never changed.
ALERT: Final = b"\x15"
HANDSHAKE: Final = b"\x16"
TLS_MAJOR: Final = b"\x03"
# Off at once, and what was not sent is thrown away: the other side is sent RST.
NO_LINGER: Final = struct.pack("ii", 1, 0)
# linux/sock_diag.h, linux/inet_diag.h: what is asked of the kernel, and where it answers.
NETLINK_SOCK_DIAG: Final = 4
SOCK_DIAG_BY_FAMILY: Final = 20
NLM_F_REQUEST: Final = 1
ANY_STATE: Final = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, 2**32 - 1)
UID_AT: Final = 16 + 4 + 48 + 12


T = TypeVar("T")


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
        self.place: Place = place_of(site)
        self._tls = site.context()
        if self._tls is not None and self.place.protocols:
            self._tls.set_alpn_protocols(list(self.place.protocols))
        self._routes: list[Route] = []
        self._servers: dict[Address, asyncio.Server] = {}
        self._open: dict[Address, set[asyncio.Task[None]]] = {}
        self._beside: asyncio.Task[None] | None = None
        self._agreed: set[int] = set()  # with whom there was TLS once
        self.why: dict[int, str] = {}

    def reason(self, node: int) -> str:
        """What keeps clients out of a node; goes on after its name. Empty: nothing is known. A port
        for TLS ends a connection without it, or lets it wait, and says nothing; so it is asked."""
        why = self.why.get(node, "")
        at = self._site.nodes[node - 1]
        if self._tls is None and why in {"", ENDED} and speaks_tls((at.host, at.port)):
            file = self._site.file.name
            return f"speaks TLS: give {file} a table [tls] with the ca that its certificate is from"
        return why

    async def open(self, routes: Sequence[Route]) -> None:
        """Listen. Raises OSError."""
        self._routes += routes
        for route in routes:
            self._open[route.listen] = set()
            made = partial(self._accept, route)
            loop = asyncio.get_running_loop()
            self._servers[route.listen] = await loop.create_server(made, *route.listen)
        if self._beside is None:
            nodes = range(1, len(self._site.nodes) + 1)
            dials = [partial(self._dial, Route(("", 0), node)) for node in nodes]
            self._beside = asyncio.create_task(self.place.keep_up(self._site, dials))

    async def close(self, listens: Sequence[Address]) -> None:
        """End these, and every connection that came in there. What they still had to send is not
        sent."""
        tasks: list[asyncio.Task[None]] = []
        for listen in listens:
            self._servers.pop(listen).close()
            tasks += self._open.pop(listen)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _accept(self, route: Route) -> asyncio.StreamReaderProtocol:
        return asyncio.StreamReaderProtocol(_Reader(), partial(self._serve, route))

    async def _serve(
        self, route: Route, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        client = Side(reader, writer)
        server: Side | None = None
        task = asyncio.current_task()
        assert task is not None
        held = self._open.get(route.listen)
        if held is None:  # closed since it was accepted
            _reset(writer)
            return
        held.add(task)
        try:
            if not _is_ours(writer):
                return
            assert isinstance(reader, _Reader)
            talk = await _unless(reader.hung_up.wait(), self._let_in(route, client))
            if talk is None:
                return
            server = talk.server
            self.why.pop(route.node, None)
            await _first_end(talk.requests(), talk.answers())
        except ConnectionResetError:
            _reset(writer)
        except (OSError, EOFError, Refused, TimeoutError, ValueError) as error:
            self.why[route.node] = self._site.hidden(self._sentence(error))
        except asyncio.CancelledError:
            _reset(writer)
            if server is not None:
                server.writer.transport.abort()
        finally:
            held.discard(task)
            for side in (client, server):
                if side is not None:
                    with suppress(OSError):
                        side.writer.close()

    async def _let_in(self, route: Route, client: Side) -> Talk:
        async with asyncio.timeout(LET_IN_S):
            server = await self._dial(route)
            try:
                return await self.place.enter(self._site, server, client, self._where(route))
            except BaseException:
                server.writer.close()
                raise

    def _where(self, route: Route) -> Where:
        host = route.listen[0]
        here = {one.node: one.listen for one in self._routes if one.listen[0] == host}
        return Where(route.node, here)

    async def _dial(self, route: Route) -> Side:
        at = self._site.nodes[route.node - 1]
        host, port = route.via or (at.host, at.port)
        name = (self._site.tls.server_name if self._site.tls else "") or at.host
        if self._tls is None:
            return Side(*await asyncio.open_connection(host, port))
        if not self.place.asks_for_tls:
            opening = asyncio.open_connection(
                host,
                port,
                ssl=self._tls,
                server_hostname=name,
                ssl_shutdown_timeout=TLS_CLOSES_S,
            )
            try:
                opened = await _unless(self._in_clear(route), opening)
            except ConnectionResetError:
                self.why[route.node] = f"ended the connection when TLS began: {REMEDY}"
                raise
            if opened is None:
                raise Refused(NO_TLS)
            self._agreed.add(route.node)
            return Side(*opened)
        side = Side(*await asyncio.open_connection(host, port))
        try:
            await self.place.before_tls(side)
            await side.writer.start_tls(self._tls, server_hostname=name)
        except BaseException:
            side.writer.transport.abort()
            raise
        return side

    async def _in_clear(self, route: Route) -> None:
        """Ends once a server that says nothing to TLS was seen to answer without it. It is asked
        past all links, and only where there never was TLS."""
        at, words = self._site.nodes[route.node - 1], self.place.in_clear
        asks = words and route.via is None and route.node not in self._agreed
        while True:
            await asyncio.sleep(SILENT_S)
            if asks and await asyncio.to_thread(speaks_in_clear, (at.host, at.port), words):
                return

    def _sentence(self, error: BaseException) -> str:
        """What keeps one out; goes on after the server's name."""
        if isinstance(error, Refused):
            return str(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            return f"has a certificate that is not trusted: {error.verify_message}"
        if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
            return NO_TLS  # what came is no record
        if isinstance(error, ssl.SSLError):
            return f"does not agree on TLS: {error.reason or error}"
        if isinstance(error, EOFError):
            return ENDED
        if isinstance(error, socket.gaierror):
            return f"has a name that nobody knows: {error.strerror}"
        if isinstance(error, TimeoutError):
            return f"does not answer within {LET_IN_S:g} s"
        return f"cannot be reached: {getattr(error, 'strerror', None) or error}"


async def _unless(over: Coroutine[Any, Any, object], work: Coroutine[Any, Any, T]) -> T | None:
    """Do the work; None, and it is dropped, where it is over before: after a fault many clients
    come and go, and who has gone must not keep the others waiting."""
    working, ending = asyncio.create_task(work), asyncio.create_task(over)
    try:
        await asyncio.wait((working, ending), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        working.cancel()
        ending.cancel()
        await asyncio.gather(working, ending, return_exceptions=True)


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


def speaks_tls(at: Address) -> bool:
    """Whether TLS is answered there: by a handshake, or by an alert that there is none for us."""
    hello = ssl.MemoryBIO()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    with suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), hello, server_hostname="nobody.invalid").do_handshake()
    return _is_record(_answer(at, hello.read()))


def speaks_in_clear(at: Address, words: bytes) -> bool:
    """Whether something else than TLS is answered there."""
    said = _answer(at, words)
    return bool(said) and not _is_record(said)


def _answer(at: Address, words: bytes) -> bytes:
    """How an answer begins; empty where none comes."""
    try:
        with Line(at, SAYS_S) as line:
            line.send(words)
            return line.exactly(2)
    except (OSError, ProbeFailed):
        return b""


def _is_record(said: bytes) -> bool:
    return said[:1] in {ALERT, HANDSHAKE} and said[1:] == TLS_MAJOR


def _reset(writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)
    writer.transport.abort()


class _Reader(asyncio.StreamReader):
    """Knows that the other side has hung up, before all that it said is read."""

    def __init__(self) -> None:
        super().__init__()
        self.hung_up = asyncio.Event()

    def feed_eof(self) -> None:
        super().feed_eof()
        self.hung_up.set()


def _is_ours(writer: asyncio.StreamWriter) -> bool:
    """Whether the process at the other end of a local connection is of our user, as the kernel says
    of its socket (sock_diag(7)). A look into /proc/net/tcp costs milliseconds."""
    peer, mine = (writer.get_extra_info(it) for it in ("peername", "sockname"))
    ends = struct.pack("!HH", peer[1], mine[1])
    ends += b"".join(socket.inet_aton(host).ljust(16, b"\0") for host in (peer[0], mine[0]))
    # Any interface, any cookie.
    asked = ANY_STATE + ends + struct.pack("=IQ", 0, 2**64 - 1)
    head = struct.pack("=IHHII", 16 + len(asked), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG) as kernel:
        kernel.send(head + asked)
        said = kernel.recv(4096)
    _, kind = struct.unpack_from("=IH", said)
    if kind != SOCK_DIAG_BY_FAMILY:
        return False
    (uid,) = struct.unpack_from("=I", said, UID_AT)
    return bool(uid == os.getuid())
