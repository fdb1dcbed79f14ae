"""What a guarded store kept of the writes that it applied, beside the history of its clients.

An entry is one applied write in the store's own record (a row of PostgreSQL, an element of a Redis
list, a revision of etcd, a node of ZooKeeper, a file). ``place`` is the record's own order within a
key; it is no time. What is not in the record was not applied, or is gone with a server that failed.

The file is ``guarded.jsonl`` in the folder of a recording. The first line says whose it is:

    {"guarded": 1, "store": "postgres", "guard": "fence", "rule": "newer", "record": "…"}
    {"key": "k0", "place": 7, "hold": "1f", "made": 7, "read": 6, "fence": 12}
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeVar

import msgspec

from lockbench.history.files import json_error
from lockbench.history.op import Whole
from lockbench.history.text import json_text, write_whole

GUARDED: Final = "guarded.jsonl"
HOLDS_MAX: Final = 2**63

# When a store applies a write: always; if its fence is above every fence applied before; if nothing
# was applied since the state that it was made from; if the lock's own entry is still there; or if
# the thing that it does was not done before.
Rule = Literal["any", "newer", "unchanged", "held", "once"]

T = TypeVar("T")


class BadGuarded(ValueError):
    """A line that no reader of a store's record writes."""


@dataclass(frozen=True, slots=True)
class Applied:
    """One write that was applied for a hold. It made the version ``made`` of its key from the
    version ``read``; under the rule ``once`` there are no versions, and ``made`` is the number of
    the thing that was done. ``fence`` is None where it brought none."""

    key: str
    place: int
    hold: int
    made: int
    read: int
    fence: int | None = None


@dataclass(frozen=True, slots=True)
class Guarded:
    """A store's record of one case: the names of store and guard, the guard's rule, what the record
    is in a sentence, and the writes of each key in the order of their places."""

    store: str
    guard: str
    rule: Rule
    record: str
    applied: tuple[Applied, ...]


def write_guarded(folder: Path, guarded: Guarded) -> None:
    """Writes ``guarded.jsonl`` into the folder of a recording."""
    text = "".join(json_text(line) + "\n" for line in guarded_lines(guarded))
    write_whole(folder / GUARDED, text)


def guarded_lines(guarded: Guarded) -> Iterator[dict[str, object]]:
    """What ``read_guarded`` reads, a line each."""
    yield {
        "guarded": 1,
        "store": guarded.store,
        "guard": guarded.guard,
        "rule": guarded.rule,
        "record": guarded.record,
    }
    for one in guarded.applied:
        yield asdict(one) | {"hold": f"{one.hold:x}"}


class _Head(msgspec.Struct, frozen=True):
    guarded: Literal[1]
    store: str
    guard: str
    rule: Rule
    record: str


class _Line(msgspec.Struct, frozen=True):
    key: str
    place: Whole
    hold: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{1,16}$")]
    made: Whole
    read: Whole
    fence: Whole | None = None

    def __post_init__(self) -> None:
        if int(self.hold, 16) >= HOLDS_MAX:
            raise ValueError(f"the hold {self.hold} is out of range")

    def applied(self) -> Applied:
        return Applied(**msgspec.structs.asdict(self) | {"hold": int(self.hold, 16)})


HEADS: Final = msgspec.json.Decoder(_Head)
LINES: Final = msgspec.json.Decoder(_Line)


def read_guarded(lines: Sequence[bytes]) -> Guarded:
    """The reverse of ``guarded_lines``. Raises BadGuarded with the line's number and the field."""
    if not lines:
        raise BadGuarded("1: no line that says whose record it is")
    head = _decoded(1, lines[0], HEADS)
    applied = (_decoded(n, line, LINES).applied() for n, line in enumerate(lines[1:], 2))
    return Guarded(head.store, head.guard, head.rule, head.record, tuple(applied))


def _decoded(number: int, line: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadGuarded(f"{number}: {json_error(error, line)}") from None
