"""Jepsen's histories: EDN events, read and written.

Reading: one map a line or one enclosing vector or list; ``:f`` as keyword or string; processes of
any sort; completions, ``:time`` and ``:index`` may be missing (an operation without completion is
unknown; without times the order of the file counts); ``:error`` of any shape; several keys as
``[k v]`` values; nemesis events as faults.

Writing: Jepsen allows one operation at a time and none after an unknown outcome to a process, so
whatever breaks that gets a process of its own. Several keys are written as ``[k v]`` values. What
Jepsen has no field for (holds, fences, promises, the original process, ε, objects, faults) stands
in keys ``:lockbench/…`` and in comments at the top. Reading our own file back gives the same
verdicts, all of them; other tools see ``:f`` and ``:value`` only, so of the verdicts they can reach
``linearizable`` alone, and not that where a hold can end by itself (``plain``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from lockbench.history.builder import FUNCTIONS, HOLD_MAX, MODES, BadLine, Builder, shorten
from lockbench.history.columns import History
from lockbench.history.edn_forms import Comment, Keyword, maps
from lockbench.history.jsonl import (
    Records,
    header_to_json,
    operation_to_json,
    records_to_json,
    take_header,
)
from lockbench.history.lines import FAULTS, HEADERS, UnreadableHistory, decoded, open_history
from lockbench.history.machines import on_one_machine
from lockbench.history.op import INT_MAX, NULL, F, Fault, Type
from lockbench.history.recording import fault_to_json
from lockbench.history.text import create_named

HEADER: Final = "; lockbench "
FAULT: Final = "; lockbench-fault "
RECORD: Final = "; lockbench-record "
OURS: Final = "lockbench/"
NUMBERS: Final = ("version", "fence", "sent_ns", "valid_until_ns", "applied_ns", "intended_ns")
PLAIN: Final = ("version", "fence")  # nothing is added to them
OUTCOMES: Final = {"ok": Type.OK, "fail": Type.FAIL, "info": Type.INFO}
BEGINS, ENDS = ("start", "begin"), ("stop", "heal", "end", "recover", "resume")


@dataclass(slots=True)
class _Event:
    """An operation as far as it is known: its invocation, and its completion if there is one."""

    line: int
    f: int
    process: object
    time: int
    value: object
    extra: dict[str, object] | None  # the keys :lockbench/…
    outcome: Type = Type.INFO
    done: int = NULL
    error: str | None = None


def read_edn(path: Path) -> History:
    """Reads a file. Raises UnreadableHistory with file and line."""
    with open_history(path) as lines:
        return read_edn_lines(lines, str(path))


def read_edn_lines(lines: Iterable[bytes], name: str) -> History:
    """Reads lines from anywhere; ``name`` stands in error messages. Raises UnreadableHistory."""
    reader = _Reader()
    try:
        for line, found in maps(reader.lines(lines)):
            reader.take(line, found)
        return on_one_machine(reader.history(), name)
    except (BadLine, ValueError, TypeError, OverflowError) as error:
        raise UnreadableHistory(f"{name}:{reader.line}: {shorten(str(error))}") from None


class _Reader:
    def __init__(self) -> None:
        self.line = 0
        self._builder = Builder()
        self._records = Records()
        self._operations: list[_Event] = []
        self._open: dict[object, _Event] = {}
        self._faults: dict[str, Fault] = {}
        self._events = 0
        self._timed: bool | None = None
        self._index = -1

    def lines(self, raw: Iterable[bytes]) -> Iterator[str]:
        left = iter(raw)
        while True:
            self.line += 1
            line = next(left, None)
            if line is None:
                self.line -= 1
                return
            yield line.decode("utf-8")

    def take(self, line: int, found: Mapping[object, object] | Comment) -> None:
        if isinstance(found, Comment):
            if found.text.startswith(HEADER):
                take_header(self._builder, decoded(found.text[len(HEADER) :], HEADERS))
            elif found.text.startswith(FAULT):
                fault = decoded(found.text[len(FAULT) :], FAULTS).fault()
                self._builder.faults.append(fault)
            elif found.text.startswith(RECORD):
                self._records.take(found.text[len(RECORD) :])
            return
        fields = {str(name): value for name, value in found.items()}
        time = self._time(fields)
        process = fields.get("process")
        if process is None:
            raise BadLine(f"the event of line {line} has no :process")
        if process == "nemesis":
            self._nemesis(fields, time)
        else:
            self._client(line, fields, _plain(process), time)

    def _time(self, fields: Mapping[str, object]) -> int:
        self._events += 1
        index = fields.get("index")
        if index is not None:
            index = _whole(index, ":index")
            if index <= self._index:
                raise BadLine(f":index {index} after {self._index}")
            self._index = index
        time = fields.get("time")
        if self._timed is None:
            self._timed = time is not None
        if self._timed != (time is not None):
            raise BadLine("some events have a :time and some have none")
        return self._events if time is None else _whole(time, ":time")

    def _client(self, line: int, fields: dict[str, object], process: object, time: int) -> None:
        kind = fields.get("type")
        if kind == "invoke":
            if process in self._open:
                raise BadLine(f"process {process} invokes again before it completed")
            f = FUNCTIONS.get(str(fields.get("f")))
            if f is None:
                raise BadLine(f"unknown :f {fields.get('f')!r}")
            event = _Event(line, f, process, time, fields.get("value"), _ours(fields))
            self._open[process] = event
            self._operations.append(event)
            return
        outcome = OUTCOMES.get(str(kind))
        if outcome is None:
            raise BadLine(f"unknown :type {kind!r}")
        opened = self._open.pop(process, None)
        if opened is None:
            raise BadLine(f"process {process} completes what it never invoked")
        if time < opened.time:
            raise BadLine(f"process {process} completes at {time}, before {opened.time}")
        if fields.get("f") is not None and str(fields["f"]) != F(opened.f).word:
            raise BadLine(f"process {process} completes {fields['f']}, not {F(opened.f).word}")
        opened.outcome = outcome
        opened.done = NULL if outcome is Type.INFO else time
        if outcome is Type.OK and fields.get("value") is not None:
            opened.value = fields["value"]
        opened.error = _error(fields.get("error"))
        if extra := _ours(fields):
            opened.extra = {**(opened.extra or {}), **extra}

    def _nemesis(self, fields: Mapping[str, object], time: int) -> None:
        """``start…`` begins a fault, ``stop…`` or ``heal…`` ends it; the rest is left out."""
        name = str(fields.get("f"))
        for word in ENDS:
            if name.startswith(word):
                begun = self._faults.pop(name[len(word) :].strip("-"), None)
                if begun is not None:
                    healed = Fault(begun.name, begun.targets, begun.begin_ns, (time, time))
                    self._builder.faults.append(healed)
                return
        for word in BEGINS:
            if name.startswith(word):
                what = name[len(word) :].strip("-")
                self._faults.setdefault(what, Fault(what or "fault", (), (time, time), None))
                return

    def history(self) -> History:
        keyed = bool(self._operations) and all(_keyed(event) for event in self._operations)
        # Backwards, so that each can be let go as soon as it stands in the columns.
        self._operations.reverse()
        while self._operations:
            event = self._operations.pop()
            self.line = event.line
            self._add(event, keyed=keyed)
        self._builder.faults.extend(self._faults.values())
        return self._records.beside(self._builder.finish())

    def _add(self, event: _Event, *, keyed: bool) -> None:
        key, value = "", event.value
        if keyed:
            assert isinstance(value, list)
            key, value = str(_plain(value[0])), value[1]
        extra = event.extra or {}
        carried = value if isinstance(value, dict) else {}
        hold = extra.get("hold", carried.get("hold"))
        numbers = {
            name: _whole(extra[name], name, most=HOLD_MAX if name in PLAIN else INT_MAX)
            for name in NUMBERS
            if extra.get(name) is not None
        }
        if carried.get("fence") is not None:
            numbers.setdefault("fence", _whole(carried["fence"], "fence", most=HOLD_MAX))
        owner = extra.get("owner", carried.get("owner"))
        if owner is not None:
            numbers["owner"] = self._builder.owners.number(_plain(owner))
        if event.f not in LOCK_OPERATIONS and value is not None:
            if event.f == F.CAS:
                if not isinstance(value, list) or len(value) != 2:
                    raise BadLine(f"the :value of a cas is {value!r}, not [old new]")
                numbers["old"] = self._builder.values.number(_plain(value[0]))
                value = value[1]
            if value is not None:
                numbers["value"] = self._builder.values.number(_plain(value))
        if extra.get("value") is not None:
            numbers["value"] = _whole(extra["value"], "value")
        mode, machine = extra.get("mode"), extra.get("machine")
        self._builder.add(
            process=_plain(extra.get("process", event.process)),
            f=event.f,
            outcome=int(event.outcome),
            key=str(extra.get("key", key)),
            invoke_ns=event.time,
            complete_ns=event.done,
            mode=MODES.get(None if mode is None else str(mode), 0),
            hold=None if hold is None else _plain(hold),
            error=event.error or _error(extra.get("error")),
            numbers=numbers,
            machine=None if machine is None else str(machine),
        )


LOCK_OPERATIONS: Final = frozenset({F.ACQUIRE, F.RELEASE, F.EXTEND, F.LOST, F.DEATH})


def _ours(fields: Mapping[str, object]) -> dict[str, object] | None:
    """The fields that only Lockbench knows; None without any, as in every history of Jepsen's."""
    found = {k[len(OURS) :]: v for k, v in fields.items() if k.startswith(OURS)}
    return found or None


def _keyed(event: _Event) -> bool:
    """Whether a value looks like ``[k v]``; that of a cas like ``[k [old new]]``."""
    value = event.value
    if not isinstance(value, list) or len(value) != 2:
        return False
    return event.f != F.CAS or (isinstance(value[1], list) and len(value[1]) == 2)


def _plain(value: object) -> int | str:
    """Something that can stand in a column: whole numbers as they are, the rest as text."""
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return repr(value)
    return str(value) if isinstance(value, Keyword) else value


def _whole(value: object, what: str, *, most: int = INT_MAX) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadLine(f"{what} is {value!r}, not a whole number")
    if abs(value) > most:
        raise BadLine(f"{what} is {value}, which is out of range")
    return value


def _error(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return None if value is None else str(value)
    if isinstance(value, list):
        return " ".join(str(part) for part in value)
    if isinstance(value, dict):
        return " ".join(f"{name} {part}" for name, part in value.items())
    return str(value)


def write_edn(history: History, path: Path) -> None:
    """Writes what ``read_edn`` reads back with the same verdicts."""
    with create_named(path) as file:
        file.write(HEADER + json.dumps(header_to_json(history)) + "\n")
        file.writelines(RECORD + json.dumps(one) + "\n" for one in records_to_json(history))
        file.writelines(FAULT + json.dumps(fault_to_json(fault)) + "\n" for fault in history.faults)
        file.writelines(_events(history))


def plain(history: History) -> bool:
    """Whether a tool that knows Jepsen's own fields only is told everything that its verdict on
    linearizability needs: no field of theirs says that a hold ended by itself, or on whose clock a
    time is."""
    ends = np.isin(history.f, (F.LOST, F.DEATH)) | (history.valid_until_ns != NULL)
    return history.machine is None and not np.any(ends)


def _events(history: History) -> Iterator[str]:
    """Invocations before completions of the same instant: they were concurrent."""
    events = [(int(t), 0, row) for row, t in enumerate(history.invoke_ns.tolist())]
    events += [(t, 1, row) for row, t in enumerate(history.complete_ns.tolist()) if t != NULL]
    busy: dict[int, int] = {}
    given: dict[int, int] = {}
    fresh = 1 + max((int(p) for p in history.process.tolist()), default=0)
    for index, (time, completes, row) in enumerate(sorted(events)):
        process = int(history.process[row])
        if completes:
            if busy.get(process) == row:
                del busy[process]
            yield _event(history, row, given.pop(row), time, index, completed=True)
            continue
        if process in busy:
            given[row] = fresh
            fresh += 1
        else:
            given[row] = process
            busy[process] = row
        yield _event(history, row, given[row], time, index, completed=False)


def _event(
    history: History, row: int, process: int, time: int, index: int, *, completed: bool
) -> str:
    f, outcome = F(int(history.f[row])), Type(int(history.type[row]))
    fields = {
        "type": f":{outcome.word if completed else 'invoke'}",
        "f": f":{f.word}",
        "process": str(process),
        "time": str(time),
        "index": str(index),
        "value": _value(history, row, f, completed=completed),
    }
    line = operation_to_json(history, row)
    if not completed:
        fields[OURS + "key"] = json.dumps(line["key"])
        if process != int(history.process[row]) or history.process_names:
            fields[OURS + "process"] = json.dumps(line["process"])
        for name in ("hold", "owner", "mode", "machine", *NUMBERS):
            if name in line:
                given = line[name]
                fields[OURS + name] = f":{given}" if name == "mode" else json.dumps(given)
        if outcome is Type.INFO and f is F.READ and history.value[row] != NULL:
            # Applied, though nobody was told: there is no completion that could carry the value.
            fields[OURS + "value"] = str(int(history.value[row]))
        if outcome is Type.INFO and "error" in line:
            fields[OURS + "error"] = _edn(line["error"])
    elif "error" in line:
        fields["error"] = _edn(line["error"])
    return "{" + ", ".join(f":{name} {value}" for name, value in fields.items()) + "}\n"


def _value(history: History, row: int, f: F, *, completed: bool) -> str:
    value = _own_value(history, row, f, completed=completed)
    if len(history.keys) > 1:
        return f"[{_edn(history.keys[int(history.key[row])])} {value}]"
    return value


def _own_value(history: History, row: int, f: F, *, completed: bool) -> str:
    if f in LOCK_OPERATIONS or (f is F.READ and not completed):
        return "nil"
    value = _edn(history.value_json(int(history.value[row])))
    if f is F.CAS:
        return f"[{_edn(history.value_json(int(history.old[row])))} {value}]"
    return value


def _edn(value: object) -> str:
    return "nil" if value is None else json.dumps(value, ensure_ascii=False)
