"""Keeps clients of ZooKeeper below one node, whatever client they are: what they call ``/`` is that
node, in requests, in answers and in what watches tell.

https://github.com/apache/zookeeper/blob/branch-3.9/zookeeper-jute/src/main/resources/zookeeper.jute

Guarantees: no path outside is read or written, but ``/zookeeper/config``, which is read. A request
that is not known here is not passed on. Does not guarantee: anything of names of users in the
access lists of nodes, which are passed on as they are.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

CREATE, DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN = range(1, 9)
SYNC, PING, GET_CHILDREN2, CHECK, MULTI, CREATE2, CHECK_WATCHES, REMOVE_WATCHES = (
    *(9, 11, 12, 13, 14, 15),
    *(17, 18),
)
CREATE_CONTAINER, CREATE_TTL, MULTI_READ = 19, 21, 22
AUTH, SET_WATCHES, GET_EPHEMERALS, COUNT_BELOW, SET_WATCHES2, ADD_WATCH, WHO_AM_I, CLOSE = (
    *(100, 101, 103, 104, 105, 106, 107),
    -11,
)
CREATES: Final = {CREATE, CREATE2, CREATE_CONTAINER, CREATE_TTL}
# Their bodies begin with a path.
BY_PATH: Final = {
    *CREATES,
    *(DELETE, EXISTS, GET_DATA, SET_DATA, GET_ACL, SET_ACL, GET_CHILDREN, SYNC, GET_CHILDREN2),
    *(CHECK_WATCHES, REMOVE_WATCHES, GET_EPHEMERALS, COUNT_BELOW, ADD_WATCH),
}
PATHLESS: Final = {PING, AUTH, WHO_AM_I, CLOSE}
# Their answers begin with a path.
ANSWER_PATH: Final = {*CREATES, SYNC}
WATCH_XID: Final = -1
CONFIG: Final = "/zookeeper/config"
STAT: Final = 68  # bytes
END: Final = struct.pack(">i?i", -1, True, -1)
FAILED: Final = -1  # of a part of a transaction


class Unknown(Exception):
    """A request that this does not know; the text goes on after "a client"."""


class _Reads:
    """Reads a message from its start, and writes it again with other paths."""

    def __init__(self, data: bytes, path: Callable[[str], str]) -> None:
        self._data = data
        self._path = path
        self._at = 0
        self.written = b""

    def more(self) -> bool:
        return self._at < len(self._data)

    def keep(self, count: int) -> bytes:
        """Bytes as they are. Raises ValueError where there are not so many."""
        data = self._data[self._at : self._at + count]
        if count < 0 or len(data) < count:
            raise ValueError("a message is shorter than it says")
        self._at += count
        self.written += data
        return data

    def number(self) -> int:
        (found,) = struct.unpack(">i", self.keep(4))
        return int(found)

    def buffer(self) -> None:
        if (size := self.number()) > 0:
            self.keep(size)

    def path(self) -> None:
        size = self.number()
        if size < 0:
            return
        before = self.written[:-4]
        changed = self._path(self.keep(size).decode()).encode()
        self.written = before + struct.pack(">i", len(changed)) + changed

    def paths(self) -> None:
        for _ in range(max(0, self.number())):
            self.path()

    def rest(self) -> bytes:
        self.keep(len(self._data) - self._at)
        return self.written


@dataclass
class Chroot:
    """One connection. ``root`` is a path without a slash at its end."""

    root: str
    _asked: dict[int, int] = field(default_factory=dict)  # xid → what has a path in its answer

    def request(self, frame: bytes) -> bytes:
        """What the server is asked. Raises Unknown, ValueError."""
        reads = _Reads(frame, self._inside)
        xid, operation = reads.number(), reads.number()
        if operation == GET_DATA and frame[8:].startswith(_text(CONFIG)):
            return frame
        if operation in {*ANSWER_PATH, MULTI, GET_EPHEMERALS}:
            self._asked[xid] = operation
        if operation in BY_PATH:
            reads.path()
        elif operation in {SET_WATCHES, SET_WATCHES2}:
            reads.keep(8)
            while reads.more():
                reads.paths()
        elif operation in {MULTI, MULTI_READ}:
            _parts(reads, _part_asked)
        elif operation not in PATHLESS:
            raise Unknown(f"asked ZooKeeper for operation {operation}, which is not known here")
        return reads.rest()

    def answer(self, frame: bytes) -> bytes:
        """What the client is told. Raises ValueError."""
        reads = _Reads(frame, self._outside)
        xid, _, error = reads.number(), reads.keep(8), reads.number()
        if xid == WATCH_XID:
            reads.keep(8)
            reads.path()
        elif (operation := self._asked.pop(xid, None)) and reads.more():
            if operation == MULTI:
                _parts(reads, _part_answered)
            elif operation == GET_EPHEMERALS and not error:
                reads.paths()
            elif not error:
                reads.path()
        return reads.rest()

    def _inside(self, path: str) -> str:
        return self.root if path == "/" else self.root + path

    def _outside(self, path: str) -> str:
        if path == self.root:
            return "/"
        return path.removeprefix(self.root) if path.startswith(f"{self.root}/") else path


def _parts(reads: _Reads, part: Callable[[_Reads, int], None]) -> None:
    """Each with a head of its own: the operation, whether it is the end, an error."""
    while True:
        head = reads.keep(9)
        if head == END:
            return
        (operation,) = struct.unpack_from(">i", head)
        part(reads, operation)


def _part_asked(reads: _Reads, operation: int) -> None:
    reads.path()
    if operation in CREATES:
        reads.buffer()
        for _ in range(max(0, reads.number())):  # permissions, scheme and id
            reads.keep(4)
            reads.buffer()
            reads.buffer()
        reads.keep(12 if operation == CREATE_TTL else 4)
    elif operation == SET_DATA:
        reads.buffer()
        reads.keep(4)
    elif operation in {DELETE, CHECK}:
        reads.keep(4)
    elif operation in {GET_DATA, GET_CHILDREN}:
        reads.keep(1)
    else:
        raise Unknown(f"asked ZooKeeper for operation {operation}, which is not known here")


def _part_answered(reads: _Reads, operation: int) -> None:
    if operation == FAILED:
        reads.keep(4)
    elif operation in CREATES:
        reads.path()
        if operation != CREATE:
            reads.keep(STAT)
    elif operation == SET_DATA:
        reads.keep(STAT)


def _text(text: str) -> bytes:
    return struct.pack(">i", len(text)) + text.encode()
