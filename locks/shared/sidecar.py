"""A lock that runs in a process of its own, a sidecar, and is spoken to by ``docs/sidecar.md``.

One sidecar per process and library, started by its first client, for all clients of that process.
It is in this process' group, so a signal to the group reaches it too, and it dies with this process
(PR_SET_PDEATHSIG, unless a template forked it; and its standard input ends).

A sidecar that ends, does not answer a ping, answers garbage or speaks a newer protocol is killed
and not started again. Whatever was in flight is Unknown; later acquires are without effect, later
releases Unknown. A call that only takes long is no failure: a library may let its user wait.

Guarantees what the library does and nothing else. Works with threads, and with greenlets where
gevent has replaced them.
"""

from __future__ import annotations

import atexit
import itertools
import json
import logging
import os
import re
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from lockbench.clusters.engine.owner import die_with_parent
from lockbench.declarations.lazy import lazy
from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Extended,
    Freed,
    Granted,
    Hold,
    LockUnusableError,
    NotHeld,
    Observer,
    Released,
    Unknown,
    token_of,
)
from lockbench.locks.shared.template import forked

if TYPE_CHECKING:
    import psutil
else:
    psutil = lazy("psutil")

PROTOCOL: Final = 1
# Tells sidecars where the offset of their wall clock stands, as ``file@byte`` (a 64-bit number of
# nanoseconds), in a worker whose clock a fault may move.
CLOCK_ENVIRONMENT: Final = "LOCKBENCH_CLOCK_OFFSET"
# What an answer must have.
FIELDS: Final = {"granted": ("fence", "sent_ns", "valid_until_ns"), "denied": ("reason",)}
START_S: Final = 30.0  # until the hello
OVERDUE_S: Final = 5.0  # beyond what a call was to wait, before the sidecar is pinged
PONG_S: Final = 5.0
READ_BYTES: Final = 1 << 16
# An error in the reason of ``unknown``, in Python after the call that it came out of.
_RAISED: Final = re.compile(
    r"(?:(?:acquire|release|extend): )?([A-Za-z_]\w*)(?=[:;,]|$)(?:: )?(.*)"
)
# What Java's futures wrap an error in. Their message begins with the class of that.
_WRAPPERS: Final = frozenset({"ExecutionException", "CompletionException"})
_WRAPPED: Final = re.compile(r"(?:[\w$]+[.$])+(\w+)(?=:|$)")
_ENDED: Final = re.compile(r"(?:no-effect: )?the sidecar of .+? (?:ended|takes no requests)\b")
_SENSELESS: Final = re.compile(
    r"(?:no-effect: )?the sidecar of .+? (?:did not answer a ping|answered with garbage)\b"
)

log = logging.getLogger("lockbench.sidecar")


class SidecarError(Exception):
    """The sidecar is of no more use; the message is one sentence that names it and says why."""


class _Question:
    """A request under way."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.answer: dict[str, Any] | None = None


class Process(Protocol):
    """What a sidecar runs in, as far as it must be ended."""

    @property
    def pid(self) -> int:
        """As this process sees it."""

    def kill(self) -> None:
        """SIGKILL. May raise psutil.NoSuchProcess when it has ended."""

    def wait(self) -> object:
        """Returns when it has ended."""


class Sidecar:
    """The process and the stream to it. ``command`` is what to run, ``name`` what to call it.
    ``template`` is where to ask for it instead of starting it."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        template: str | None = None,
    ) -> None:
        self.name = name
        self.library = ""  # name and version, as it says itself: whatever fails is said with them
        self.failure: str | None = None
        self._command = list(command)
        self._environment = dict(environment or {})
        self._template = template
        self._socket, self._theirs = socket.socketpair()
        self._questions: dict[int, _Question] = {}
        self._clients: dict[int, SidecarLock] = {}
        self._numbers = itertools.count(1)
        self._ready = threading.Event()
        self._writing = threading.Lock()
        self._process: Process | None = None
        # The kernel ends a child with the *thread* that made it, so the one that lasts makes it.
        self._thread = threading.Thread(target=self._read, name=f"sidecar-{name}", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_S):
            self._fail(f"did not say hello within {START_S:g} s")
        if self.failure is not None:
            raise SidecarError(self.failure)

    @property
    def pid(self) -> int:
        """Its process number."""
        assert self._process is not None
        return self._process.pid

    def adopt(self, client: SidecarLock) -> int:
        """A number for a new client, whose events it will be told."""
        number = next(self._numbers)
        self._clients[number] = client
        return number

    def forget(self, client: int) -> None:
        """No more events for it."""
        self._clients.pop(client, None)

    def ask(self, call: str, client: int, **fields: Any) -> dict[str, Any]:
        """The answer, however long the library takes. Raises SidecarError when none can come."""
        number, question = self._send(call, client=client, **fields)
        due_s = fields.get("wait_s", 0.0) + OVERDUE_S
        try:
            while not question.answered.wait(due_s):
                self._ping()
        except NotSentError as error:  # the ping; the request was
            raise SidecarError(str(error)) from error
        finally:
            self._questions.pop(number, None)
        if question.answer is None:
            raise SidecarError(self.failure)
        return question.answer

    def ask_within(self, limit_s: float, call: str, client: int) -> None:
        """Asks and waits for no longer than that; the answer does not matter."""
        number, question = self._send(call, client=client)
        question.answered.wait(limit_s)
        self._questions.pop(number, None)

    def close(self) -> None:
        """Ends the process. Never raises."""
        self._fail("was closed")
        self._thread.join(PONG_S)

    def _send(self, call: str, **fields: Any) -> tuple[int, _Question]:
        if self.failure is not None:
            raise NotSentError(self.failure)
        number, question = next(self._numbers), _Question()
        self._questions[number] = question
        line = json.dumps({"id": number, "call": call, **fields}, separators=(",", ":")).encode()
        try:
            with self._writing:
                self._socket.sendall(line + b"\n")
        except OSError as error:
            self._fail(f"takes no requests: {error}")
        if self._over():  # it may have failed before the question was noted
            question.answered.set()
        return number, question

    def _over(self) -> bool:
        return self.failure is not None

    def _ping(self) -> None:
        """A sidecar whose library takes its time answers all the same."""
        number, question = self._send("ping")
        if not question.answered.wait(PONG_S):
            self._fail(f"did not answer a ping within {PONG_S:g} s")
        self._questions.pop(number, None)

    # The thread that reads.

    def _read(self) -> None:
        reason = "ended"
        try:
            self._start()
            rest = b""
            while chunk := self._socket.recv(READ_BYTES):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    self._take(line)
        except SidecarError as error:
            reason = str(error)
        except ConnectionResetError:  # what was sent to it last was never read
            reason = "ended with requests unread"
        except OSError as error:
            reason = f"cannot be reached: {error}"
        self._fail(reason)
        if self._process is not None:
            self._process.wait()
        self._socket.close()
        self._ready.set()

    def _start(self) -> None:
        # gevent leaves both ends non-blocking; the sidecar's shall be an ordinary one.
        os.set_blocking(self._theirs.fileno(), True)
        with self._theirs:
            if self._template is not None:
                self._process = forked(self._template, self._theirs.fileno())
                return
            self._process = subprocess.Popen(
                self._command,
                stdin=self._theirs.fileno(),
                stdout=self._theirs.fileno(),
                env=os.environ | self._environment,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one system call, takes no locks
            )

    def _take(self, line: bytes) -> None:
        try:
            message = json.loads(line)
            if not self._ready.is_set():
                self._greet(message)
            elif "event" in message:
                self._tell(message)
            else:
                question = self._questions.get(message["id"])
                if question is not None:
                    for field in FIELDS.get(message["said"], ()):
                        message[field]
                    question.answer = message
                    question.answered.set()
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            heard = line[:80].decode(errors="replace")
            raise SidecarError(f"answered with garbage: {heard!r} ({error!r})") from error

    def _greet(self, message: dict[str, Any]) -> None:
        if message["hello"] != PROTOCOL:
            raise SidecarError(f"speaks protocol {message['hello']}, this bench speaks {PROTOCOL}")
        self._check(message)
        self.library = f"{message['library']} {message['version']}"
        self._ready.set()

    def _check(self, hello: dict[str, Any]) -> None:
        """What else a hello must say."""

    def _tell(self, message: dict[str, Any]) -> None:
        client = self._clients.get(message["client"])
        if client is not None:
            client.told(message)

    def _fail(self, reason: str) -> None:
        if self.failure is None:
            library = f" ({self.library})" if self.library else ""
            self.failure = f"the sidecar of {self.name} {reason}{library}"
            if reason != "was closed":
                log.error("%s", self.failure)
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                self._process.kill()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        for question in list(self._questions.values()):
            question.answered.set()


class NotSentError(SidecarError):
    """The request was not sent."""


class SidecarLock:
    """One client of a library, whose answers are what that says to its user. ``safe``: with retries
    and timeouts set, else as it comes."""

    def __init__(
        self,
        sidecar: Sidecar,
        nodes: Sequence[Address],
        *,
        timeout_s: float,
        ttl_s: float,
        observer: Observer,
        safe: bool,
    ) -> None:
        self._sidecar = sidecar
        self._timeout_s = timeout_s
        self._observer = observer
        self._holds: dict[str, Hold] = {}
        self._closed = False
        self._number = sidecar.adopt(self)
        answer = sidecar.ask(
            "open",
            self._number,
            nodes=[list(node) for node in nodes],
            timeout_s=timeout_s,
            ttl_s=ttl_s,
            safe=safe,
        )
        if answer["said"] != "opened":
            reason = answer.get("reason", answer["said"])
            raise LockUnusableError(f"{sidecar.name} does not make a client: {reason}")

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        return self._acquire(Hold(hold_id, key), ttl_s=ttl_s, wait_s=wait_s)

    def _acquire(self, hold: Hold, **how: Any) -> Acquired:
        token = token_of(hold.id)
        # Known before it is granted: a renewal may be told before this greenlet runs.
        self._holds[token] = hold
        try:
            answer = self._sidecar.ask("acquire", self._number, key=hold.key, hold=token, **how)
        except NotSentError as error:
            outcome: Acquired = Denied(f"no-effect: {error}")
        except SidecarError as error:
            outcome = Unknown(str(error))
        else:
            outcome = _acquired(hold, answer)
        if not isinstance(outcome, Granted):
            self._holds.pop(token, None)
        return outcome

    def release(self, hold: Hold) -> Freed:
        token = token_of(hold.id)
        self._holds.pop(token, None)
        try:
            answer = self._sidecar.ask("release", self._number, key=hold.key, hold=token)
        except SidecarError as error:
            return Unknown(str(error))
        match answer["said"]:
            case "released":
                return Released()
            case "not-held":
                return NotHeld()
        return _unknown(answer)

    def close(self) -> None:
        """Drops the client's connections, as far as the library does that in time."""
        if self._closed:
            return
        self._closed = True
        self._holds.clear()
        with suppress(SidecarError):
            self._sidecar.ask_within(self._timeout_s, "close", self._number)
        self._sidecar.forget(self._number)

    def told(self, event: Mapping[str, Any]) -> None:
        """Something happened to a hold in the background."""
        hold = self._holds.get(event["hold"])
        if hold is None:
            return
        if event["event"] == "lost":
            self._observer.lost(hold)
        else:
            self._observer.extended(
                hold,
                sent_ns=event["sent_ns"],
                acknowledged_ns=event["acknowledged_ns"],
                valid_until_ns=event["valid_until_ns"],
            )


class ExtendableSidecarLock(SidecarLock):
    """One client of a library whose holders can lengthen the promise."""

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        try:
            answer = self._sidecar.ask(
                "extend", self._number, key=hold.key, hold=token_of(hold.id), ttl_s=ttl_s
            )
        except SidecarError as error:
            return Unknown(str(error))
        match answer["said"]:
            case "granted":
                return _granted(hold, answer)
            case "not-held":
                return NotHeld()
        return _unknown(answer)


class ShareableSidecarLock(SidecarLock):
    """One client of a library's read-write lock."""

    def acquire_shared(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        return self._acquire(Hold(hold_id, key), ttl_s=ttl_s, wait_s=wait_s, shared=True)


def _acquired(hold: Hold, answer: Mapping[str, Any]) -> Acquired:
    match answer["said"]:
        case "granted":
            return _granted(hold, answer)
        case "denied":
            return Denied(answer["reason"])
    return _unknown(answer)


def _granted(hold: Hold, answer: Mapping[str, Any]) -> Granted:
    return Granted(hold, answer["fence"], answer["sent_ns"], answer["valid_until_ns"])


def _unknown(answer: Mapping[str, Any]) -> Unknown:
    return Unknown(str(answer.get("reason", f"the sidecar said {answer['said']!r}")))


# One for all clients of this process.
_shared: dict[str, Sidecar] = {}
_starting = threading.Lock()


def shared(name: str, start: Callable[[], Sidecar]) -> Sidecar:
    """The sidecar of that name, started for whoever asks first. Raises SidecarError."""
    with _starting:
        if name not in _shared:
            _shared[name] = start()
            atexit.register(_shared[name].close)
        return _shared[name]


def close_shared() -> None:
    """Ends those of this process; whoever asks next starts another."""
    with _starting:
        while _shared:
            _, one = _shared.popitem()
            one.close()


def raised(reason: str) -> str | None:
    """The class of the error that the reason of an Unknown begins with, without its module or
    package; of what a future of Java wraps, that of the error inside. None where a sidecar's own
    words stand there. Errors of Go are values: what stands there is no class."""
    found = _RAISED.match(reason)
    if found is None:
        return None
    name, message = found.groups()
    inside = _WRAPPED.match(message) if name in _WRAPPERS else None
    return inside[1] if inside else name


def has_ended(reason: str) -> bool:
    """Whether a reason says that the process of the sidecar ended, or was killed."""
    return _ENDED.match(reason) is not None


def is_senseless(reason: str) -> bool:
    """Whether a reason says that a sidecar does not answer any more, or that what it answers is
    none. A library that blocks all of its process does so."""
    return _SENSELESS.match(reason) is not None


def failures() -> list[str]:
    """Why sidecars of this process are of no more use, one sentence each."""
    return [sidecar.failure for sidecar in _shared.values() if sidecar.failure is not None]


def cpu_ns() -> int:
    """The CPU time that the sidecars of this process have used, in steps of the kernel's ticks."""
    used_s = 0.0
    for sidecar in _shared.values():
        with suppress(psutil.Error):
            times = psutil.Process(sidecar.pid).cpu_times()
            used_s += times.user + times.system
    return int(1e9 * used_s)
