"""What the lock service itself kept of its holds, beside the history of its clients.

A tenure is one entry of one server's own record (a line of Redis' append-only file, a revision of
etcd, a transaction of ZooKeeper) that stood for a hold. Places are the record's own order within
one log; they are no times, and those of two logs cannot be compared. What is not in the file was
not seen, which is no proof that it was not there.

The file is ``service.jsonl`` in the folder of a recording. The first line says what the record is:

    {"service": 1, "record": "etcd's revisions", "quorum": 1, "partial": null}
    {"log": "etcd", "key": "k0", "hold": "1f", "made": 7, "begun": 9, "ended": 12, "how": "deleted",
     "until_ns": null}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from lockbench.history.files import json_error
from lockbench.history.text import json_text, write_whole

SERVICE: Final = "service.jsonl"
NUMBER_MAX: Final = 2**63  # of holds, which are what a column of a history holds
TIME_MAX: Final = 2**61

# Deleted by a request, replaced by another hold's entry, ended with its session, when its term was
# over, or gone with all that the server had kept.
How = Literal["deleted", "replaced", "session", "expired", "lost"]

T = TypeVar("T")


class BadService(ValueError):
    """A line that no reader of a service's record writes."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """An entry for a hold. ``made``: the place where it appeared, ``begun``: where no earlier entry
    of its key was left (None: never), ``ended``: where it was gone. ``ended`` is None for one that
    stood at the end of the log, which was ``lost`` if the log was. ``until_ns``: the earliest and
    latest monotonic time of the end that the service itself had noted last, None if it noted none.
    """

    log: str
    key: str
    hold: int
    made: int
    begun: int | None
    ended: int | None
    how: How | None
    until_ns: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Service:
    """A service's record of one case. ``record`` names it in a sentence; a lock is held by whom
    ``quorum`` of the servers have an entry for. ``partial`` says what of it is missing."""

    record: str
    quorum: int
    partial: str | None
    tenures: tuple[Tenure, ...]


def write_service(folder: Path, service: Service) -> None:
    """Writes ``service.jsonl`` into the folder of a recording."""
    text = "".join(json_text(line) + "\n" for line in service_lines(service))
    write_whole(folder / SERVICE, text)


def service_lines(service: Service) -> Iterator[dict[str, object]]:
    """What ``read_service`` reads, a line each."""
    yield {
        "service": 1,
        "record": service.record,
        "quorum": service.quorum,
        "partial": service.partial,
    }
    for tenure in service.tenures:
        yield asdict(tenure) | {"hold": f"{tenure.hold:x}"}


class _Head(msgspec.Struct, frozen=True):
    service: Literal[1]
    record: str
    quorum: Annotated[int, msgspec.Meta(ge=1)]
    partial: str | None = None


Place = Annotated[int, msgspec.Meta(gt=-NUMBER_MAX, le=NUMBER_MAX - 1)]
Time = Annotated[int, msgspec.Meta(gt=-TIME_MAX, lt=TIME_MAX)]


class _Line(msgspec.Struct, frozen=True):
    log: str
    key: str
    hold: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,16}$")]
    made: Place
    begun: Place | None = None
    ended: Place | None = None
    how: How | None = None
    until_ns: tuple[Time, Time] | None = None

    def __post_init__(self) -> None:
        begun, ended = self.begun, self.ended
        if any(place is not None and place < self.made for place in (begun, ended)):
            raise ValueError("a tenure began or ended before it was made")
        if begun is not None and ended is not None and ended < begun:
            raise ValueError("a tenure ended before it began")
        if (ended is None) != (self.how in {None, "lost"}):
            raise ValueError("how does not fit ended")
        if int(self.hold, 16) >= NUMBER_MAX:
            raise ValueError(f"the hold {self.hold} is out of range")
        if self.until_ns is not None and self.until_ns[1] < self.until_ns[0]:
            raise ValueError("until_ns ends before it begins")

    def tenure(self) -> Tenure:
        return Tenure(**msgspec.structs.asdict(self) | {"hold": int(self.hold, 16)})


HEADS: Final = msgspec.json.Decoder(_Head)
TENURES: Final = msgspec.json.Decoder(_Line)


def read_service(lines: Sequence[bytes]) -> Service:
    """The reverse of ``service_lines``. Raises BadService with the line's number and the field."""
    if not lines:
        raise BadService("1: no line that says what the record is")
    head = _decoded(1, lines[0], HEADS)
    tenures = (_decoded(n, line, TENURES).tenure() for n, line in enumerate(lines[1:], 2))
    return Service(head.record, head.quorum, head.partial, tuple(tenures))


def _decoded(number: int, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadService(f"{number}: {json_error(error, line)}") from None
