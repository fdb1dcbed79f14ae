"""A connection with one time limit for everything that is done with it.

The probes of the harness speak to the servers through these, without client libraries: those retry,
pool, start threads and wait in ways of their own, and a probe must be exactly one attempt.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

from lockbench.declarations.lazy import lazy

if TYPE_CHECKING:
    from http import client
else:
    client = lazy("http.client")

Address = tuple[str, int]

CHUNK = 65536


class ProbeFailed(Exception):
    """The server was reached and did not do what it was asked, or ended the connection."""


# All that a probe can end with: what breaks, and what makes no sense.
PROBE_FAILURES = (OSError, ProbeFailed, ValueError, struct.error)


class Closing(ABC):
    """What is closed at the end of its ``with``."""

    @abstractmethod
    def close(self) -> None:
        """Close it, whatever state it is in."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Line(Closing):
    """A TCP connection; after ``limit_s`` every use of it raises TimeoutError."""

    def __init__(self, address: Address, limit_s: float) -> None:
        self._until = time.monotonic() + limit_s
        self._socket = socket.create_connection(address, timeout=limit_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""

    def within(self, limit_s: float) -> None:
        """From now on, everything has so much time."""
        self._until = time.monotonic() + limit_s

    def send(self, data: bytes) -> None:
        """Send everything."""
        self._socket.settimeout(_left_s(self._until))
        self._socket.sendall(data)

    def exactly(self, count: int) -> bytes:
        """Receive this many bytes."""
        while len(self._rest) < count:
            self._rest += self._more()
        data, self._rest = self._rest[:count], self._rest[count:]
        return data

    def line(self) -> bytes:
        """Receive a line; without its CR and LF."""
        while b"\r\n" not in self._rest:
            self._rest += self._more()
        found, _, self._rest = self._rest.partition(b"\r\n")
        return found

    def some(self) -> bytes:
        """Receive what there is, at least one byte."""
        data, self._rest = self._rest or self._more(), b""
        return data

    def all(self) -> bytes:
        """Receive until the other side closes."""
        try:
            while True:
                self._rest += self._more()
        except ProbeFailed:
            return self._rest

    def ended(self) -> bool:
        """Whether the other side has closed, as far as this side was told. Looks, never waits."""
        self._socket.settimeout(0)
        try:
            data = self._socket.recv(CHUNK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        self._rest += data
        return not data

    def close(self) -> None:
        self._socket.close()

    def _more(self) -> bytes:
        self._socket.settimeout(_left_s(self._until))
        data = self._socket.recv(CHUNK)
        if not data:
            raise ProbeFailed("the connection was closed")
        return data


class Http(Closing):
    """An HTTP connection that speaks JSON and is kept open."""

    headers: Mapping[str, str] = MappingProxyType({})
    """Of every request."""

    good = frozenset({200})
    """What answers may have for a status; any other raises ProbeFailed."""

    def __init__(self, address: Address, limit_s: float) -> None:
        self._until = time.monotonic() + limit_s
        self._http = client.HTTPConnection(*address, timeout=limit_s)

    def get(self, path: str) -> bytes:
        """Fetch a page; anything but 200 raises ProbeFailed."""
        with _as_failed(path):
            return self._ask("GET", path).read()

    def delete(self, path: str) -> bytes:
        """Delete a page, return the answer; anything but 200 raises ProbeFailed."""
        with _as_failed(path):
            return self._ask("DELETE", path).read()

    def post(self, path: str, body: Mapping[str, object]) -> Any:
        """Post an object, return the answer's; anything but 200 raises ProbeFailed."""
        return self._exchange("POST", path, body)

    def put(self, path: str, body: object) -> Any:
        """Put what JSON can say, return the answer's; anything but 200 raises ProbeFailed."""
        return self._exchange("PUT", path, body)

    def stream(self, path: str, body: Mapping[str, object]) -> Iterator[Any]:
        """Post an object; the answer's lines, each an object, until the server ends it. Nothing
        else can be asked on this connection meanwhile."""
        with _as_failed(path):
            answer = self._ask("POST", path, json.dumps(body))
            while line := answer.readline():
                _left_s(self._until)
                yield json.loads(line)

    def close(self) -> None:
        self._http.close()

    def _exchange(self, method: str, path: str, body: object) -> Any:
        with _as_failed(path):
            answer = self._ask(method, path, json.dumps(body)).read()
        try:
            return json.loads(answer)
        except ValueError as error:
            raise ProbeFailed(f"{path}: no JSON: {answer[:80]!r}") from error

    def _ask(self, method: str, path: str, body: str | None = None) -> client.HTTPResponse:
        self._http.timeout = _left_s(self._until)
        if self._http.sock is not None:
            self._http.sock.settimeout(self._http.timeout)
        self._http.request(method, path, body, dict(self.headers))
        answer = self._http.getresponse()
        if answer.status not in self.good:
            said = answer.read()[:200].decode(errors="replace")
            raise ProbeFailed(f"{path}: {answer.status} {said}")
        return answer


@contextmanager
def _as_failed(path: str) -> Iterator[None]:
    try:
        yield
    except client.HTTPException as error:
        raise ProbeFailed(f"{path}: {error!r}") from error


def _left_s(until: float) -> float:
    left_s = until - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("the time limit of the probe is over")
    return left_s
