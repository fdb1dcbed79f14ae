"""etcd elsewhere, through its JSON gateway.

The gateway takes no user from a client's certificate, and once users are asked for it refuses a
certificate that has a common name (https://etcd.io/docs/v3.6/op-guide/authentication/rbac/, "Using
TLS Common Name"). So a user is let in by a token, which is put into every request. gRPC has no
place where a relay could put it: what speaks gRPC is not let in.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from lockbench.clusters.elsewhere import claim
from lockbench.clusters.elsewhere.place import (
    ASK_LIMIT_S,
    CHUNK,
    CLAIM_LIMIT_S,
    LOOK_LIMIT_S,
    Dial,
    Place,
    Refused,
    Side,
    Talk,
    Where,
)
from lockbench.clusters.elsewhere.site import Site, SiteError
from lockbench.clusters.etcd.members import encoded
from lockbench.clusters.wire import Address, Http, ProbeFailed

# A token that is not used ends after five minutes (--auth-token-ttl).
RENEWED_S: Final = 60.0
GRPC: Final = b"PRI "
UNAUTHORIZED: Final = b"HTTP/1.1 401"
NAMED: Final = "CommonName of client"
HEAD_END: Final = b"\r\n\r\n"
PATIENCE_S: Final = 2.0
PAUSE_S: Final = 0.1


@dataclass(frozen=True)
class _WithToken(Talk):
    """Has the token in each request."""

    place: EtcdPlace

    async def requests(self) -> None:
        reader, writer = self.client.reader, self.server.writer
        while True:
            try:
                head = await reader.readuntil(HEAD_END)
            except asyncio.IncompleteReadError:
                return
            if head.startswith(GRPC):
                raise Refused("takes the user's password in requests of its JSON gateway alone")
            line, _, fields = head.partition(b"\r\n")
            token = f"Authorization: {self.place.token}\r\n".encode()
            writer.write(line + b"\r\n" + token + fields)
            left = _length(fields)
            while left and (data := await reader.read(min(left, CHUNK))):
                writer.write(data)
                left -= len(data)
            await writer.drain()

    async def answers(self) -> None:
        """A member that was restarted has forgotten the token."""
        while data := await self.server.reader.read(CHUNK):
            if data.startswith(UNAUTHORIZED):
                self.place.refused.set()
            self.client.writer.write(data)
            await self.client.writer.drain()


class EtcdPlace(Place):
    """See the module."""

    sizes = (1, 3, 5, 7)
    protocols = ("http/1.1",)

    def __init__(self) -> None:
        self.token = ""
        self._asking = asyncio.Lock()
        self.refused = asyncio.Event()

    async def enter(self, site: Site, server: Side, client: Side, where: Where) -> Talk:
        """The first connection asks for the token, on itself."""
        if site.password is None:
            return Talk(client, server)
        async with self._asking:
            if not self.token:
                self.token = await _token(site, server)
        return _WithToken(client, server, self)

    async def keep_up(self, site: Site, dials: Sequence[Dial]) -> None:
        """A new token now and then, and when one was refused, from whichever member answers."""
        while site.password is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(RENEWED_S):
                    await self.refused.wait()
            for dial in dials:
                with suppress(OSError, EOFError, Refused, TimeoutError, ValueError):
                    async with asyncio.timeout(PATIENCE_S):
                        server = await dial()
                        try:
                            self.token = await _token(site, server)
                        finally:
                            server.writer.close()
                    self.refused.clear()
                    break
            await asyncio.sleep(PAUSE_S)

    def identify(self, site: Site, at: Sequence[Address]) -> str:
        """All members of one cluster, and no others."""
        clusters: dict[str, str] = {}
        members: dict[str, str] = {}
        version = ""
        for node, address in zip(site.nodes, at, strict=True):
            with _as_refused(site, str(node)), Http(address, ASK_LIMIT_S) as http:
                status = http.post("/v3/maintenance/status", {})
                listed = http.post("/v3/cluster/member/list", {}).get("members", [])
            try:
                header = status["header"]
                member, cluster = (str(header[it]) for it in ("member_id", "cluster_id"))
                version = f"etcd {status.get('version', '')}"
            except (KeyError, TypeError, AttributeError):
                raise SiteError(f"{node} answers, and not as an etcd does") from None
            if member in members:
                raise SiteError(f"{members[member]} and {node} are one and the same member")
            members[member] = clusters[cluster] = str(node)
            if len(clusters) > 1:
                raise SiteError(f"{' and '.join(clusters.values())} belong to different clusters")
            if len(listed) != len(site.nodes):
                raise SiteError(
                    f"the cluster of {node} has {len(listed)} members, and {site.file.name} names"
                    f" {len(site.nodes)}: name all of them"
                )
        return version

    def count(self, site: Site, at: Address) -> int:
        with Http(at, LOOK_LIMIT_S) as http:
            return sum(
                int(http.post("/v3/kv/range", {**part, "count_only": True}).get("count", 0))
                for part in _under(site)
            )

    def clear(self, site: Site, at: Address) -> None:
        with Http(at, LOOK_LIMIT_S) as http:
            for part in _under(site):
                http.post("/v3/kv/deleterange", part)

    def claim(self, site: Site, at: Address, word: str) -> str:
        key = encoded(site.prefix + claim.NAME)
        asked = {
            "compare": [{"key": key, "target": "CREATE", "create_revision": 0}],
            "success": [{"request_put": {"key": key, "value": encoded(word)}}],
        }
        with Http(at, ASK_LIMIT_S) as http:
            made = http.post("/v3/kv/txn", asked).get("succeeded", False)
        return word if made else self.claimed(site, at)

    def claimed(self, site: Site, at: Address) -> str:
        with Http(at, CLAIM_LIMIT_S) as http:
            found = http.post("/v3/kv/range", {"key": encoded(site.prefix + claim.NAME)})
        return "".join(b64decode(kv["value"]).decode() for kv in found.get("kvs", []))

    def give_back(self, site: Site, at: Address, word: str) -> None:
        key = encoded(site.prefix + claim.NAME)
        asked = {
            "compare": [{"key": key, "target": "VALUE", "value": encoded(word)}],
            "success": [{"request_delete_range": {"key": key}}],
        }
        with Http(at, ASK_LIMIT_S) as http:
            http.post("/v3/kv/txn", asked)


class _as_refused:  # noqa: N801 - a context manager
    """What a member says to somebody whom it does not know, as a sentence with the remedy."""

    def __init__(self, site: Site, node: str) -> None:
        self._site, self._node = site, node

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, ProbeFailed) and "user name is empty" in str(error):
            raise SiteError(
                f"{self._node} asks for a user and a password: name them in"
                f" {self._site.file.name} (user, and password-env or password-file)"
            ) from error


async def _token(site: Site, server: Side) -> str:
    """Ask for a token on this connection, which stays open. Raises Refused, OSError, EOFError."""
    assert site.password is not None
    body = json.dumps({"name": site.user, "password": site.password.reveal()}).encode()
    head = (
        f"POST /v3/auth/authenticate HTTP/1.1\r\nHost: etcd\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    server.writer.write(head.encode() + body)
    said = (await _body(server, await server.reader.readuntil(HEAD_END))).decode(errors="replace")
    if NAMED in said:
        raise Refused(
            "asks for users and takes no requests of its JSON gateway under a certificate with a"
            " common name (CN): use a client certificate without one"
        )
    try:
        answer: Any = json.loads(said)
    except ValueError:
        raise Refused(f"answers nonsense when it is asked for a token: {said[:80]!r}") from None
    token = answer.get("token") if isinstance(answer, dict) else None
    if not token:
        said = str(answer.get("message") if isinstance(answer, dict) else answer)
        raise Refused(f"does not take the password of the user {site.user}: {said}")
    return str(token)


async def _body(server: Side, head: bytes) -> bytes:
    """The body of an answer, in chunks or not."""
    if b"transfer-encoding: chunked" not in head.lower():
        return await server.reader.readexactly(_length(head))
    body = b""
    while size := int(await server.reader.readline(), 16):
        body += await server.reader.readexactly(size)
        await server.reader.readline()
    await server.reader.readline()
    return body


def _length(head: bytes) -> int:
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            return int(value)
    return 0


def _under(site: Site) -> Sequence[dict[str, object]]:
    """All keys that begin with the prefix, which is ASCII, before the claim and behind it."""
    word = site.prefix + claim.NAME
    end = site.prefix[:-1] + chr(ord(site.prefix[-1]) + 1)
    parts = ((site.prefix, word), (word + "\0", end))
    return [{"key": encoded(first), "range_end": encoded(last)} for first, last in parts]
