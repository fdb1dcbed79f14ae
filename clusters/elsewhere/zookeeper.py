"""ZooKeeper elsewhere: an ensemble, or one server.

A user is let in by ``digest``, said once the session is there. No password is ever refused by that:
who has the wrong one is somebody else, and may do what everybody may. A prefix is a node of our
own, and clients see nothing but what is below it (``lockbench.clusters.elsewhere.chroot``). It is
made where it is not there, and then removed at the end; what is above it has to be there.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

from lockbench.clusters.elsewhere import claim
from lockbench.clusters.elsewhere.chroot import CONFIG, Chroot, Unknown
from lockbench.clusters.elsewhere.place import (
    ASK_LIMIT_S,
    CLAIM_LIMIT_S,
    LOOK_LIMIT_S,
    Place,
    Refused,
    Side,
    Talk,
    Where,
)
from lockbench.clusters.elsewhere.site import Site, SiteError
from lockbench.clusters.wire import Address, Line, ProbeFailed
from lockbench.clusters.zookeeper import protocol as jute
from lockbench.clusters.zookeeper.servers import after

SESSION_MS: Final = 10_000
SOON_S: Final = 0.5  # in which a server answers srvr, as a rule
SAID_MAX: Final = 60
FRAME_BYTES_MAX: Final = 4 << 20
AUTH_XID: Final = -4
CLAIM: Final = f"/{claim.NAME}"
OURS: Final = b"made by lockbench"  # in the prefix's own node
SID_BITS: Final = 56  # of a session's id, below its server's number, which is 1 outside ensembles


@dataclass(frozen=True)
class _Below(Talk):
    """Below the prefix."""

    chroot: Chroot

    async def requests(self) -> None:
        while frame := await _frame(self.client):
            try:
                await _send(self.server, self.chroot.request(frame))
            except Unknown as error:
                raise Refused(f"was not asked: a client {error}") from error

    async def answers(self) -> None:
        while frame := await _frame(self.server):
            await _send(self.client, self.chroot.answer(frame))


class ZooKeeperPlace(Place):
    """See the module."""

    sizes = (1, 3, 5, 7)

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        """A word of four letters is passed on. A session is opened, and then says who it is."""
        first = await client.reader.readexactly(4)
        if first.isalpha():
            server.writer.write(first)
            return Talk(client, server)
        await _send(server, await _body(client, first))
        agreed = await _body(server, await server.reader.readexactly(4))
        _, timeout_ms = struct.unpack_from(">ii", agreed)
        if site.password is not None and timeout_ms > 0:  # else the session is over
            await _say_who(site, server)
        await _send(client, agreed)
        return _Below(client, server, Chroot(site.prefix))

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """One that leads and who follows it, all that there are; or one that is alone."""
        version, modes, configs = "", dict[str, str](), dict[str, str]()
        servers: dict[int, str] = {}
        for node, address in zip(site.nodes, at, strict=True):
            said = _srvr(address)
            if not said.strip():
                raise ProbeFailed("no answer to srvr")
            if "Mode: " not in said:
                raise SiteError(f"{node} does not serve, or does not answer srvr: {said.strip()}")
            modes[str(node)] = mode = after(said, "Mode: ")
            if mode == "standalone" and len(site.nodes) > 1:
                raise SiteError(f"{node} is in no ensemble, and {site.file.name} names several")
            version = "ZooKeeper " + after(said, "version: ").partition("-")[0].rstrip(",")
            with _session(site, address) as session:
                number = session.id % 2**64 >> SID_BITS
                with suppress(jute.Refused):  # everybody may read it, unless somebody forbade it
                    configs[session.get(CONFIG).decode()] = str(node)
            if number in servers:
                raise SiteError(f"{servers[number]} and {node} are one and the same server")
            servers[number] = str(node)
        if len(configs) > 1:
            raise SiteError(f"{' and '.join(configs.values())} belong to different ensembles")
        members = sum(line.startswith("server.") for line in "".join(configs).splitlines())
        if members and members != len(site.nodes):
            raise SiteError(
                f"the ensemble of {site.nodes[0]} has {members} servers, and {site.file.name} names"
                f" {len(site.nodes)}: name all of them"
            )
        leading = [node for node, mode in modes.items() if mode in {"leader", "standalone"}]
        if len(leading) != 1:
            raise SiteError(
                f"one node of {site.file.name} has to lead, and {' and '.join(leading) or 'nobody'}"
                " does"
            )
        return version

    def count(self, site: Site, at: Address) -> int:
        with _session(site, at) as session:
            return len(_below(session))

    def clear(self, site: Site, at: Address) -> None:
        """Every server has the same nodes, and they are removed by whoever is first."""
        with _session(site, at) as session:
            for path in reversed(_below(session)):
                with suppress(jute.NoNode):
                    session.delete(path)

    def claim(self, site: Site, at: Address, word: str) -> str:
        with _session(site, at) as session:
            try:
                with suppress(jute.NodeExists):
                    session.create("/", OURS)
            except jute.NoNode as error:
                above = site.prefix.rpartition("/")[0]
                raise ProbeFailed(f"{above} is not there: make it first") from error
            with suppress(jute.NodeExists):
                session.create(CLAIM, word.encode())
                return word
            return _claim(session)

    def claimed(self, site: Site, at: Address) -> str:
        with _session(site, at, CLAIM_LIMIT_S) as session:
            return _claim(session)

    def give_back(self, site: Site, at: Address, word: str) -> None:
        with _session(site, at) as session, suppress(jute.NoNode, jute.NotEmpty):
            if _claim(session) != word:
                return
            session.delete(CLAIM)
            if session.get("/") == OURS:
                session.delete("/")


def _srvr(at: Address) -> str:
    """What a server says of itself. Raises OSError or ProbeFailed. Who speaks TLS or something else
    waits for more than four letters, the head of a record or a line. So who is silent gets them,
    and then ends the connection, or says what it is."""
    until = time.monotonic() + ASK_LIMIT_S
    with suppress(TimeoutError):
        return jute.four_letters(at, "srvr", SOON_S)
    with Line(at, max(SOON_S, until - time.monotonic())) as line:
        line.send(b"srvr\r\n")
        said = line.some()
        if said.startswith(b"Z"):  # its version, and the rest
            said += line.all()
    text = said.decode(errors="replace")
    if "srvr" not in text and "zookeeper" not in text.lower():
        raise ProbeFailed(f"its answer to srvr is {text[:SAID_MAX]!r}")
    return text


@contextmanager
def _session(site: Site, at: Address, limit_s: float = LOOK_LIMIT_S) -> Iterator[jute.Session]:
    """Ended at its end. Raises SiteError where the prefix may not be touched, OSError or
    ProbeFailed."""
    with jute.Session(at, limit_s, session_ms=SESSION_MS) as session:
        try:
            yield session
            session.end()
        except jute.NoAuth as error:
            what = f"read and write under {site.prefix} of {site.nodes[0]}"
            if site.password is None:
                raise SiteError(
                    f"not everybody may {what}: name in {site.file.name} who may (user, and"
                    " password-env or password-file)"
                ) from error
            raise SiteError(
                f"the user {site.user} may not {what}, or the password is another one"
            ) from error


def _below(session: jute.Session) -> list[str]:
    """All nodes below the prefix but the claim, each behind what it is in."""
    paths: list[str] = []
    with suppress(jute.NoNode):
        paths += [path for path in session.children("/") if path != CLAIM]
    for path in paths:  # those below are added meanwhile
        with suppress(jute.NoNode):
            paths += session.children(path)
    return paths


def _claim(session: jute.Session) -> str:
    with suppress(jute.NoNode):
        return session.get(CLAIM).decode()
    return ""


async def _say_who(site: Site, server: Side) -> None:
    assert site.password is not None
    secret = f"{site.user}:{site.password.reveal()}".encode()
    words = struct.pack(">iii", AUTH_XID, jute.AUTH, 0)
    for text in (b"digest", secret):
        words += struct.pack(">i", len(text)) + text
    await _send(server, words)
    xid, _, error = struct.unpack_from(
        ">iqi", await _body(server, await server.reader.readexactly(4))
    )
    if xid != AUTH_XID or error:
        raise Refused(f"does not take the password of the user {site.user}: error {error}")


async def _frame(side: Side) -> bytes:
    """A message; empty where the side has ended. Raises OSError, ValueError."""
    size = await side.reader.read(4)
    while 0 < len(size) < 4:
        more = await side.reader.read(4 - len(size))
        if not more:
            return b""
        size += more
    return await _body(side, size) if size else b""


async def _body(side: Side, size: bytes) -> bytes:
    (count,) = struct.unpack(">i", size)
    if not 0 < count <= FRAME_BYTES_MAX:
        raise ValueError(f"a message of {count} bytes")
    return await side.reader.readexactly(count)


async def _send(side: Side, frame: bytes) -> None:
    side.writer.write(struct.pack(">i", len(frame)) + frame)
    await side.writer.drain()
