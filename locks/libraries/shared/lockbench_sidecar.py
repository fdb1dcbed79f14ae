"""The library's side of the sidecar protocol (``docs/sidecar.md``), for adapters in Python.

An adapter is a program that runs in its library's own environment. It brings a ``Client``, the
library as its user would drive it, and calls ``serve``. Every client has a real thread of its own,
in which all of its calls run, one after the other.

Uses the standard library alone. Guarantees: one answer per request, in the words of the protocol;
whatever the library raises and the adapter does not map is Unknown, with its name; what the library
prints goes to standard error. When the worker is gone the process ends at once, as if killed.

Does not guarantee: that a call ends. A library that waits for ever lets its user wait for ever.
"""

from __future__ import annotations

import json
import logging
import mmap
import os
import signal
import socket
import struct
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from queue import SimpleQueue
from typing import Any

PROTOCOL = 1
# Names the file and the byte offset of a number, in nanoseconds, by which the wall clock is off.
CLOCK_ENVIRONMENT = "LOCKBENCH_CLOCK_OFFSET"
# Is set where standard input is a socket that listens: each connection asks for one sidecar.
TEMPLATE_ENVIRONMENT = "LOCKBENCH_TEMPLATE"
UNSURE = object()  # in the place of a lock whose release was not answered


@dataclass(frozen=True)
class Granted:
    """Times are CLOCK_MONOTONIC nanoseconds; ``valid_until_ns`` None: it never ends by itself.
    ``lock``: what an acquire got, for ``release`` and ``extend`` of this hold."""

    sent_ns: int
    valid_until_ns: int | None
    fence: int | None = None
    lock: Any = None


@dataclass(frozen=True)
class Denied:
    """The library says: not held. ``reason`` begins with ``held``, ``gave-up`` or ``no-effect``."""

    reason: str


@dataclass(frozen=True)
class Unknown:
    """The library does not say whether it took effect."""

    reason: str


@dataclass(frozen=True)
class Released:
    """The library says: it was held and is given back."""


@dataclass(frozen=True)
class NotHeld:
    """The library says: it was not held any more."""


Acquired = Granted | Denied | Unknown
Freed = Released | NotHeld | Unknown
Extended = Granted | NotHeld | Unknown
Answer = Granted | Denied | Unknown | Released | NotHeld


def refused(wait_s: float, said: str) -> Denied:
    """The library said no: to a try, or at the end of a wait."""
    return Denied(f"gave-up: {said}" if wait_s > 0 else "held")


class Tell:
    """Where a client reports what happens to a hold in the background. May be called from any
    thread; does not block for longer than a write."""

    def __init__(self, client: int, write: Callable[[dict[str, Any]], None]) -> None:
        self._client = client
        self._write = write

    def extended(self, hold: str, *, sent_ns: int, valid_until_ns: int) -> None:
        """A renewal, sent then, was acknowledged just now."""
        self._write(
            {
                "event": "extended",
                "client": self._client,
                "hold": hold,
                "sent_ns": sent_ns,
                "acknowledged_ns": time.monotonic_ns(),
                "valid_until_ns": valid_until_ns,
            }
        )

    def lost(self, hold: str) -> None:
        """The library announced to its user that the hold is over."""
        self._write({"event": "lost", "client": self._client, "hold": hold})


@dataclass(frozen=True)
class Setup:
    """What a client is made of: the nodes as its group sees them, a limit for a request (only for
    ``safe``), the lease, and whether the library is left at its defaults."""

    nodes: Sequence[tuple[str, int]]
    timeout_s: float
    ttl_s: float
    safe: bool
    tell: Tell


class Client(ABC):
    """One client of the library. ``hold`` is the hold's id, 16 hexadecimal digits; ``lock`` is what
    its ``Granted`` had. Of a hold that was never granted or is given back, nothing is asked."""

    gave_up: tuple[type[Exception], ...] = ()  # raised by ``acquire``: the wait is over
    not_held: tuple[type[Exception], ...] = ()  # raised by ``release``, ``extend``: it was not held

    @abstractmethod
    def acquire(self, key: str, hold: str, ttl_s: float, wait_s: float) -> Acquired:
        """Asks for the key, waiting up to ``wait_s`` (0: one try)."""

    @abstractmethod
    def release(self, hold: str, lock: Any) -> Freed:
        """Gives it back."""

    def extend(self, hold: str, lock: Any, ttl_s: float) -> Extended:
        """Lets it live ``ttl_s`` from now, where the library has that."""
        return Unknown("the library has no extend")

    @abstractmethod
    def close(self) -> None:
        """Drops the connections."""


def serve(library: str, connect: Callable[[Setup], Client]) -> None:
    """Never returns. ``library`` is the name of its distribution."""
    if TEMPLATE_ENVIRONMENT in os.environ:
        _be_template()
    _move_clock()
    logging.getLogger().addHandler(logging.NullHandler())
    inward, outward = _streams()
    _Server(inward, outward, connect).run(library)


class _Server:
    def __init__(self, inward: int, outward: int, connect: Callable[[Setup], Client]) -> None:
        self._inward = inward
        self._outward = outward
        self._connect = connect
        self._writing = threading.Lock()
        self._seats: dict[int, _Seat] = {}

    def run(self, library: str) -> None:
        self.write({"hello": PROTOCOL, "library": library, "version": version(library)})
        with os.fdopen(self._inward, "rb") as lines:
            for line in lines:
                self._take(json.loads(line))
        os._exit(0)

    def write(self, message: dict[str, Any]) -> None:
        line = json.dumps(message, separators=(",", ":")).encode() + b"\n"
        with self._writing:
            while line:
                line = line[os.write(self._outward, line) :]

    def _take(self, request: dict[str, Any]) -> None:
        if request["call"] == "ping":
            self.write({"id": request["id"], "said": "pong"})
            return
        number = request["client"]
        if request["call"] == "open":
            self._seats[number] = _Seat(number, self._connect, self.write)
        self._seats[number].requests.put(request)
        if request["call"] == "close":
            del self._seats[number]


class _Seat:
    """One client and its thread."""

    def __init__(
        self,
        number: int,
        connect: Callable[[Setup], Client],
        write: Callable[[dict[str, Any]], None],
    ) -> None:
        self.requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._number = number
        self._connect = connect
        self._write = write
        self._locks: dict[str, Any] = {}  # hold → what its acquire got
        threading.Thread(target=self._run, name=f"client-{number}", daemon=True).start()

    def _run(self) -> None:
        client = self._open(self.requests.get())
        while client is not None:
            request = self.requests.get()
            answer = _answer(client, self._locks, request)
            self._write({"id": request["id"], **answer})
            if request["call"] == "close":
                return

    def _open(self, request: dict[str, Any]) -> Client | None:
        setup = Setup(
            nodes=[(host, port) for host, port in request["nodes"]],
            timeout_s=request["timeout_s"],
            ttl_s=request["ttl_s"],
            safe=request["safe"],
            tell=Tell(self._number, self._write),
        )
        try:
            client = self._connect(setup)
        except BaseException as error:  # noqa: BLE001 - the worker is told its name
            self._write({"id": request["id"], "said": "failed", "reason": named(error)})
            return None
        self._write({"id": request["id"], "said": "opened"})
        return client


def _answer(client: Client, locks: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    try:
        if request["call"] != "close":
            return _words(_asked(client, locks, request))
        client.close()
    # Also what is no Exception, such as asyncio's CancelledError: nobody else answers.
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is told, not judged
        return {"said": "unknown", "reason": f"{request['call']}: {named(error)}"}
    return {"said": "closed"}


def _asked(client: Client, locks: dict[str, Any], request: dict[str, Any]) -> Answer:
    """``locks``: what the acquire of each hold got, until it is given back."""
    hold = request["hold"]
    if request["call"] == "acquire":
        try:
            answer = client.acquire(request["key"], hold, request["ttl_s"], request["wait_s"])
        except client.gave_up as error:
            return Denied(f"gave-up: {type(error).__name__}")
        if isinstance(answer, Granted):
            locks[hold] = answer.lock
        return answer
    if hold not in locks:
        return NotHeld()
    if (lock := locks[hold]) is UNSURE:
        return Unknown("an earlier release was not answered")
    try:
        if request["call"] == "extend":
            return client.extend(hold, lock, request["ttl_s"])
        locks[hold] = UNSURE
        freed = client.release(hold, lock)
    except client.not_held:
        freed = NotHeld()
    if request["call"] == "release" and not isinstance(freed, Unknown):
        del locks[hold]
    return freed


def _words(answer: Answer) -> dict[str, Any]:
    """An answer as the protocol writes it."""
    match answer:
        case Granted(sent_ns=sent_ns, valid_until_ns=valid_until_ns, fence=fence):
            return {
                "said": "granted",
                "sent_ns": sent_ns,
                "valid_until_ns": valid_until_ns,
                "fence": fence,
            }
        case Denied(reason=reason):
            return {"said": "denied", "reason": reason}
        case Unknown(reason=reason):
            return {"said": "unknown", "reason": reason}
        case Released():
            return {"said": "released"}
        case NotHeld():
            return {"said": "not-held"}


def named(error: BaseException) -> str:
    """An error in words, on one line."""
    return " ".join(f"{type(error).__name__}: {error}".rstrip(": ").split())


def _be_template() -> None:
    """Forks a sidecar for each connection, which brings the number of a process group, and as
    descriptors the sidecar's stream and where it prints. Returns in each sidecar. Ends where
    imports have started threads, which would be missing there."""
    if threading.active_count() > 1:
        os._exit(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    listener = socket.socket(fileno=os.dup(0))
    os.write(1, b"ready\n")
    while True:
        channel, _ = listener.accept()
        group, (stream, prints), _, _ = socket.recv_fds(channel, 64, 2)
        if (pid := os.fork()) == 0:
            break
        try:
            os.setpgid(pid, int(group))
        except OSError:  # whoever asked has ended
            os.kill(pid, signal.SIGKILL)
        with suppress(OSError):
            channel.sendall(str(pid).encode())
        channel.close()
        os.close(stream)
        os.close(prints)
    listener.close()
    channel.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(stream, 0)
    os.dup2(stream, 1)
    os.dup2(prints, 2)
    os.close(stream)
    os.close(prints)


def _streams() -> tuple[int, int]:
    """Standard input and output for the protocol alone; whatever the library prints goes to
    standard error."""
    inward, outward = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    return inward, outward


def _move_clock() -> None:
    """Lets ``time.time`` tell what it tells in the worker, so that a fault can move it here too."""
    place = os.environ.get(CLOCK_ENVIRONMENT)
    if place is None:
        return
    path, _, offset = place.rpartition("@")
    with open(path, "rb") as file:  # noqa: PTH123 - a file to be mapped
        page = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    at, number = int(offset), struct.Struct("<q")
    true_ns = time.time_ns

    def moved_ns() -> int:
        moved: int = true_ns() + number.unpack_from(page, at)[0]
        return moved

    def moved() -> float:
        return moved_ns() / 1e9

    time.time_ns = moved_ns
    time.time = moved
