"""What the scripts of the track record share; the standard library is enough for it.

A script prints what it saw and ends with 1 when the defect shows, 0 when it does not, 2 when it
could not tell. ``--history FILE`` writes its operations as JSON Lines, which ``lockbench
check`` judges.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from types import TracebackType

SHOWS, HEALTHY, UNDECIDED = 1, 0, 2


class Recorder:
    """Operations on a mutex as they happen, on the monotonic clock; safe for threads. With
    ``initial`` it is no mutex but a register, with that value."""

    def __init__(
        self, key: str, *, strict_try: bool = False, initial: int | None = None, quiet: bool = False
    ) -> None:
        self.key = key
        self.strict_try = strict_try
        self.initial = initial
        self.quiet = quiet
        self._lines: list[dict[str, object]] = []
        self._faults: list[dict[str, object]] = []
        self._began = time.monotonic_ns()

    def begin(self, process: str, f: str, hold: str) -> Operation:
        """An operation that is sent now."""
        return Operation(self, process, f, hold)

    def fault(self, name: str, begin_ns: int, heal_ns: int) -> None:
        """Something that was broken between two times."""
        self._faults.append(
            {
                "process": "nemesis",
                "f": name,
                "begin_ns": [begin_ns, begin_ns],
                "heal_ns": [heal_ns, heal_ns],
            }
        )

    def add(self, line: dict[str, object], said: str) -> None:
        """One operation that was answered."""
        self._lines.append(line)
        at = (int(line["complete_ns"]) - self._began) / 1e6
        if not self.quiet:
            print(f"{at:9.1f} ms  {line['process']}: {line['f']}: {said}")

    def write(self, path: str) -> None:
        """In the order of sending, with times from the first one."""
        lines = sorted(self._lines, key=lambda line: int(line["invoke_ns"]))
        zero = int(lines[0]["invoke_ns"])
        thing: dict[str, object] = {"kind": "mutex"}
        if self.initial is not None:
            thing = {"kind": "register", "initial": self.initial}
        elif self.strict_try:
            thing["strict_try"] = True
        with open(path, "w", encoding="utf-8") as file:
            header = {"history": 1, "objects": {self.key: thing}, "epsilon_ns": 0}
            for line in [header, *lines, *self._faults]:
                print(json.dumps(_moved(line, zero), separators=(",", ":")), file=file)


class Operation:
    """One operation; ``ok``, ``fail`` or ``info`` says how it ended, now."""

    def __init__(self, recorder: Recorder, process: str, f: str, hold: str) -> None:
        self._recorder = recorder
        self._line: dict[str, object] = {
            "process": process,
            "f": f,
            "key": recorder.key,
            "type": "ok",
            "invoke_ns": time.monotonic_ns(),
            "hold": hold,
        }

    def ok(self, said: str, **more: int) -> None:
        """It had its effect."""
        self._end("ok", said, more)

    def fail(self, error: str, said: str) -> None:
        """It was refused: ``held``, ``not-held`` or ``gave-up``."""
        self._end("fail", said, {"error": error})

    def unknown(self, said: str) -> None:
        """It may have had its effect."""
        self._end("info", said, {})

    def _end(self, outcome: str, said: str, more: dict[str, object]) -> None:
        line = self._line | {"type": outcome, "complete_ns": time.monotonic_ns()} | more
        self._recorder.add(line, said)


def _moved(line: dict[str, object], zero: int) -> dict[str, object]:
    return {
        name: [t - zero for t in value]
        if isinstance(value, list)
        else value - zero
        if name.endswith("_ns") and name != "epsilon_ns"
        else value
        for name, value in line.items()
    }


class Begun:
    """A call that runs beside the script, and may never return."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._came = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def came(self, limit_s: float) -> str | None:
        """What came of it, in words; None where it has not ended by then."""
        self._thread.join(limit_s)
        return self._came or None

    def _run(self) -> None:
        try:
            self._came = f"returned {self._call()!r}"
        except Exception as error:  # noqa: BLE001 - it is what is looked for
            self._came = f"raised {type(error).__name__}"


class Proxy:
    """Forwards TCP to one server. ``reply_delay_s`` holds every reply back. The reply to the first
    request that ``lose`` matches is swallowed and the connection closed: the server has done what
    was asked, and the client cannot know. The first request that ``drop`` matches is not forwarded,
    and the connection closed. ``mute`` swallows all replies, and every connection stays open."""

    def __init__(self, server: tuple[str, int]) -> None:
        self.server = server
        self.reply_delay_s = 0.0
        self.mute = False
        self.lose: Callable[[bytes], bool] | None = None
        self.drop: Callable[[bytes], bool] | None = None
        self.lost_ns: int | None = None
        self.dropped_ns: int | None = None
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.host, self.port = self._listener.getsockname()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            client, _ = self._listener.accept()
            server = socket.create_connection(self.server)
            lost = threading.Event()
            for work in (self._requests, self._replies):
                threading.Thread(target=work, args=(client, server, lost), daemon=True).start()

    def _requests(
        self, client: socket.socket, server: socket.socket, lost: threading.Event
    ) -> None:
        while data := _received(client):
            if self.drop is not None and self.drop(data):
                self.drop = None
                self.dropped_ns = time.monotonic_ns()
                break
            if self.lose is not None and self.lose(data):
                self.lose = None
                lost.set()
            server.sendall(data)
        _close(server)

    def _replies(self, client: socket.socket, server: socket.socket, lost: threading.Event) -> None:
        while data := _received(server):
            if lost.is_set():
                self.lost_ns = time.monotonic_ns()
                break
            if self.mute:
                continue
            time.sleep(self.reply_delay_s)
            try:
                client.sendall(data)
            except OSError:
                break
        _close(client)
        _close(server)


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65536)
    except OSError:
        return b""


def _close(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()


def _undecided(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """An error of the script itself must not look like the defect."""
    traceback.print_exception(kind, error, trace)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(UNDECIDED)


def servers(text: str, count: int, what: str) -> tuple[list[tuple[str, int]], str | None]:
    """The addresses of the command line, and the file of ``--history``."""
    sys.excepthook = _undecided
    parser = argparse.ArgumentParser(description=text)
    parser.add_argument("address", nargs=count, metavar="HOST:PORT", help=what)
    parser.add_argument("--history", help="write the operations into this file")
    given = parser.parse_args()
    return [_address(word) for word in given.address], given.history


def _address(word: str) -> tuple[str, int]:
    host, _, port = word.rpartition(":")
    return host, int(port)


def end(recorder: Recorder, history: str | None, shows: bool, said: Sequence[str]) -> None:
    """Prints what it comes to, writes the history, ends the process."""
    for line in said:
        print(line)
    print("THE DEFECT SHOWS" if shows else "it does not show")
    if history:
        recorder.write(history)
    sys.stdout.flush()
    sys.exit(SHOWS if shows else HEALTHY)
