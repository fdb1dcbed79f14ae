"""A NATS on a loopback socket with one bucket, that answers, or fails, as a test tells it to."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, Self

from lockbench.clusters.nats.bucket import BUCKET, EXPECTED, OPERATION, STREAM
from lockbench.locks.base import Address

LATE_S: Final = 1.1  # longer than the shortest time to live
# What a request is answered with in place of its effect.
ANSWERS: Final[Mapping[str, bytes]] = {
    "nonsense": b"<html>",
    "error reply": b'{"error": {"code": 503, "err_code": 10008, "description": "unavailable"}}',
    "wrong last sequence": b'{"error": {"err_code": 10071, "description": "wrong last: 99"}}',
    "older last sequence": b'{"error": {"err_code": 10071, "description": "wrong last: 0"}}',
    "in process": b'{"error": {"err_code": 10164, "description": "wrong last sequence"}}',
}


class Asked(NamedTuple):
    """A request: ``look``, ``create``, ``create after a marker``, ``renew`` or ``release``."""

    kind: str
    key: str
    headers: Mapping[str, str]
    body: bytes


class FakeNats:
    """One server, until ``stop`` or the end of its block.

    ``on(kind, *actions)`` decides what happens to the next requests of a kind: a name of
    ``ANSWERS``, ``silent``, ``closes``, ``no responders``, ``nothing`` (a direct get finds no
    message), or, with the effect, ``lost`` (closes before the answer) and ``late``.
    """

    def __init__(self) -> None:
        self.keys: dict[str, tuple[int, bytes | None]] = {}  # revision and value; None: a marker
        self.asked: list[Asked] = []
        self.revision = 0
        self._planned: dict[str, deque[str]] = {}
        self._mutex = threading.Lock()
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> Address:
        return Address(*self._listener.getsockname())

    @property
    def kinds(self) -> list[str]:
        return [asked.kind for asked in self.asked]

    def on(self, kind: str, *actions: str) -> None:
        self._planned.setdefault(kind, deque()).extend(actions)

    def store(self, key: str, value: bytes | None) -> int:
        """As by another client, or when a time to live has ended."""
        self.revision += 1
        self.keys[key] = (self.revision, value)
        return self.revision

    def stop(self) -> None:
        for each in (self._listener, *self._connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection, connection.makefile("rb") as lines:
            connection.sendall(b'INFO {"server_id": "fake"}\r\n')
            while line := lines.readline():
                verb, *words = line.decode().split()
                if verb == "PING":
                    connection.sendall(b"PING\r\nPONG\r\n")  # its own, which is to be answered
                if verb in {"PUB", "HPUB"}:
                    body = lines.read(int(words[-1]) + 2)[:-2]
                    head = int(words[2]) if verb == "HPUB" else 0
                    answer = self._answer(words[0], body[:head].decode(), body[head:])
                    if answer is None:
                        continue
                    if not answer:
                        return
                    connection.sendall(answer.replace(b"REPLY", words[1].encode(), 1))

    def _answer(self, subject: str, head: str, body: bytes) -> bytes | None:
        """Empty: it hangs up. None: it says nothing."""
        pairs = (line.partition(": ") for line in head.split("\r\n")[1:] if line)
        headers = {name: value for name, _, value in pairs}
        key = subject.partition(f"$KV.{BUCKET}.")[2]
        with self._mutex:
            kind = self._kind(subject, key, headers)
            self.asked.append(Asked(kind, key, headers, body))
            planned = self._planned.get(kind)
            action = planned.popleft() if planned else ""
            match action:
                case "silent":
                    return None
                case "closes":
                    return b""
                case "no responders":
                    return _headed("NATS/1.0 503\r\n\r\n")
                case "nothing":
                    return _headed("NATS/1.0 404 Message Not Found\r\n\r\n")
                case known if known in ANSWERS:
                    return _plain(ANSWERS[known])
            answer = self._look(key) if kind == "look" else self._put(key, headers, body)
        if action == "late":
            time.sleep(LATE_S)
        return b"" if action == "lost" else answer

    def _kind(self, subject: str, key: str, headers: Mapping[str, str]) -> str:
        if subject.startswith(f"$JS.API.DIRECT.GET.{STREAM}."):
            return "look"
        if OPERATION in headers:
            return "release"
        if headers.get(EXPECTED) == "0":
            return "create"
        marked = self.keys.get(key, (0, None))[1] is None
        return "create after a marker" if marked else "renew"

    def _look(self, key: str) -> bytes:
        if key not in self.keys:
            return _headed("NATS/1.0 404 Message Not Found\r\n\r\n")
        revision, value = self.keys[key]
        marker = f"{OPERATION}: DEL\r\n" if value is None else ""
        return _headed(f"NATS/1.0\r\nNats-Sequence: {revision}\r\n{marker}\r\n", value or b"")

    def _put(self, key: str, headers: Mapping[str, str], body: bytes) -> bytes:
        last = self.keys.get(key, (0, None))[0]
        if headers.get(EXPECTED, str(last)) != str(last):
            return _plain(ANSWERS["wrong last sequence"].replace(b"99", b"%d" % last))
        revision = self.store(key, None if OPERATION in headers else body)
        return _plain(json.dumps({"stream": STREAM, "seq": revision}).encode())


def _plain(body: bytes) -> bytes:
    return f"MSG REPLY 1 {len(body)}\r\n".encode() + body + b"\r\n"


def _headed(head: str, body: bytes = b"") -> bytes:
    sizes = f"{len(head)} {len(head) + len(body)}"
    return f"HMSG REPLY 1 {sizes}\r\n{head}".encode() + body + b"\r\n"
