"""ZooKeeper's transaction log as a record: which znodes came and went, by zxid.

The format is that of ``org.apache.zookeeper.server.persistence.FileTxnLog`` (3.4 to 3.9): a header,
then per transaction an Adler-32 sum, a length, the transaction in jute, and the byte ``B``. A file
is allocated ahead, so it ends in zeros. An ephemeral znode goes with its session, which is one
transaction for all of them.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final
from zlib import adler32

from lockbench.clusters.base import Change

MAGIC: Final = b"ZKLG"
HEADER_BYTES: Final = 16
END: Final = b"B"
CREATE, DELETE, CLOSE, MULTI, CREATE_2, CREATE_CONTAINER, DELETE_CONTAINER, CREATE_TTL = (
    1, 2, -11, 14, 15, 19, 20, 21,
)  # fmt: skip
CREATES: Final = frozenset({CREATE, CREATE_2, CREATE_CONTAINER, CREATE_TTL})
DELETES: Final = frozenset({DELETE, DELETE_CONTAINER})


class UnreadableLog(Exception):
    """The log is damaged or does not hold all transactions; the message says where."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """One transaction as it stands in the log; ``body`` is that of its type."""

    zxid: int
    session: int
    type: int
    body: bytes


def changes(files: Mapping[str, bytes]) -> list[Change]:
    """What the log files of one server (path → content) say, from its first transaction on. Raises
    UnreadableLog."""
    logs = {path: data for path, data in files.items() if _name(path).startswith("log.")}
    found: list[Change] = []
    mine: dict[int, dict[str, None]] = defaultdict(dict)  # session → its ephemeral znodes
    last = 0
    for path in sorted(logs, key=lambda path: int(_name(path)[4:], 16)):
        for one in _transactions(path, logs[path]):
            if one.zxid <= last:
                continue
            _follows(last, one.zxid)
            last = one.zxid
            found += _effects(one, mine)
    return found


def _follows(before: int, zxid: int) -> None:
    """Zxids count up by one within an epoch and begin at one."""
    same = before >> 32 == zxid >> 32
    if zxid != before + 1 if same else zxid & 0xFFFFFFFF != 1:
        raise UnreadableLog(f"its log has nothing between the zxids {before:#x} and {zxid:#x}")


def _effects(one: Transaction, mine: dict[int, dict[str, None]]) -> Iterable[Change]:
    if one.type == CLOSE:
        return [Change(one.zxid, "session", path) for path in mine.pop(one.session, {})]
    if one.type == MULTI:
        return [change for part in _parts(one) for change in _effects(part, mine)]
    if one.type in CREATES:
        path, at = _text(one.body, 0)
        value, at = _text(one.body, at)
        if _ephemeral(one, at):
            mine[one.session][path] = None
        return [Change(one.zxid, "made", path, value)]
    if one.type in DELETES:
        path, _ = _text(one.body, 0)
        for paths in mine.values():
            paths.pop(path, None)
        return [Change(one.zxid, "deleted", path)]
    return []


def _parts(one: Transaction) -> Iterator[Transaction]:
    (count,) = struct.unpack_from(">i", one.body)
    at = 4
    for _ in range(count):
        type_, size = struct.unpack_from(">ii", one.body, at)
        yield Transaction(one.zxid, one.session, type_, one.body[at + 8 : at + 8 + size])
        at += 8 + max(size, 0)


def _ephemeral(one: Transaction, at: int) -> bool:
    """Behind path and data stand the rights, then whether the znode ends with its session."""
    if one.type not in {CREATE, CREATE_2}:
        return False
    (count,) = struct.unpack_from(">i", one.body, at)
    at += 4
    for _ in range(count):
        _, at = _text(one.body, at + 4)
        _, at = _text(one.body, at)
    return one.body[at : at + 1] == b"\1"


def _transactions(path: str, data: bytes) -> Iterator[Transaction]:
    if data[:4] != MAGIC:
        if data.strip(b"\0"):
            raise UnreadableLog(f"{path}: not a transaction log")
        return
    at = HEADER_BYTES
    while at + 12 <= len(data):
        sum_, size = struct.unpack_from(">qi", data, at)
        body = data[at + 12 : at + 12 + max(size, 0)]
        end = at + 12 + len(body)
        if size <= 0 or adler32(body) != sum_ or data[end : end + 1] != END:
            # The end, or torn: it was being written when the server was killed. Nothing follows.
            if data[end + 1 :].strip(b"\0"):
                raise UnreadableLog(f"{path}: damaged at byte {at}")
            return
        session, _, zxid, _, type_ = struct.unpack_from(">qiqqi", body)
        yield Transaction(zxid, session, type_, body[32:])
        at = end + 1


def _text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">i", data, at)
    size = max(size, 0)
    return data[at + 4 : at + 4 + size].decode(errors="replace"), at + 4 + size


def _name(path: str) -> str:
    return PurePosixPath(path).name
