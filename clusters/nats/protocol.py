"""NATS' protocol for probes and recipes: one connection, one request at a time.

https://docs.nats.io/reference/reference-protocols/nats-protocol. Without passwords. A connection
stays with the server that it was made to: addresses of others that a server tells are ignored, and
nothing is sent again. nats-py reconnects by itself and keeps what is published meanwhile; it also
needs an asyncio loop, which shares no thread with the greenlets of a worker.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from itertools import count
from types import MappingProxyType
from typing import Final, NamedTuple

from lockbench.clusters.wire import Address, Closing, Line, ProbeFailed

VERSION: Final = "NATS/1.0"  # how headers begin
NO_RESPONDERS: Final = 503
NONE: Final[Mapping[str, str]] = MappingProxyType({})
CONNECT: Final = json.dumps(
    {
        "verbose": False,
        "pedantic": False,
        "headers": True,
        "no_responders": True,
        "protocol": 1,
        "lang": "python",
        "version": "lockbench",
    }
)


class NoResponders(ProbeFailed):
    """The server knows nobody who takes this request, and has delivered it to nobody."""


class Message(NamedTuple):
    """An answer. ``status`` is 0 where its headers have none."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Session(Closing):
    """A connection that the server has answered on; after ``limit_s``, or what ``within`` says
    anew, every use of it raises TimeoutError."""

    def __init__(self, address: Address, limit_s: float) -> None:
        self._inbox = f"_INBOX.{secrets.token_hex(8)}"
        self._number = count(1)
        self._line = Line(address, limit_s)
        try:
            greeted(self._line)
            self._line.send(f"CONNECT {CONNECT}\r\nSUB {self._inbox}.* 1\r\n".encode())
            self.ping()
        except BaseException:
            self._line.close()
            raise

    def within(self, limit_s: float) -> None:
        """From now on, everything has so much time."""
        self._line.within(limit_s)

    def request(
        self, subject: str, body: bytes = b"", headers: Mapping[str, str] = NONE
    ) -> Message:
        """The one answer. Raises NoResponders, ProbeFailed, OSError, ValueError; whatever is not an
        answer leaves the connection unusable."""
        reply = f"{self._inbox}.{next(self._number)}"
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        said = f"{VERSION}\r\n{head}\r\n".encode() if head else b""
        sizes = f"{len(said)} {len(said) + len(body)}" if head else f"{len(body)}"
        verb = "HPUB" if head else "PUB"
        self._line.send(f"{verb} {subject} {reply} {sizes}\r\n".encode() + said + body + b"\r\n")
        while (found := self._next())[0] != reply:
            pass
        if found[1].status == NO_RESPONDERS:
            raise NoResponders(f"{subject}: no responders")
        return found[1]

    def ping(self) -> None:
        """The cheapest question."""
        self._line.send(b"PING\r\n")
        while self._next()[0] != "PONG":
            pass

    def ended(self) -> bool:
        """Whether the server has closed it, as far as this side was told. Never waits."""
        return self._line.ended()

    def close(self) -> None:
        self._line.close()

    def _next(self) -> tuple[str, Message]:
        """The next message and its subject, or ``PONG``."""
        while True:
            verb, _, words = self._line.line().partition(b" ")
            match verb.upper():
                case b"PING":
                    self._line.send(b"PONG\r\n")
                case b"PONG":
                    return "PONG", Message(0, NONE, b"")
                case b"MSG" | b"HMSG":
                    return self._message(words.decode().split(), headed=verb.upper() == b"HMSG")
                case b"INFO" | b"+OK":
                    pass
                case _:
                    raise ProbeFailed(f"{verb.decode(errors='replace')} {words[:200]!r}")

    def _message(self, words: list[str], *, headed: bool) -> tuple[str, Message]:
        total = int(words[-1])
        head = int(words[-2]) if headed else 0
        block = self._line.exactly(total + len(b"\r\n"))[:total]
        status, headers = _headers(block[:head].decode()) if headed else (0, NONE)
        return words[0], Message(status, headers, block[head:])


def greeted(line: Line) -> None:
    """A server of NATS says who it is, on each of its ports. Raises OSError and ProbeFailed."""
    if not (said := line.line()).startswith(b"INFO "):
        raise ProbeFailed(f"no NATS server: {said[:80]!r}")


def _headers(text: str) -> tuple[int, Mapping[str, str]]:
    """The status (0: none) and the headers of a block ``NATS/1.0 …``."""
    first, *lines = text.strip().split("\r\n")
    status = first.removeprefix(VERSION).split()
    pairs = (line.partition(":") for line in lines)
    return int(status[0]) if status else 0, {name: value.strip() for name, _, value in pairs}
