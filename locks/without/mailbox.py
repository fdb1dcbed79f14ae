"""One owner for all keys, and a mailbox for each: what the actor and the partitioned queue share.

The owner is whichever process of the clients listens first; in a load of ours that is the victim,
so that a fault which is aimed at a client strikes the owner. The kernel sees to it that there is
one: the address is an abstract Unix socket of this machine, free again as soon as its process is
dead, and kept while it is frozen. Over several machines this is what one needs a lease for again,
which is not shown here. Everybody on a machine may take an abstract address or connect to it, so
both sides ask the kernel whose process the other one is.

Every key's messages are worked on one after the other, in a thread of its own (a greenlet where
gevent has replaced threads). Messages are lines of JSON.
"""

from __future__ import annotations

import json
import os
import queue
import socket
import struct
import threading
import time
from abc import abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar, Final

from lockbench.locks.base import Address, NoObserver, Observer, Unknown
from lockbench.locks.postgres.session import Broken, NotSent, Refused, Session
from lockbench.locks.without.base import Conflict, Done, DoneAlready, Outcome, PostgresWay, Thinking

# A message may stand behind many others.
PATIENCE_S: Final = 5.0
Message = dict[str, Any]
Box = queue.SimpleQueue[tuple[Message, socket.socket] | None]


class Mailboxes:
    """The owner's side: answers every message through ``handle``, key by key in order."""

    def __init__(self, listener: socket.socket, way: MailboxWay) -> None:
        self._way = way
        self._boxes: dict[str, Box] = {}
        self._listener = listener
        self._lines: list[socket.socket] = []
        _start(self._accept)

    def close(self) -> None:
        """Owns the keys no longer; what is being worked on is finished."""
        for line in (self._listener, *self._lines):
            with suppress(OSError):
                line.shutdown(socket.SHUT_RDWR)
        for box in self._boxes.values():
            box.put(None)

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    line, _ = self._listener.accept()
                except OSError:
                    return
                if not _ours(line):
                    line.close()
                    continue
                self._lines.append(line)
                _start(self._read, line)

    def _read(self, line: socket.socket) -> None:
        with suppress(OSError, ValueError), line, line.makefile("rb") as lines:
            for raw in lines:
                message = json.loads(raw)
                box = self._boxes.get(message["key"])
                if box is None:
                    box = self._boxes[message["key"]] = queue.SimpleQueue()
                    _start(self._work, message["key"], box)
                box.put((message, line))

    def _work(self, key: str, box: Box) -> None:
        """The one who works on this key. What it knows it forgets with the session."""
        session: Session | None = None
        state: State | None = None
        while (item := box.get()) is not None:
            message, line = item
            try:
                if session is None or session.gone() or state is None:
                    if session is not None:
                        session.close()
                    session = self._way.new_session()
                    state = State(session, self._way, key)
                answer = self._way.handle(session, state, message)
            except NotSent as error:
                answer = {"conflict": f"no-effect: {error}"}
            except (Refused, Broken) as error:
                state = None
                answer = {"unknown": str(error)}
            with suppress(OSError):
                line.sendall(json.dumps({**answer, "number": message["number"]}).encode() + b"\n")
        if session is not None:
            session.close()


class State:
    """What has been done to a key, as its owner knows it."""

    def __init__(self, session: Session, way: MailboxWay, key: str) -> None:
        rows = session.ask(way.entries)
        mine = [row for row in rows if row[0] == key]
        self.things = {int(row[1]): int(row[2]) for row in mine}
        self.whose = {int(row[1]): int(row[3]) for row in mine}
        self.read_to = 0  # of a queue


class MailboxWay(PostgresWay):
    """One client; the first of a machine to listen is the owner too."""

    name: ClassVar[str]
    # Whether a message is in the store before it is sent: then some owner will work on it.
    appends: ClassVar[bool] = False

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        super().__init__(nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer)
        # Every client group has hosts of its own; the ports are those of the cluster.
        ports = "-".join(str(port) for _, port in nodes)
        self._address = f"\0lockbench-{self.name}-{ports}"
        self._line: socket.socket | None = None
        self._answers: Any = None
        self._number = 0
        self._mailboxes: Mailboxes | None = None

    @abstractmethod
    def handle(self, session: Session, state: State, message: Message) -> Message:
        """The owner's work on one message. Raises Refused, Broken."""

    def do(self, key: str, thing: int, *, by: int, work: Thinking) -> Outcome:
        """Work that needs the client is done by the client, all other work by the owner."""
        seconds = work.seconds
        if seconds is None:
            work.spend()
            seconds = 0.0
        message = {"key": key, "thing": thing, "by": by, "seconds": seconds}
        refused = self.before(message)
        if refused is not None:
            return refused
        outcome = self._send(message)
        if self.appends and isinstance(outcome, Conflict):
            return Unknown(outcome.reason.removeprefix("no-effect: "))
        return outcome

    def before(self, message: Message) -> Outcome | None:
        """What a client does before it sends; an outcome ends it there."""
        return None

    def close(self) -> None:
        self._hang_up()
        if self._mailboxes is not None:
            self._mailboxes.close()
            self._mailboxes = None
        super().close()

    def _send(self, message: Message) -> Outcome:
        try:
            line = self._connected()
        except OSError as error:
            return Conflict(f"no-effect: nobody owns the keys: {error}")
        self._number += 1
        try:
            line.sendall(json.dumps({**message, "number": self._number}).encode() + b"\n")
            while True:
                raw = self._answers.readline()
                if not raw:
                    raise ConnectionError("the owner is gone")
                answer = json.loads(raw)
                if answer["number"] == self._number:
                    return _outcome(answer)
        except (OSError, ValueError) as error:
            self._hang_up()
            return Unknown(f"{type(error).__name__}: {error}")

    def _connected(self) -> socket.socket:
        if self._line is None:
            line = socket.socket(socket.AF_UNIX)
            line.settimeout(PATIENCE_S)
            try:
                try:
                    line.connect(self._address)
                except ConnectionRefusedError:
                    self._own()
                    line.connect(self._address)
                if not _ours(line):
                    raise PermissionError("another user listens at their address")
            except OSError:
                line.close()
                raise
            self._line, self._answers = line, line.makefile("rb")
        return self._line

    def _own(self) -> None:
        """Becomes the owner, unless somebody else just did."""
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(self._address)
        except OSError:
            listener.close()
            time.sleep(0.01)
            return
        listener.listen(1024)
        way = type(self)(self._nodes, timeout_s=self._timeout_s, ttl_s=0, observer=NoObserver())
        self._mailboxes = Mailboxes(listener, way)

    def _hang_up(self) -> None:
        if self._line is not None:
            self._answers.close()
            self._line.close()
            self._line = None


def _ours(line: socket.socket) -> bool:
    """Tell whether the process at the other end is one of this user."""
    size = struct.calcsize("3i")
    _, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return bool(uid == os.getuid())


def _outcome(answer: Message) -> Outcome:
    if "place" in answer:
        return Done(int(answer["place"]))
    if "conflict" in answer:
        return Conflict(str(answer["conflict"]))
    return Unknown(str(answer["unknown"])) if "unknown" in answer else DoneAlready()


def _start(target: Any, *arguments: Any) -> None:
    threading.Thread(target=target, args=arguments, daemon=True).start()
