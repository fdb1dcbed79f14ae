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

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, get_args

SERVICE: Final = "service.jsonl"
NUMBER_MAX: Final = 2**63  # of holds, which are what a column of a history holds
TIME_MAX: Final = 2**61

# Deleted by a request, replaced by another hold's entry, ended with its session, or gone with all
# that the server had kept.
How = Literal["deleted", "replaced", "session", "lost"]
HOWS: Final = get_args(How)


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
    head = {
        "service": 1,
        "record": service.record,
        "quorum": service.quorum,
        "partial": service.partial,
    }
    with (folder / SERVICE).open("w", encoding="utf-8") as file:
        file.write(json.dumps(head) + "\n")
        for tenure in service.tenures:
            file.write(json.dumps(_to_json(tenure), separators=(",", ":")) + "\n")


def read_service(lines: Sequence[str]) -> Service:
    """The reverse of ``write_service``. Raises BadService with the line's number."""
    if not lines:
        raise BadService("1: no line that says what the record is")
    tenures: list[Tenure] = []
    service: Service | None = None
    try:
        service = _head(json.loads(lines[0]))
        tenures.extend(_from_json(json.loads(line)) for line in lines[1:])
    except (ValueError, RecursionError) as error:
        # The line after those that were read; without any of them, the head.
        raise BadService(f"{len(tenures) + (1 if service is None else 2)}: {error}") from None
    return replace(service, tenures=tuple(tenures))


def _to_json(tenure: Tenure) -> dict[str, object]:
    return {
        "log": tenure.log,
        "key": tenure.key,
        "hold": f"{tenure.hold:x}",
        "made": tenure.made,
        "begun": tenure.begun,
        "ended": tenure.ended,
        "how": tenure.how,
        "until_ns": tenure.until_ns,
    }


def _head(line: object) -> Service:
    if not isinstance(line, Mapping) or line.get("service") != 1:
        raise BadService("not the head of a service's record of version 1")
    quorum = _whole(line, "quorum")
    if quorum is None or quorum < 1:
        raise BadService("quorum is not a positive number")
    partial = line.get("partial")
    return Service(
        record=_text(line, "record"),
        quorum=quorum,
        partial=None if partial is None else _text(line, "partial"),
        tenures=(),
    )


def _from_json(line: object) -> Tenure:
    if not isinstance(line, Mapping):
        raise BadService("a tenure is not a JSON object")
    made, begun, ended = (_whole(line, name) for name in ("made", "begun", "ended"))
    if made is None:
        raise BadService("made is missing")
    if any(place is not None and place < made for place in (begun, ended)):
        raise BadService("a tenure began or ended before it was made")
    if begun is not None and ended is not None and ended < begun:
        raise BadService("a tenure ended before it began")
    how = line.get("how")
    if how is not None and how not in HOWS:
        raise BadService(f"a tenure that ended by {how!r}")
    if (ended is None) != (how in {None, "lost"}):
        raise BadService("how does not fit ended")
    hold = int(_text(line, "hold"), 16)
    if not 0 <= hold < NUMBER_MAX:
        raise BadService(f"the hold {hold:x} is out of range")
    return Tenure(
        _text(line, "log"), _text(line, "key"), hold, made, begun, ended, how, _interval(line)
    )


def _interval(line: Mapping[str, object]) -> tuple[int, int] | None:
    given = line.get("until_ns")
    if given is None:
        return None
    if not isinstance(given, list) or len(given) != 2:
        raise BadService("until_ns is not a pair of times")
    earliest, latest = (_number(time, "until_ns", TIME_MAX) for time in given)
    if latest < earliest:
        raise BadService("until_ns ends before it begins")
    return earliest, latest


def _text(line: Mapping[str, object], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise BadService(f"{name} is not text")
    return value


def _whole(line: Mapping[str, object], name: str) -> int | None:
    value = line.get(name)
    return None if value is None else _number(value, name, NUMBER_MAX)


def _number(value: object, name: str, limit: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= limit:
        raise BadService(f"{name} is not a whole number in range")
    return value
