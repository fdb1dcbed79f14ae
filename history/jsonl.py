"""The interchange format: JSON Lines, one operation or fault a line.

    {"history": 1, "objects": {"k0": {"kind": "mutex"}}, "epsilon_ns": 0}      (optional, first)
    {"process": 3, "f": "acquire", "key": "k0", "type": "ok", "invoke_ns": 120, "complete_ns": 180,
     "hold": "a91f", "fence": 17, "valid_until_ns": 5000000121, …}
    {"process": "nemesis", "f": "pause", "targets": ["redis-3"], "begin_ns": [1, 2], …}
    {"record": "guarded", "line": {"key": "k0", "place": 4, "hold": "a91f", …}}

The last is a line of what stands beside a recording (``RecordLine``), for verdicts that need it.
Every field but the first six of an operation may be missing. ``version``, ``applied_ns``,
``intended_ns`` and ``mode`` are understood beside those of the contract. Whatever is wrong is an
``UnreadableHistory`` that names file and line; memory is bounded by the number of operations, a
single line by ``LINE_BYTES_MAX``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from lockbench.history.builder import FUNCTIONS, MODES, TYPES, BadLine, Builder, shorten
from lockbench.history.columns import History
from lockbench.history.guarded import guarded_lines, read_guarded
from lockbench.history.lines import (
    ANY,
    FAULTS,
    HEADERS,
    OPERATIONS,
    RECORDS,
    Header,
    OperationLine,
    UnreadableHistory,
    decoded,
    open_history,
)
from lockbench.history.machines import on_one_machine
from lockbench.history.op import NULL, F, Mode, Object, Type
from lockbench.history.recording import fault_to_json
from lockbench.history.service import read_service, service_lines
from lockbench.history.text import create_named

BLOCK_LINES: Final = 4096
OBJECTS_A_LINE: Final = 1000  # far below what a line may hold
NO_SUCH: Final = 255  # neither a function nor a type nor a mode
INFO: Final = int(Type.INFO)
CAS_WORD: Final = F.CAS.word
DEATH: Final = int(F.DEATH)
NEMESIS: Final = "nemesis"
PLAIN: Final = frozenset({int, str})
TIMES: Final = ("intended_ns", "sent_ns", "valid_until_ns", "applied_ns", "fence", "version")


def read_jsonl(path: Path) -> History:
    """Reads a file. Raises UnreadableHistory with file and line."""
    with open_history(path) as lines:
        return read_lines(lines, str(path))


def read_lines(lines: Iterable[bytes], name: str) -> History:
    """Reads lines from anywhere; ``name`` stands in error messages. Raises UnreadableHistory."""
    reader = _Reader()
    try:
        reader.read(lines)
        history = reader.records.beside(reader.builder.finish())
    except (BadLine, ValueError, TypeError, OverflowError, RecursionError) as error:
        said = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise UnreadableHistory(f"{name}:{reader.line}: {shorten(said)}") from None
    return on_one_machine(history, name)


def write_jsonl(history: History, path: Path) -> None:
    """Writes what ``read_jsonl`` reads back as the same history."""
    with create_named(path) as file:
        for line in to_lines(history):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def to_lines(history: History) -> Iterator[dict[str, object]]:
    """The header, the operations in the order of invocation, the faults; nulls left out."""
    yield header_to_json(history)
    yield from records_to_json(history)
    for row in range(len(history)):
        yield operation_to_json(history, row)
    for fault in history.faults:
        yield fault_to_json(fault)


def header_to_json(history: History) -> dict[str, object]:
    """What the header says of a history."""
    header: dict[str, object] = {
        "history": 1,
        "objects": _objects_to_json([*history.objects.items()][:OBJECTS_A_LINE]),
        "epsilon_ns": history.epsilon_ns,
    }
    if history.missing:
        header |= {"missing": list(history.missing)}
    return header | {"ended": False} if history.ended is False else header


def records_to_json(history: History) -> Iterator[dict[str, object]]:
    """What stands beside the operations, and the objects for which the header has no room. Records
    name holds by their numbers, so only those of holds that are written as numbers are kept."""
    objects = [*history.objects.items()]
    for at in range(OBJECTS_A_LINE, len(objects), OBJECTS_A_LINE):
        more = _objects_to_json(objects[at : at + OBJECTS_A_LINE])
        yield {"record": "header", "line": {"history": 1, "objects": more}}
    if history.guarded is not None and not history.hold_names:
        for one in guarded_lines(history.guarded):
            yield {"record": "guarded", "line": one}
    if history.service is not None and not history.hold_names:
        for one in service_lines(history.service):
            yield {"record": "service", "line": one}


def _objects_to_json(objects: Iterable[tuple[str, Object]]) -> dict[str, object]:
    return {key: _object_to_json(one) for key, one in objects}


class Records:
    """Reads what stands beside a history."""

    def __init__(self) -> None:
        self._objects: dict[str, Object] = {}
        self._lines: dict[str, list[bytes]] = {"guarded": [], "service": []}

    def take(self, raw: bytes | str) -> None:
        """Raises BadLine."""
        one = decoded(raw, RECORDS)
        if one.record == "header":
            self._objects |= decoded(bytes(one.line), HEADERS).objects or {}
        else:
            self._lines[one.record].append(bytes(one.line))

    def beside(self, history: History) -> History:
        """The history with all that was read. Raises BadGuarded, BadService."""
        guarded, service = self._lines["guarded"], self._lines["service"]
        return replace(
            history,
            objects={**history.objects, **self._objects},
            guarded=read_guarded(guarded) if guarded else None,
            service=read_service(service) if service else None,
        )


class _Reader:
    """Reads many lines at once. ``line`` is where it is; after an error, where the error is."""

    def __init__(self) -> None:
        self.builder = Builder()
        self.records = Records()
        self.line = 0

    def read(self, lines: Iterable[bytes]) -> None:
        left = iter(lines)
        while True:
            block: list[bytes] = []
            try:
                block.extend(islice(left, BLOCK_LINES))
            except BadLine:
                # Lines before the one that is too long were taken; an error in them comes first.
                self._add(block)
                self.line += 1
                raise
            if not block:
                return
            self._add(block)

    def _add(self, block: list[bytes]) -> None:
        last = self.line + len(block)
        numbers: Sequence[int] = range(self.line + 1, last + 1)
        try:
            decode = OPERATIONS.decode
            rows = [decode(raw) for raw in block]
            plain = NEMESIS not in [row.process for row in rows]
        except (ValueError, RecursionError):
            plain = False
        if not plain:
            rows, numbers = self._one_by_one(block)
        try:
            _add(self.builder, rows)
        except (BadLine, RecursionError):
            # The bound of a history is the fault of no line.
            for self.line, row in zip(numbers, rows, strict=True):
                said = _complaint(row)
                if said is not None:
                    raise BadLine(said) from None
            raise
        self.line = last

    def _one_by_one(self, block: list[bytes]) -> tuple[list[OperationLine], list[int]]:
        """The operations of a block that holds other things too, and the line of each."""
        rows, numbers = [], []
        for raw in block:
            self.line += 1
            if not raw.strip():
                continue
            it = decoded(raw, ANY)
            if it.history is not msgspec.UNSET and it.f is msgspec.UNSET:
                if self.line != 1:
                    raise BadLine("the header must be the first line")
                take_header(self.builder, decoded(raw, HEADERS))
            elif it.record is not msgspec.UNSET and it.f is msgspec.UNSET:
                self.records.take(raw)
            elif it.process == NEMESIS:
                self.builder.faults.append(decoded(raw, FAULTS).fault())
            else:
                rows.append(decoded(raw, OPERATIONS))
                numbers.append(self.line)
        return rows, numbers


def _add(builder: Builder, rows: Sequence[OperationLine]) -> None:
    """Adds operations, column by column. Raises BadLine, and ``_complaint`` says for which."""
    f = bytes([FUNCTIONS.get(row.f, NO_SUCH) for row in rows])
    outcome = bytes([TYPES.get(row.type, NO_SUCH) for row in rows])
    mode = bytes([MODES.get(row.mode, NO_SUCH) for row in rows])
    invoke = np.array([row.invoke_ns for row in rows], np.int64)
    # A missing end is before every beginning.
    ends = np.array(_numbers(rows, "complete_ns") or np.full(len(rows), NULL), np.int64)
    unknown = np.frombuffer(outcome, np.uint8) == INFO
    keys = [row.key for row in rows]
    homeless = None in keys and any(
        key is None and what != DEATH for key, what in zip(keys, f, strict=True)
    )
    if NO_SUCH in f + outcome + mode or homeless or np.any((ends < invoke) & ~unknown):
        raise BadLine("not an operation")
    numbers = {name: column for name in TIMES if (column := _numbers(rows, name)) is not None}
    owners = [row.owner for row in rows]
    if owners.count(None) < len(rows):
        numbers["owner"] = builder.owners.numbers(owners)
    builder.extend(
        process=builder.processes.numbers([row.process for row in rows]),
        f=f,
        outcome=outcome,
        mode=mode,
        key=["" if key is None else str(key) for key in keys],
        error=[_error(row.error) for row in rows],
        invoke_ns=invoke,
        complete_ns=np.where(unknown, NULL, ends),
        hold=builder.holds.numbers([row.hold for row in rows]),
        numbers=numbers | _values(builder, rows),
        machine=[row.machine for row in rows],
    )


def _numbers(rows: Sequence[OperationLine], name: str) -> list[int] | None:
    """A column of numbers; None where no row has any."""
    found: list[int | None] = list(map(attrgetter(name), rows))
    if found.count(None) == len(found):
        return None
    return [NULL if number is None else number for number in found]


def _values(builder: Builder, rows: Sequence[OperationLine]) -> dict[str, list[int]]:
    """``value``, and ``old`` of a cas. What is no number gets one in the order of the file."""
    if [row.value for row in rows].count(None) == len(rows):
        return {}
    both: list[int | str | None] = []
    for row in rows:
        value = row.value
        if value is None or row.f != CAS_WORD:
            both += (None, value if value is None else _value(value))
        elif isinstance(value, list) and len(value) == 2:
            both += (_value(value[0]), _value(value[1]))
        else:
            raise BadLine("not a cas")
    numbers = builder.values.numbers(both)
    halves = {"old": numbers[::2], "value": numbers[1::2]}
    return {name: half for name, half in halves.items() if half.count(NULL) < len(half)}


def _complaint(row: OperationLine) -> str | None:
    """What makes a line no operation, although every field of it is of its type."""
    if row.f not in FUNCTIONS:
        return f"unknown f {row.f!r}"
    if row.type not in TYPES:
        return f"unknown type {row.type!r}"
    if row.mode not in MODES:
        return f"unknown mode {row.mode!r}"
    if row.key is None and row.f != F.DEATH.word:
        return "key is missing"
    if row.type != Type.INFO.word:
        if row.complete_ns is None:
            return f"complete_ns is missing though the type is {row.type}"
        if row.complete_ns < row.invoke_ns:
            return f"complete_ns {row.complete_ns} is before invoke_ns {row.invoke_ns}"
    try:
        _error(row.error)
        _values(Builder(), [row])
    except BadLine as error:
        if row.f == CAS_WORD and not (isinstance(row.value, list) and len(row.value) == 2):
            return f"the value of a cas is {row.value!r}, not [old, new]"
        return f"value: {error}"
    except RecursionError:
        return "nested too deeply"
    return None


def _value(value: Any) -> int | str:
    return value if type(value) in PLAIN else json.dumps(value)


def _error(error: Any) -> str | None:
    return error if error is None or type(error) is str else json.dumps(error)


def take_header(builder: Builder, header: Header) -> None:
    """Takes what a header says of a history."""
    builder.objects = dict(header.objects or {})
    builder.epsilon_ns = header.epsilon_ns or 0
    builder.ended = header.ended
    builder.missing = header.missing


def operation_to_json(history: History, row: int) -> dict[str, object]:
    """One operation as a line; numbers that are missing are left out."""
    f = F(int(history.f[row]))
    line: dict[str, object] = {
        "process": history.process_json(int(history.process[row])),
        "f": f.word,
        "key": history.keys[int(history.key[row])],
        "type": Type(int(history.type[row])).word,
        "invoke_ns": int(history.invoke_ns[row]),
        "complete_ns": None if history.complete_ns[row] == NULL else int(history.complete_ns[row]),
    }
    if history.hold[row] != NULL:
        line["hold"] = history.hold_name(int(history.hold[row]))
    value: object = history.value_json(int(history.value[row]))
    if f is F.CAS and (value is not None or history.old[row] != NULL):
        value = [history.value_json(int(history.old[row])), value]
    if value is not None:
        line["value"] = value
    for name in TIMES:
        number = int(getattr(history, name)[row])
        if number != NULL:
            line[name] = number
    if history.owner[row] != NULL:
        line["owner"] = history.owner_json(int(history.owner[row]))
    if history.mode[row] != Mode.NONE:
        line["mode"] = Mode(int(history.mode[row])).name.lower()
    if history.error[row] >= 0:
        line["error"] = history.errors[int(history.error[row])]
    if (machine := history.machine_of(row)) is not None:
        line["machine"] = machine
    return line


def _object_to_json(given: Object) -> dict[str, object]:
    said = asdict(given) | {"strict_try": given.strict_try or None}
    return {name: value for name, value in said.items() if value is not None}
