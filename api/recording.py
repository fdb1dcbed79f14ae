"""Records who is inside a section of a service, as the service itself reports it.

>>> with record() as section:
...     with section.inside("orders"):      # in this process: threads, asyncio, gevent
...         ...
...     run(pass_fds=[section.pipe()])      # lines of another process, or appended to a file
...     run(env=section.environment)        # HTTP from another language

``enter`` is reported when the lock is held, ``leave`` before it is given back. A recorded stay is
never longer than the true one, so two that overlap did overlap. Times are of one monotonic clock:

- A call in this process returns, and HTTP is answered, after the stamp. A service that waits for
  the answer of ``leave`` before it releases is stamped inside its hold at both ends.
- A line on a pipe or in a file is not answered, and is stamped when it is read: too late, which is
  right for an ``enter``. A ``leave`` counts from when the pipe was last seen without it. Where a
  key is reported in one pipe or file alone, the order of the lines is enough: the kernel keeps it,
  so an overlap in it is one in truth, however late the lines are read. A line must be written, not
  buffered, before the lock is released.
- ``at=NS``, the writer's own CLOCK_MONOTONIC, replaces the stamp; then anything may be late.

A stay without ``leave`` lasts until now where this process reported it. Where another process did,
it lasts for as long as that process was seen alive (``pid=``, checked every few milliseconds), or
counts for nothing where no process was named: a holder that died holds nothing.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import stat
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

from lockbench.api.cluster import Cluster
from lockbench.api.errors import Undecided
from lockbench.clusters.engine.owner import start_ticks
from lockbench.history.builder import Builder
from lockbench.history.columns import History
from lockbench.history.jsonl import write_jsonl
from lockbench.history.op import F, Fault, Object, Type
from lockbench.results.errors import BadInput

KEY: Final = "the section"
HTTP: Final = "HTTP"
URL: Final = "LOCKBENCH_SECTION"
LINE: Final = "enter KEY WHO [at=NS] [pid=N]` or `leave KEY WHO [at=NS]"
# What a pipe takes in one piece (pipe(7), PIPE_BUF).
LINE_BYTES_MAX: Final = 4096
LOOK_S: Final = 0.005
READ_BYTES: Final = 1 << 16


class BadReport(ValueError):
    """A report that cannot be what happened; the message says why."""


@dataclass(slots=True)
class Stay:
    """One holder inside the section. Times are those of CLOCK_MONOTONIC in nanoseconds.

    ``left_ns`` is when its ``leave`` was stamped, ``surely_ns`` until when it was certainly inside.
    ``place`` is where both were reported in lines without times, None if they were not.
    """

    key: str
    who: str
    entered_ns: int
    surely_ns: int
    left_ns: int | None = None
    here: bool = False  # reported by this process
    caller: object = None  # the task or thread of this process
    place: str | None = None
    process: tuple[int, int] | None = None  # number and start

    @property
    def is_empty(self) -> bool:
        """Whether nothing can be said of how long it lasted."""
        return not self.here and self.left_ns is None and self.surely_ns <= self.entered_ns


class Recording:
    """See the module. Everything may be called from any thread."""

    def __init__(self, cluster: Cluster | None = None, *, at_most: int = 1) -> None:
        if at_most < 1:
            raise BadInput(f"at_most={at_most}: a section admits one holder at least")
        self.at_most = at_most
        self.troubles: list[str] = []
        """Reports that make no sense, a sentence each."""
        self._cluster = cluster
        self._began_ns = time.monotonic_ns()
        self._last_ns = self._began_ns
        self._looked_ns = self._began_ns  # lines that were written before this have been read
        self._stays: list[Stay] = []
        self._open: dict[tuple[str, str], Stay] = {}
        self._inside: list[Stay] = []  # of this process
        self._sources: list[_Lines] = []
        self._server: ThreadingHTTPServer | None = None
        self._token = secrets.token_hex(8)
        self._lock = threading.RLock()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- from this process ---

    def enter(self, key: str = KEY, who: str | None = None) -> Stay:
        """Somebody holds the lock and is inside. ``who`` is the task or thread where None. Who
        enters again without having left is no second holder: kept in ``troubles``."""
        with self._lock:
            now_ns = self._now_ns()
            caller, name = _caller()
            stay = Stay(key, who or name, now_ns, now_ns, here=True, caller=caller)
            inside = (stay.key, stay.who, caller)
            if any(inside == (one.key, one.who, one.caller) for one in self._inside):
                self.troubles.append(f"{stay.who} enters {key} a second time without having left")
                return stay
            self._inside.append(stay)
            self._stays.append(stay)
            return stay

    def leave(self, stay: Stay) -> None:
        """It is about to give the lock back."""
        with self._lock:
            if stay.left_ns is None:
                stay.left_ns = stay.surely_ns = self._now_ns()
                self._inside = [one for one in self._inside if one is not stay]

    @contextmanager
    def inside(self, key: str = KEY, who: str | None = None) -> Iterator[Stay]:
        """``enter`` and ``leave`` around a block. In asyncio too: it never waits."""
        stay = self.enter(key, who)
        try:
            yield stay
        finally:
            self.leave(stay)

    # --- from other processes ---

    def pipe(self) -> int:
        """The end of a pipe to write lines into, for ``pass_fds`` of a subprocess. It may have
        several writers. Closed with the recording."""
        read, write = os.pipe()
        os.set_blocking(read, False)
        self._read(_Lines(read, f"pipe {write}", also=write))
        return write

    def follow(self, path: str | os.PathLike[str]) -> None:
        """Reads the lines that are appended to a file from now on; it is made if it is not there.
        Writers open it for appending. One that is truncated or replaced is kept in ``troubles``."""
        flags = os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        try:
            file = os.open(path, flags, 0o600)
        except OSError as error:
            raise BadInput(f"{os.fspath(path)} cannot be read: {error.strerror}") from error
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise BadInput(f"{os.fspath(path)} is not a regular file")
        os.lseek(file, 0, os.SEEK_END)
        self._read(_Lines(file, os.fspath(path), followed=True))

    @property
    def url(self) -> str:
        """Where ``POST /enter?key=…&who=…`` and ``POST /leave?key=…&who=…`` are answered."""
        with self._lock:
            if self._server is None:
                self._server = _server(self.report, self._token)
                threading.Thread(
                    target=self._server.serve_forever, args=(0.05,), daemon=True
                ).start()
            return f"http://127.0.0.1:{self._server.server_port}/{self._token}"

    @property
    def environment(self) -> Mapping[str, str]:
        """The environment of this process with the URL in ``LOCKBENCH_SECTION``."""
        return {**os.environ, URL: self.url}

    def report(self, word: str, fields: Mapping[str, str], source: str = HTTP) -> None:
        """One report of another process. Raises BadReport, and keeps the sentence in
        ``troubles``: from then on nothing can be said of the section but what is broken."""
        with self._lock:
            try:
                self._report(word, dict(fields), source)
            except BadReport as error:
                self.troubles.append(f"{source}: {error}")
                raise

    def _report(self, word: str, fields: dict[str, str], source: str) -> None:
        key, who = fields.pop("key", ""), fields.pop("who", "")
        told_ns, pid = _number(fields, "at"), _number(fields, "pid")
        if word not in {"enter", "leave"} or not key or not who or fields:
            raise BadReport(f"a report is `{LINE}`")
        now_ns = self._now_ns()
        if told_ns is not None and not self._began_ns <= told_ns <= now_ns:
            raise BadReport(f"at={told_ns} is no time of CLOCK_MONOTONIC since the recording began")
        at_ns = now_ns if told_ns is None else told_ns
        place = source if told_ns is None and source != HTTP else None
        stay = self._open.pop((key, who), None)
        if word == "leave":
            if stay is None:
                raise BadReport(f"{who} leaves {key} without having entered it")
            stay.left_ns = max(at_ns, stay.entered_ns)
            stay.surely_ns = stay.left_ns if place is None else self._looked_ns
            stay.place = place if place == stay.place else None
            return
        if stay is not None and (stay.process is None or _lives(stay.process)):
            raise BadReport(
                f"{who} enters {key} a second time without having left: give every holder a name of"
                " its own, and pid= to those that may be killed"
            )
        process = None if pid is None else _process(pid, waits=source == HTTP)
        self._open[key, who] = made = Stay(key, who, at_ns, at_ns, place=place, process=process)
        self._stays.append(made)
        self._look()

    def _read(self, lines: _Lines) -> None:
        with self._lock:
            self._sources.append(lines)
        self._look()

    def _look(self) -> None:
        """Starts to look at lines and processes, where nobody does."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="section", daemon=True)
                self._thread.start()

    def _watch(self) -> None:
        while not self._over.wait(LOOK_S):
            self._look_once()

    def _look_once(self) -> None:
        with self._lock:
            began_ns = self._now_ns()
            for source in self._sources:
                for line in source.read():
                    word, fields = _parsed(line)
                    with suppress(BadReport):
                        self.report(word, fields, source.name)
                if (why := source.lost()) is not None:
                    self.troubles.append(f"{source.name}: {why}")
            # Of who has not left in any line up to then, and still lives.
            for stay in self._open.values():
                if stay.process is not None and _lives(stay.process):
                    stay.surely_ns = max(stay.surely_ns, began_ns)
            self._looked_ns = began_ns

    def _now_ns(self) -> int:
        """Later than any time before, so that the order of reports is theirs."""
        self._last_ns = max(time.monotonic_ns(), self._last_ns + 1)
        return self._last_ns

    # --- meanwhile and afterwards ---

    def wait_for(self, more: int = 1, *, timeout_s: float = 30.0) -> None:
        """Returns once so many more have entered than had when it was called: before a fault, so
        that it meets somebody, and after it. Raises Undecided when they have not in time."""
        wanted = len(self.stays) + more
        end = time.monotonic() + timeout_s
        while len(self.stays) < wanted:
            if time.monotonic() > end:
                raise Undecided(f"fewer than {more} entered the section within {timeout_s:g} s")
            time.sleep(LOOK_S)

    @property
    def stays(self) -> list[Stay]:
        """Every stay so far, in the order of their reports."""
        with self._lock:
            self._look_once()
            return list(self._stays)

    @property
    def faults(self) -> list[Fault]:
        """The cluster's faults that began while this was recorded."""
        made = [] if self._cluster is None else self._cluster.faults
        return [fault for fault in made if fault.begin_ns[0] >= self._began_ns]

    def history(self) -> History:
        """What was recorded so far, as a history of grants and releases."""
        builder = Builder()
        stays = self.stays
        places: dict[str, set[str | None]] = defaultdict(set)
        for stay in stays:
            places[stay.key].add(stay.place)
        for number, stay in enumerate(stays, 1):
            in_order = len(places[stay.key]) == 1 and stay.place is not None
            end_ns = stay.left_ns if in_order or stay.left_ns is None else stay.surely_ns
            if end_ns is None and not stay.here:
                # Not a death: that would end what the same holder has elsewhere, too.
                end_ns = stay.surely_ns
            _add(builder, stay, F.ACQUIRE, stay.entered_ns, number)
            if end_ns is not None:
                _add(builder, stay, F.RELEASE, max(end_ns, stay.entered_ns), number)
        kind, permits = ("mutex", None) if self.at_most == 1 else ("semaphore", self.at_most)
        builder.objects = {
            key: Object(kind, permits=permits, role="contended") for key in builder.keys
        }
        builder.faults = self.faults
        return builder.finish()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes it as ``history.jsonl``, for ``lockbench check``. Raises OSError."""
        write_jsonl(self.history(), Path(path))

    def close(self) -> None:
        """Reads what there is to read and ends. Once closed, what was recorded stays."""
        with self._lock:
            server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._look_once()
        with self._lock:
            for source in self._sources:
                if source.rest:
                    self.troubles.append(f"{source.name}: its last line has no end")
                source.close()
            self._sources = []


def record(cluster: Cluster | None = None, *, at_most: int = 1) -> Recording:
    """A recording of a section that admits so many holders, without a judgement:
    ``lockbench.exclusive`` judges at its end. With a cluster, its faults are recorded too."""
    return Recording(cluster, at_most=at_most)


class _Lines:
    """Whole lines of a file that is read without waiting. ``followed``: it is a regular file of
    this name."""

    def __init__(
        self, file: int, name: str, also: int | None = None, *, followed: bool = False
    ) -> None:
        self.name = name
        self._files = [file] if also is None else [file, also]
        self._rest = b""
        self._followed = followed

    def read(self) -> Iterator[str]:
        """What has come since, until there is no more."""
        with suppress(BlockingIOError):
            while data := os.read(self._files[0], READ_BYTES):
                *lines, self._rest = (self._rest + data).split(b"\n")
                if len(self._rest) > LINE_BYTES_MAX:
                    lines, self._rest = [*lines, self._rest], b""
                for line in lines:
                    yield line.decode(errors="replace")

    def lost(self) -> str | None:
        """Why lines may be missing; said once."""
        if not self._followed:
            return None
        here = os.fstat(self._files[0])
        try:
            there = Path(self.name).stat()
        except OSError:
            there = None
        if there is None or not os.path.samestat(here, there):
            why = "it was replaced or removed while it was followed"
        elif here.st_size < os.lseek(self._files[0], 0, os.SEEK_CUR):
            why = "it was truncated while it was followed"
        else:
            return None
        self._followed = False
        return why

    @property
    def rest(self) -> bytes:
        """Of a line whose end has not come."""
        return self._rest

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())


def _parsed(line: str) -> tuple[str, dict[str, str]]:
    words = line.split()
    if len(line) > LINE_BYTES_MAX or len(words) < 3:
        return line[:40], {}
    more = dict(word.split("=", 1) for word in words[3:] if "=" in word)
    bare = {word: "" for word in words[3:] if "=" not in word}
    return words[0], {"key": words[1], "who": words[2], **more, **bare}


def _server(report: Callable[[str, Mapping[str, str]], None], token: str) -> ThreadingHTTPServer:
    """Not yet serving, on a port of this machine that was free."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = urlsplit(self.path)
            _, _, path = asked.path.partition(f"/{token}/")
            status, said = 204, b""
            try:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                report(path, dict(parse_qsl(f"{asked.query}&{body.decode(errors='replace')}")))
            except ValueError as error:
                status, said = 400, f"{error}\n".encode()
            self.send_response(status)
            if said:
                self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:  # the standard one writes to stderr
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    return server


def _add(builder: Builder, stay: Stay, f: F, at_ns: int, number: int) -> None:
    builder.add(
        process=stay.who,
        f=f,
        outcome=Type.OK,
        key=stay.key,
        invoke_ns=at_ns,
        complete_ns=at_ns,
        hold=number,
    )


def _number(fields: dict[str, str], name: str) -> int | None:
    text = fields.pop(name, None)
    if text is None:
        return None
    if not text.isdecimal():
        raise BadReport(f"{name}={text} is no number")
    return int(text)


def _process(pid: int, *, waits: bool) -> tuple[int, int]:
    """``waits``: it has not been answered, so it lives."""
    started = start_ticks(pid)
    if pid == 1 or (waits and started is None):
        raise BadReport(
            f"pid={pid} is no process that could be inside: it is the number that this machine"
            " sees, not a container's own"
        )
    return pid, -1 if started is None else started


def _lives(process: tuple[int, int]) -> bool:
    pid, started = process
    return start_ticks(pid) == started


def _caller() -> tuple[object, str]:
    """The task of asyncio, or the thread, that asks, and its name."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    if task is not None:
        return task, task.get_name()
    thread = threading.current_thread()
    return thread, thread.name
