"""S3 for probes and stores: one connection, one request at a time, and nothing is sent again.

Every request is signed, with version 4 of AWS' signatures:
https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html. Of its headers those
are signed that have to be; a condition (``If-Match``) need not. Clients of others retry by
themselves: of a conditional write that was applied and not answered, the second attempt is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import socket
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import quote

from lockbench.clusters.wire import Address, Closing, ProbeFailed
from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    from http import client
else:
    client = lazy("http.client")

ACCESS: Final = "lockbench"
# It keeps nothing from anybody: servers listen on loopback.
SECRET: Final = "lockbench"  # noqa: S105
REGION: Final = "us-east-1"
SIGNED: Final = "host;x-amz-content-sha256;x-amz-date"
NONE: Final[Mapping[str, str]] = MappingProxyType({})

OK: Final = 200
NOT_FOUND: Final = 404
CONFLICT: Final = 409
UNMET: Final = 412  # of a condition
FAULTY: Final = 500  # from here on it is the server's fault, and what it did is not known


class Answer(NamedTuple):
    """What the server said; ``etag`` is empty where it named none."""

    status: int
    etag: str
    body: bytes

    @property
    def said(self) -> str:
        """For people."""
        return f"{self.status} {self.body[:200].decode(errors='replace')}"


class Session(Closing):
    """An open connection; each request has what is left of ``limit_s``, or of what ``within`` says
    anew. A request that was not answered closes it."""

    def __init__(self, address: Address, limit_s: float) -> None:
        """Raises OSError."""
        self._host = f"{address[0]}:{address[1]}"
        self._http = client.HTTPConnection(*address, timeout=limit_s)
        self._http.auto_open = 0
        self.within(limit_s)
        self._http.connect()
        self._http.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def within(self, limit_s: float) -> None:
        """From now on, everything has so much time."""
        self._until = time.monotonic() + limit_s

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] = NONE,
        headers: Mapping[str, str] = NONE,
        body: bytes = b"",
    ) -> Answer:
        """The answer, whatever its status. Raises OSError or ProbeFailed where there was none."""
        target = quote(path, safe="/~")
        words = "&".join(f"{quote(k, safe='~')}={quote(query[k], safe='~')}" for k in sorted(query))
        signed = signature(method, target, words, self._host, body=body, at=time.gmtime())
        try:
            self._in_time()
            target = f"{target}?{words}" if words else target
            self._http.request(method, target, body or None, {**headers, **signed})
            answer = self._http.getresponse()
            said = answer.read()
        except (OSError, client.HTTPException) as error:
            self.close()
            if isinstance(error, OSError):
                raise
            raise ProbeFailed(f"{method} {path}: {error!r}") from error
        return Answer(answer.status, answer.getheader("ETag", ""), said)

    def gone(self) -> bool:
        """Whether the connection is closed, here or by the other side. Looks, and never waits."""
        if self._http.sock is None:
            return True
        self._http.sock.settimeout(0)
        try:
            self._http.sock.recv(1, socket.MSG_PEEK)
        except BlockingIOError:  # it has said nothing
            return False
        except OSError:
            pass
        return True

    def close(self) -> None:
        self._http.close()

    def _in_time(self) -> None:
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the time limit of the request is over")
        if self._http.sock is not None:
            self._http.sock.settimeout(left_s)


def signature(
    method: str, target: str, query: str, host: str, *, body: bytes, at: time.struct_time
) -> Mapping[str, str]:
    """The headers that sign a request. ``target`` and ``query`` are encoded already, the latter
    sorted; ``at`` is UTC."""
    date, moment = time.strftime("%Y%m%d", at), time.strftime("%Y%m%dT%H%M%SZ", at)
    digest = hashlib.sha256(body).hexdigest()
    lines = f"host:{host}\nx-amz-content-sha256:{digest}\nx-amz-date:{moment}\n"
    request = f"{method}\n{target}\n{query}\n{lines}\n{SIGNED}\n{digest}"
    scope = f"{date}/{REGION}/s3/aws4_request"
    hashed = hashlib.sha256(request.encode()).hexdigest()
    text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{hashed}"
    key = f"AWS4{SECRET}".encode()
    for word in (*scope.split("/"), text):
        key = hmac.digest(key, word.encode(), "sha256")
    return {
        "x-amz-content-sha256": digest,
        "x-amz-date": moment,
        "Authorization": (
            f"AWS4-HMAC-SHA256 Credential={ACCESS}/{scope},SignedHeaders={SIGNED},"
            f"Signature={key.hex()}"
        ),
    }
