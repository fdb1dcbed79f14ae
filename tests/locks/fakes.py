"""A Redis on a loopback socket that answers, or fails, as a test tells it to.

It runs SET NX PX, DEL, PING and the two scripts of the recipes, in threads of its own.
``on(name, *actions)`` replaces the next answers to a command; ``keys`` and ``log`` can be seen.
"""

from __future__ import annotations

import atexit
import contextlib
import math
import socket
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any, Self

import hiredis

from lockbench.locks.base import Address
from lockbench.locks.redis.link import DELETE_OWN, EXTEND_OWN, Script


@dataclass(frozen=True)
class Reply:
    """These bytes instead of the command's effect."""

    data: bytes


@dataclass(frozen=True)
class Late:
    """The command's effect and answer, after this long."""

    seconds: float


class Silent:
    """No effect, no answer, ever, on this connection."""


class Close:
    """The command takes effect and the connection breaks before the answer."""


Action = Reply | Late | Silent | Close


class FakeRedis:
    """One server, until ``stop`` or the end of its block."""

    def __init__(self) -> None:
        self.keys: dict[bytes, tuple[bytes, float]] = {}
        self.log: list[tuple[bytes, ...]] = []
        self.known: set[bytes] = {DELETE_OWN.sha.encode(), EXTEND_OWN.sha.encode()}
        self.frozen = threading.Event()
        self.connections: list[socket.socket] = []
        self._planned: dict[bytes, deque[Action]] = {}
        self._mutex = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> Address:
        return Address(*self._listener.getsockname())

    def on(self, command: str, *actions: Action) -> None:
        self._planned.setdefault(command.encode(), deque()).extend(actions)

    def freeze(self) -> None:
        """As ``docker pause``: bytes are taken in, nothing is run."""
        self.frozen.set()

    def thaw(self) -> None:
        self.frozen.clear()

    def names(self) -> list[str]:
        """The commands that were run, without greetings."""
        with self._mutex:
            return [e[0].decode() for e in self.log if e[0] not in {b"PING", b"SCRIPT"}]

    def value(self, key: str) -> bytes | None:
        with self._mutex:
            return self._get(key.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._listener.close()
        for connection in self.connections:
            hang_up(connection)

    def drop_connections(self) -> None:
        for connection in self.connections:
            hang_up(connection)
        self.connections.clear()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        reader = hiredis.Reader()
        try:
            while data := connection.recv(65536):
                reader.feed(data)
                while (command := reader.gets()) is not False:
                    if not self._answer(connection, tuple(command)):
                        return
        except OSError:
            return
        finally:
            hang_up(connection)

    def _answer(self, connection: socket.socket, command: tuple[bytes, ...]) -> bool:
        while self.frozen.is_set():
            time.sleep(0.001)
        planned = self._planned.get(command[0])
        action = planned.popleft() if planned else None
        match action:
            case Reply(data):
                connection.sendall(data)
            case Silent():
                while connection.recv(65536):
                    pass
                return False
            case Close():
                self._run(command)
                return False
            case _:
                if isinstance(action, Late):
                    time.sleep(action.seconds)
                connection.sendall(self._run(command))
        return True

    def _run(self, command: tuple[bytes, ...]) -> bytes:
        with self._mutex:
            self.log.append(command)
            return _encoded(self._effect(command))

    def _get(self, key: bytes) -> bytes | None:
        value, until = self.keys.get(key, (b"", 0.0))
        return value if time.monotonic() < until else None

    def _effect(self, command: tuple[bytes, ...]) -> Any:
        match command:
            case (b"PING",):
                return "PONG"
            case (b"SCRIPT", b"LOAD", text):
                return Script.of(text.decode()).sha
            case (b"SET", key, value, b"NX", b"PX", ttl_ms):
                if self._get(key) is not None:
                    return None
                self.keys[key] = (value, time.monotonic() + int(ttl_ms) / 1e3)
                return "OK"
            case (b"SETNX", key, value):
                if self._get(key) is not None:
                    return 0
                self.keys[key] = (value, math.inf)
                return 1
            case (b"INCR", key):
                count = int(self.keys.get(key, (b"0", 0.0))[0]) + 1
                self.keys[key] = (str(count).encode(), math.inf)
                return count
            case (b"DEL", key):
                held = self._get(key) is not None
                self.keys.pop(key, None)
                return int(held)
            case (b"EVALSHA", sha, b"1", key, *rest):
                if sha not in self.known:
                    return ValueError("NOSCRIPT No matching script.")
                return self._script(sha, key, rest)
            case (b"EVAL", text, b"1", key, *rest):
                script = DELETE_OWN if text == DELETE_OWN.text.encode() else EXTEND_OWN
                self.known.add(script.sha.encode())
                return self._script(script.sha.encode(), key, rest)
        return ValueError(f"ERR unknown command {command!r}")

    def _script(self, sha: bytes, key: bytes, rest: list[bytes]) -> int:
        if self._get(key) != rest[0]:
            return 0
        if sha == DELETE_OWN.sha.encode():
            del self.keys[key]
        else:
            self.keys[key] = (rest[0], time.monotonic() + int(rest[1]) / 1e3)
        return 1


class Relay(FakeRedis):
    """In front of a real server, which runs what is not failed here. One client at a time."""

    def __init__(self, server: Address) -> None:
        super().__init__()
        self._server = socket.create_connection(server, timeout=5)

    def _run(self, command: tuple[bytes, ...]) -> bytes:
        with self._mutex:
            self.log.append(command)
            self._server.sendall(hiredis.pack_command(command))  # type: ignore[arg-type]
            reader, answer = hiredis.Reader(), b""
            while True:
                answer += (data := self._server.recv(65536))
                reader.feed(data)
                if reader.gets() is not False:
                    return answer

    def stop(self) -> None:
        super().stop()
        self._server.close()


def hang_up(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _encoded(answer: Any) -> bytes:
    match answer:
        case None:
            return b"$-1\r\n"
        case int():
            return b":%d\r\n" % answer
        case ValueError():
            return b"-%s\r\n" % str(answer).encode()
        case _:
            return b"+%s\r\n" % answer.encode()


def closed_port() -> Address:
    """An address where nobody listens, and which nobody else is given."""
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    atexit.register(bound.close)
    return Address(*bound.getsockname())
