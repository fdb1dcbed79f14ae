"""PostgreSQL elsewhere: a primary, and replicas where there are some.

The relay is the client of the server: it asks for TLS, names the file's user and database, and
proves the password (SCRAM-SHA-256, MD5 or in clear). Then it passes on what both say.
https://www.postgresql.org/docs/17/protocol-flow.html
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lockbench.clusters.elsewhere.place import (
    ASK_LIMIT_S,
    CLAIM_LIMIT_S,
    Place,
    Refused,
    Side,
    Talk,
    Where,
)
from lockbench.clusters.elsewhere.site import Secret, Site, SiteError
from lockbench.clusters.postgres.protocol import PROTOCOL, Session, message
from lockbench.clusters.wire import Address, ProbeFailed
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    import scramp
else:
    scramp = lazy("scramp")

CANCEL, SSL, GSS = 80877102, 80877103, 80877104
OK, CLEAR, MD5, SASL, SASL_GO_ON, SASL_LAST = 0, 3, 5, 10, 11, 12
SCRAM: Final = "SCRAM-SHA-256"
STARTUP_BYTES_MAX: Final = 10_000
# What our recipes make there.
TABLE, SEQUENCE = "lockbench_locks", "lockbench_fences"
CLAIM = "lockbench_claim"


class PostgresPlace(Place):
    """See the module."""

    sizes = (1, 2, 3)
    asks_for_tls = True

    async def before_tls(self, server: Side) -> None:
        server.writer.write(struct.pack("!ii", 8, SSL))
        if await server.reader.readexactly(1) != b"S":
            raise Refused("offers no TLS: leave out the table [tls]")

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        """The client's own words decide nothing but what it wants: a session, or to cancel."""
        while True:
            (size,) = struct.unpack("!i", await client.reader.readexactly(4))
            if not 8 <= size <= STARTUP_BYTES_MAX:
                raise Refused("is asked for something by nonsense")
            said = await client.reader.readexactly(size - 4)
            (code,) = struct.unpack_from("!i", said)
            if code not in {SSL, GSS}:
                break
            client.writer.write(b"N")
        if code == CANCEL:
            server.writer.write(struct.pack("!i", size) + said)
            return Talk(client, server)
        words = f"user\0{site.user}\0database\0{site.database}\0\0".encode()
        server.writer.write(struct.pack("!ii", 8 + len(words), PROTOCOL) + words)
        client.writer.write(await _proven(site, server))
        return Talk(client, server)

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """One primary; whatever else is named follows one."""
        primaries: list[str] = []
        version = ""
        for node, address in zip(site.nodes, at, strict=True):
            with Session(address, ASK_LIMIT_S) as session:
                ((replays, version_),) = session.query(
                    "SELECT pg_is_in_recovery(), current_setting('server_version')"
                )
            version = f"PostgreSQL {version_}"
            if replays == "f":
                primaries.append(str(node))
        if len(primaries) != 1:
            takes = " and ".join(primaries) or "nobody"
            raise SiteError(f"one node of {site.file.name} has to take writes, and {takes} does")
        return version

    def count(self, site: Site, at: Address) -> int:
        """The table and the sequence; a replica has what its primary has."""
        with Session(at, ASK_LIMIT_S) as session:
            ((found,),) = session.query(
                f"VALUES (num_nonnulls(to_regclass('{TABLE}'), to_regclass('{SEQUENCE}')))"
            )
        return int(str(found))

    def clear(self, site: Site, at: Address) -> None:
        with Session(at, ASK_LIMIT_S) as session:
            if session.query("SELECT pg_is_in_recovery()") == [["f"]]:
                session.query(f"DROP TABLE IF EXISTS {TABLE}; DROP SEQUENCE IF EXISTS {SEQUENCE}")

    def claim(self, site: Site, at: Address, word: str) -> str:
        """A table of one row, which is made or not. A replica keeps none of its own."""
        with Session(at, ASK_LIMIT_S) as session:
            if session.query("SELECT pg_is_in_recovery()") != [["f"]]:
                return word
            quoted = word.replace("'", "''")
            try:
                session.query(f"CREATE TABLE {CLAIM} AS SELECT '{quoted}' AS word")
            except ProbeFailed:
                if found := self.claimed(site, at):
                    return found
                raise
        return word

    def claimed(self, site: Site, at: Address) -> str:
        with Session(at, CLAIM_LIMIT_S) as session:
            if session.query(f"SELECT to_regclass('{CLAIM}') IS NULL") == [["t"]]:
                return ""
            return "".join(str(word) for (word,) in session.query(f"TABLE {CLAIM}"))

    def give_back(self, site: Site, at: Address, word: str) -> None:
        if self.claimed(site, at) != word:
            return
        with Session(at, ASK_LIMIT_S) as session:
            if session.query("SELECT pg_is_in_recovery()") == [["f"]]:
                session.query(f"DROP TABLE IF EXISTS {CLAIM}")


async def _proven(site: Site, server: Side) -> bytes:
    """Prove the password. Returns the server's word that all is well, for the client."""
    scram: scramp.ScramClient | None = None
    while True:
        head = await server.reader.readexactly(5)
        kind, size = struct.unpack("!ci", head)
        body = await server.reader.readexactly(size - 4)
        if kind == b"E":
            said = f"{message(body)}{site.without_tls}"
            raise Refused(f"does not let the user {site.user} in: {said}")
        if kind != b"R":
            continue  # a notice, or which protocol it speaks
        (code,) = struct.unpack_from("!i", body)
        if code == OK:
            return head + body
        if site.password is None:
            raise Refused("asks for a password: name where it is (password-env or password-file)")
        if code == SASL:
            if SCRAM not in body[4:].decode().split("\0"):
                raise Refused("asks for a password in a way that is not known here")
            scram = scramp.ScramClient([SCRAM], site.user, site.password.reveal())
            first = scram.get_client_first().encode()
            _answer(server, SCRAM.encode() + b"\0" + struct.pack("!i", len(first)) + first)
        elif code == SASL_GO_ON and scram is not None:
            scram.set_server_first(body[4:].decode())
            _answer(server, scram.get_client_final().encode())
        elif code == SASL_LAST and scram is not None:
            scram.set_server_final(body[4:].decode())
        elif code in {CLEAR, MD5}:
            _answer(server, _plain(site.user, site.password, body[4:8], code) + b"\0")
        else:
            raise Refused("asks for a password in a way that is not known here")


def _plain(user: str, password: Secret, salt: bytes, code: int) -> bytes:
    if code == CLEAR:
        return password.reveal().encode()
    inner = hashlib.md5(  # what the protocol asks for
        (password.reveal() + user).encode(), usedforsecurity=False
    ).hexdigest()
    return b"md5" + hashlib.md5(inner.encode() + salt, usedforsecurity=False).hexdigest().encode()


def _answer(server: Side, body: bytes) -> None:
    server.writer.write(b"p" + struct.pack("!i", 4 + len(body)) + body)
