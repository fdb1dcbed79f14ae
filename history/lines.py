"""The lines of a history as types: what a header, an operation and a fault may say, in JSON.

One declaration serves ``meta.json`` of a recording, the header of JSON Lines and the comments of
our EDN. A field is validated as it is decoded (msgspec), so what is read has the declared types and
ranges; fields that are not declared are ignored. Lines are bounded in length, files in size.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeVar

import msgspec

from lockbench.history.builder import BadLine
from lockbench.history.files import BadFile, json_error, open_named
from lockbench.history.op import INT_MAX, JOBS, KINDS, Fault, Number, Object, Whole

LINE_BYTES_MAX: Final = 1 << 20
FILE_BYTES_MAX: Final = 4 << 30  # ten million operations take 1.5 to 2 GB
DEPTH_MAX: Final = 32
WORKERS_MAX: Final = 2048  # of a recording (``lockbench.history.recorder``)

Name = Whole | str
Machine = Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
Interval = tuple[Whole, Whole]
T = TypeVar("T")


class UnreadableHistory(Exception):
    """The file is not a history, or is damaged; the message names file and place."""


class OnMachine(msgspec.Struct, frozen=True):
    """What one machine recorded: by which workers, and how many bytes of which segments. Without
    them its recording did not come back."""

    workers: tuple[Annotated[int, msgspec.Meta(ge=0, lt=WORKERS_MAX)], ...]
    bytes: Mapping[str, Annotated[int, msgspec.Meta(ge=0, le=FILE_BYTES_MAX)]] | None = None


class Header(msgspec.Struct, frozen=True):
    """What is said of a whole history. ``ended`` is False in a recording whose load is not over;
    None where nobody says. ``missing``: machines of whose recording a part did not come back.
    ``machines``: in a recording, those that have workers beside the machine of the resource."""

    history: int
    objects: Mapping[str, Object] | None = None
    epsilon_ns: Annotated[int, msgspec.Meta(ge=0, le=INT_MAX)] | None = None
    ended: bool | None = None
    missing: tuple[Machine, ...] = ()
    machines: Mapping[Machine, OnMachine] | None = None

    def __post_init__(self) -> None:
        if self.history != 1:
            raise ValueError(f"version {self.history} of the format is not known")
        for key, given in (self.objects or {}).items():
            if given.kind not in KINDS:
                raise ValueError(f"{key!r} is of the unknown kind {given.kind!r}")
            if given.job is not None and given.job not in JOBS:
                raise ValueError(f"{key!r} is used for the unknown job {given.job!r}")


class OperationLine(msgspec.Struct, frozen=True, gc=False):
    """One operation. ``value``, ``error``: any JSON."""

    process: Name
    f: str
    type: str
    invoke_ns: Whole
    key: Name | None = None
    complete_ns: Whole | None = None
    hold: Name | None = None
    value: Any = None
    version: Number | None = None
    fence: Number | None = None
    sent_ns: Whole | None = None
    valid_until_ns: Whole | None = None
    applied_ns: Whole | None = None
    intended_ns: Whole | None = None
    owner: Name | None = None
    mode: str | None = None
    error: Any = None
    machine: Machine | None = None


class FaultLine(msgspec.Struct, frozen=True):
    """One fault; ``process`` is what tells it from an operation."""

    process: Literal["nemesis"]
    f: str
    begin_ns: Interval
    heal_ns: Interval | None = None
    targets: tuple[str, ...] | None = None
    rules: tuple[str, ...] | None = None
    facts: dict[str, Any] | None = None
    machine: Machine | None = None

    def __post_init__(self) -> None:
        for name in ("begin_ns", "heal_ns"):
            interval = getattr(self, name)
            if interval is not None and interval[1] < interval[0]:
                raise ValueError(f"{name} ends before it begins")
        if _too_deep(self.facts, DEPTH_MAX):
            raise ValueError("facts are nested too deeply")

    def fault(self) -> Fault:
        return Fault(
            name=self.f,
            targets=self.targets or (),
            begin_ns=self.begin_ns,
            heal_ns=self.heal_ns,
            rules=self.rules or (),
            facts=self.facts or {},
            machine=self.machine,
        )


class RecordLine(msgspec.Struct, frozen=True):
    """A line of what is kept beside a history: of a store's record (``lockbench.history.guarded``),
    of the service's (``lockbench.history.service``), or a header with further objects."""

    record: Literal["guarded", "service", "header"]
    line: msgspec.Raw


class AnyLine(msgspec.Struct, frozen=True):
    """As much of a line as says what it is."""

    record: Any = msgspec.UNSET
    process: Any = None
    history: Any = msgspec.UNSET
    f: Any = msgspec.UNSET


def decoded(raw: bytes | str, decoder: msgspec.json.Decoder[T]) -> T:
    """One line as a type. Raises BadLine, which names the field."""
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        # A text may hold lone surrogates, which are no UTF-8.
        data = raw if isinstance(raw, bytes) else raw.encode("utf-8", "surrogatepass")
        raise BadLine(json_error(error, data)) from None


HEADERS: Final = msgspec.json.Decoder(Header)
RECORDS: Final = msgspec.json.Decoder(RecordLine)
OPERATIONS: Final = msgspec.json.Decoder(OperationLine)
FAULTS: Final = msgspec.json.Decoder(FaultLine)
ANY: Final = msgspec.json.Decoder(AnyLine)


@contextmanager
def open_history(path: Path) -> Iterator[Iterator[bytes]]:
    """The lines of a file or a pipe that the user named. Raises UnreadableHistory."""
    try:
        with open_named(path) as file:
            yield _bounded(file)
    except BadFile as error:
        raise UnreadableHistory(str(error)) from None
    except OSError as error:
        raise UnreadableHistory(f"{path}: {error.strerror or error}") from None


def _bounded(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file. Raises BadLine for a line or a file that is too long."""
    left = FILE_BYTES_MAX
    while line := file.readline(LINE_BYTES_MAX + 1):
        if len(line) > LINE_BYTES_MAX:
            raise BadLine(f"a line of more than {LINE_BYTES_MAX} bytes")
        left -= len(line)
        if left < 0:
            raise BadLine(f"a history of more than {FILE_BYTES_MAX} bytes")
        yield line


def _too_deep(value: object, most: int) -> bool:
    if not isinstance(value, (dict, list)):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return most == 0 or any(_too_deep(each, most - 1) for each in inner)
