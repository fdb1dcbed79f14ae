"""Asking several Redis nodes at once, without letting a slow one delay the answer of the others.

Each node has one connection that never blocks. A question is written to all of them and then
whichever answers first is read, until the asker has heard enough. What is still owed by the others
is remembered per connection and read whenever it comes: Redis answers in order, so the next answer
always belongs to the oldest question. That a connection keeps its order is also what makes a late
command harmless: what is sent after it runs after it.

Plain sockets and hiredis, because every client library waits for the answer to what it sent.
``select.poll`` works as well under gevent, which replaces it.
"""

from __future__ import annotations

import math
import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import hiredis

from lockbench.locks.base import Address, Deadline

RECONNECT_S: Final = 0.1  # a node that failed is left alone for this long
OWED_MAX: Final = 64  # answers owed by one node before it is not asked any more
READ_BYTES: Final = 65536


class Question:
    """One command for all nodes. Answers go on arriving after the asker has stopped listening."""

    __slots__ = ("answers", "asked", "command", "lost", "sent_ns")

    def __init__(self, *command: str | int) -> None:
        self.command: bytes = hiredis.pack_command(command)  # type: ignore[arg-type]  # its stub means tuple[X, ...]
        self.sent_ns = 0  # when it was written for the first time; 0: to no node
        self.asked: set[int] = set()  # nodes that the command was written to
        self.answers: dict[int, Any] = {}  # an error reply is a hiredis.ReplyError
        self.lost: set[int] = set()  # asked nodes whose connection broke before they answered

    @property
    def owed(self) -> set[int]:
        """Nodes whose answer may still come."""
        return self.asked - self.answers.keys() - self.lost


class Node:
    """One connection. It counts as ready once the node has answered to the greeting."""

    def __init__(self, number: int, address: Address, poller: Any, timeout_s: float) -> None:
        self.number = number
        self.ready = False
        self.descriptor = -1  # the socket's, -1 when closed
        self._address = address
        self._poller = poller
        self._timeout_s = timeout_s
        self._socket: socket.socket | None = None
        self._reader = hiredis.Reader()
        self._owed: deque[Question] = deque()
        self._untold: deque[Question] = deque(maxlen=OWED_MAX)
        self._since_ns = 0  # when it was opened, or last failed

    @property
    def full(self) -> bool:
        """Whether so many answers are owed that no new hold should be asked for here."""
        return len(self._owed) >= OWED_MAX

    def open(self) -> bool:
        """Begins to connect unless that was tried a moment ago; whether a connection is under way
        or made. One that has not greeted back in time is given up."""
        age_s = (time.monotonic_ns() - self._since_ns) / 1e9
        if self._socket is not None:
            if self.ready or age_s < self._timeout_s:
                return True
            self.fail()
        elif age_s >= RECONNECT_S:
            return self._begin_to_connect()
        return False

    def send(self, question: Question) -> None:
        """Writes the command. A connection that does not take it whole is broken: it has not read
        for a very long time, and half a command can only be followed by its other half."""
        assert self._socket is not None
        question.sent_ns = question.sent_ns or time.monotonic_ns()
        question.asked.add(self.number)
        self._owed.append(question)
        try:
            whole = self._socket.send(question.command) == len(question.command)
        except OSError:
            whole = False
        if not whole:
            self.fail()

    def tell(self, question: Question) -> None:
        """Writes the command now, or as soon as the node is ready again."""
        if self.ready:
            self.send(question)
        else:
            self._untold.append(question)

    def happened(self, greeting: Sequence[Question]) -> None:
        """The poller reported something: a connection made, answers, or the end."""
        if self._socket is not None and not self.ready and not self._owed:
            self._connected(greeting)
        else:
            self.read()

    def read(self) -> None:
        """Takes what has arrived, if anything."""
        if self._socket is None:
            return
        try:
            data = self._socket.recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._answered(data)
        else:
            self.fail()

    def fail(self) -> None:
        """Closes; what was owed will not come."""
        for question in self._owed:
            question.lost.add(self.number)
        self._owed.clear()
        self.ready = False
        self._since_ns = time.monotonic_ns()
        if self._socket is not None:
            self._poller.unregister(self.descriptor)
            self._socket.close()
            self._socket = None
            self.descriptor = -1

    def _begin_to_connect(self) -> bool:
        self._since_ns = time.monotonic_ns()
        self._reader = hiredis.Reader()
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self.descriptor = self._socket.fileno()
        self._poller.register(self.descriptor, select.POLLOUT)
        try:
            self._socket.connect(self._address)
        except BlockingIOError:
            pass  # under way
        except OSError:
            self.fail()
            return False
        return True

    def _connected(self, greeting: Sequence[Question]) -> None:
        assert self._socket is not None
        if self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.fail()
            return
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._poller.modify(self.descriptor, select.POLLIN)
        for question in greeting:
            if self._socket is not None:
                self.send(question)

    def _answered(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (answer := self._reader.gets()) is not False:
                if not self.ready and isinstance(answer, hiredis.ReplyError):
                    self.fail()  # it loads its data, and has no scripts yet
                    return
                self._owed.popleft().answers[self.number] = answer
        except (hiredis.ProtocolError, IndexError):  # nonsense, or more answers than questions
            self.fail()
            return
        if not self._owed:
            self.ready = True
            while self.ready and self._untold:
                self.send(self._untold.popleft())


class Nodes:
    """All nodes of one client, numbered from 0."""

    def __init__(
        self, addresses: Sequence[Address], *, timeout_s: float, greeting: Sequence[Question]
    ) -> None:
        """``greeting`` is sent first on every new connection, and must be answered before anything
        else is sent: a proxy in front of a dead node accepts connections too."""
        self._poller: Any = select.poll()
        self._greeting = greeting
        self.nodes = [
            Node(number, address, self._poller, timeout_s)
            for number, address in enumerate(addresses)
        ]

    def ask(
        self,
        question: Question,
        among: set[int],
        enough: Callable[[set[int]], bool],
        limit_s: float,
    ) -> None:
        """Sends the question to the nodes ``among`` and reads until ``enough`` is true, no answer
        can come any more, or ``limit_s`` has passed. A node that has to be connected first is sent
        the question as soon as it is ready, but not after the asker has stopped listening.

        ``enough`` is given the nodes whose answer may still come.
        """
        deadline = Deadline(limit_s)
        unasked = {number for number in among if self.nodes[number].open()}
        while True:
            if unasked:
                for number in [n for n in unasked if self.nodes[n].ready]:
                    unasked.discard(number)
                    self.nodes[number].send(question)
                unasked -= {n for n in unasked if self.nodes[n].descriptor < 0}
            hoped_for = unasked | question.owed
            if not hoped_for or enough(hoped_for) or not self._poll(deadline):
                return

    def tell(self, question: Question, among: set[int]) -> None:
        """Sends the question to these nodes, and waits for nothing; to those that are not ready,
        when they are."""
        for number in among:
            self.nodes[number].tell(question)

    def drain(self) -> None:
        """Reads what has arrived in the meantime: late answers, and that a connection has ended."""
        for node in self.nodes:
            if node.ready:
                node.read()

    def close(self) -> None:
        """Never raises."""
        for node in self.nodes:
            node.fail()

    def _poll(self, deadline: Deadline) -> bool:
        """Waits for events and handles them; False when time is over."""
        left_ms = max(0, math.ceil(deadline.left_s() * 1000))
        events = self._poller.poll(left_ms)
        by_descriptor = {node.descriptor: node for node in self.nodes}
        for descriptor, _ in events:
            node = by_descriptor.get(descriptor)
            if node is not None:
                node.happened(self._greeting)
        return left_ms > 0
