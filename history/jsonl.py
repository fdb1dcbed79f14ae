"""The interchange format: JSON Lines, one operation or fault a line.

    {"history": 1, "objects": {"k0": {"kind": "mutex"}}, "epsilon_ns": 0}      (optional, first)
    {"process": 3, "f": "acquire", "key": "k0", "type": "ok", "invoke_ns": 120, "complete_ns": 180,
     "hold": "a91f", "fence": 17, "valid_until_ns": 5000000121, …}
    {"process": "nemesis", "f": "pause", "targets": ["redis-3"], "begin_ns": [1, 2], …}

Every field but the first six of an operation may be missing. ``version``, ``applied_ns``,
``intended_ns`` and ``mode`` are understood beside those of the contract. Whatever is wrong is an
``UnreadableHistory`` that names file and line; memory is bounded by the number of operations, a
single line by ``LINE_BYTES_MAX``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Final, NoReturn

from history.builder import FUNCTIONS, INT_MAX, INT_MIN, MODES, TYPES, BadLine, Builder, shorten
from history.columns import History
from history.op import JOBS, NULL, F, Mode, Object, Type
from history.recording import UnreadableHistory, fault_from_json, fault_to_json

LINE_BYTES_MAX: Final = 1 << 20
KINDS: Final = frozenset(
    {
        "mutex",
        "owner-mutex",
        "ownerless",
        "reentrant",
        "fenced",
        "read-write",
        "semaphore",
        "lease",
        "register",
        "cas-register",
        "counter",
        "none",
    }
)
LIMITS: Final = ("bound", "window_ns", "lease_ns", "slack_ns")  # at least 1
OK: Final = int(Type.OK)
INFO: Final = int(Type.INFO)
CAS: Final = int(F.CAS)
DEATH: Final = int(F.DEATH)
TIMES: Final = ("intended_ns", "sent_ns", "valid_until_ns", "applied_ns", "fence", "version")


def read_jsonl(path: Path) -> History:
    """Reads a file. Raises UnreadableHistory with file and line, or OSError."""
    with path.open("rb") as file:
        return read_lines(_lines(file, str(path)), str(path))


def read_lines(lines: Iterable[bytes], name: str) -> History:
    """Reads lines from anywhere; ``name`` stands in error messages."""
    builder = Builder()
    decoder = json.JSONDecoder(parse_constant=_refuse)
    for number, raw in enumerate(lines, 1):
        try:
            text = raw.decode("utf-8").strip()
            if text:
                _add_line(builder, decoder.decode(text), first=number == 1)
        except UnicodeDecodeError as error:
            raise UnreadableHistory(
                f"{name}:{number}: not text in UTF-8 ({error.reason})"
            ) from None
        except json.JSONDecodeError as error:
            what = f"not JSON: {error.msg}, at character {error.pos}"
            raise UnreadableHistory(f"{name}:{number}: {what}") from None
        except RecursionError:
            raise UnreadableHistory(f"{name}:{number}: nested too deeply") from None
        except (BadLine, ValueError, TypeError, OverflowError) as error:
            raise UnreadableHistory(f"{name}:{number}: {shorten(str(error))}") from None
    return builder.finish()


def write_jsonl(history: History, path: Path) -> None:
    """Writes what ``read_jsonl`` reads back as the same history."""
    with path.open("w", encoding="utf-8") as file:
        for line in to_lines(history):
            file.write(json.dumps(line, separators=(",", ":")) + "\n")


def to_lines(history: History) -> Iterator[dict[str, object]]:
    """The header, the operations in the order of invocation, the faults; nulls left out."""
    yield header_to_json(history)
    for row in range(len(history)):
        yield _operation_to_json(history, row)
    for fault in history.faults:
        yield fault_to_json(fault)


def header_to_json(history: History) -> dict[str, object]:
    """What the header says of a history."""
    return {
        "history": 1,
        "objects": {key: _object_to_json(o) for key, o in history.objects.items()},
        "epsilon_ns": history.epsilon_ns,
    }


def _lines(file: IO[bytes], name: str) -> Iterator[bytes]:
    number = 0
    while line := file.readline(LINE_BYTES_MAX + 1):
        number += 1
        if len(line) > LINE_BYTES_MAX:
            raise UnreadableHistory(f"{name}:{number}: a line of more than {LINE_BYTES_MAX} bytes")
        yield line


def _refuse(constant: str) -> NoReturn:
    raise BadLine(f"{constant} is not a number")


def _add_line(builder: Builder, line: object, *, first: bool) -> None:
    if not isinstance(line, dict):
        raise BadLine("expected a JSON object")
    if "history" in line and "f" not in line:
        if not first:
            raise BadLine("the header must be the first line")
        header_from_json(builder, line)
    elif line.get("process") == "nemesis":
        try:
            builder.faults.append(fault_from_json(line))
        except KeyError as error:
            raise BadLine(f"a fault without {error}") from None
    else:
        _operation(builder, line)


def header_from_json(builder: Builder, line: Mapping[str, object]) -> None:
    """Takes the header's objects and ε. Raises BadLine."""
    if line["history"] != 1:
        raise BadLine(f"version {line['history']!r} of the format is not known")
    epsilon = _whole(line, "epsilon_ns")
    builder.epsilon_ns = 0 if epsilon == NULL else epsilon
    if builder.epsilon_ns < 0:
        raise BadLine("epsilon_ns is negative")
    objects = line.get("objects") or {}
    if not isinstance(objects, dict):
        raise BadLine("objects is not an object")
    for key, given in objects.items():
        builder.objects[key] = object_from_json(key, given)


def object_from_json(key: str, given: object) -> Object:
    """One entry of the header. Raises ValueError."""
    if not isinstance(given, dict):
        raise BadLine(f"the object {key!r} is not a JSON object")
    kind = given.get("kind", "mutex")
    if kind not in KINDS:
        raise BadLine(f"{key!r} is of the unknown kind {kind!r}")
    permits, initial = _whole(given, "permits"), _whole(given, "initial")
    if permits != NULL and permits < 1:
        raise BadLine(f"{key!r} has {permits} permits")
    strict = given.get("strict_try", False)
    if not isinstance(strict, bool):
        raise BadLine(f"strict_try of {key!r} is neither true nor false")
    role, job = given.get("role"), given.get("job")
    if job is not None and job not in JOBS:
        raise BadLine(f"{key!r} is used for the unknown job {job!r}")
    limits = {name: _whole(given, name) for name in LIMITS}
    for name, limit in limits.items():
        if limit != NULL and limit < 1:
            raise BadLine(f"{name} of {key!r} is {limit}")
    return Object(
        kind=str(kind),
        permits=None if permits == NULL else permits,
        strict_try=strict,
        initial=None if initial == NULL else initial,
        role=None if role is None else str(role),
        job=None if job is None else str(job),
        **{name: None if limit == NULL else limit for name, limit in limits.items()},
    )


def _operation(builder: Builder, line: Mapping[str, object]) -> None:
    f = FUNCTIONS.get(_text(line, "f"))
    outcome = TYPES.get(_text(line, "type"))
    if f is None:
        raise BadLine(f"unknown f {line['f']!r}")
    if outcome is None:
        raise BadLine(f"unknown type {line['type']!r}")
    if "process" not in line or line["process"] is None:
        raise BadLine("process is missing")
    key = line.get("key")
    if key is None and f != DEATH:
        raise BadLine("key is missing")
    invoke, complete = _whole(line, "invoke_ns"), _whole(line, "complete_ns")
    if invoke == NULL:
        raise BadLine("invoke_ns is missing")
    if outcome == INFO:
        complete = NULL
    elif complete == NULL:
        raise BadLine(f"complete_ns is missing though the type is {line['type']}")
    elif complete < invoke:
        raise BadLine(f"complete_ns {complete} is before invoke_ns {invoke}")
    mode = line.get("mode")
    if not (mode is None or isinstance(mode, str)) or mode not in MODES:
        raise BadLine(f"unknown mode {mode!r}")
    error = line.get("error")
    builder.add(
        process=_name(line["process"], "process"),
        f=f,
        outcome=outcome,
        key="" if key is None else str(_name(key, "key")),
        invoke_ns=invoke,
        complete_ns=complete,
        mode=MODES[mode],
        hold=None if line.get("hold") is None else _name(line["hold"], "hold"),
        error=error if error is None or isinstance(error, str) else json.dumps(error),
        numbers=_numbers(builder, line, f),
    )


def _numbers(builder: Builder, line: Mapping[str, object], f: int) -> dict[str, int]:
    numbers = {}
    for name in TIMES:
        if line.get(name) is not None:
            numbers[name] = _whole(line, name)
    value = line.get("value")
    if f == CAS and value is not None:
        if not isinstance(value, list) or len(value) != 2:
            raise BadLine(f"the value of a cas is {value!r}, not [old, new]")
        numbers["old"] = builder.values.number(_value(value[0]))
        value = value[1]
    if value is not None:
        numbers["value"] = builder.values.number(_value(value))
    if line.get("owner") is not None:
        numbers["owner"] = builder.owners.number(_name(line["owner"], "owner"))
    return numbers


def _value(value: object) -> object:
    if isinstance(value, (int, str)) and not isinstance(value, bool):
        return value
    return json.dumps(value)


def _name(value: object, what: str) -> int | str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise BadLine(f"{what} is {value!r}, neither a number nor a name")
    return value


def _text(line: Mapping[str, object], name: str) -> str:
    value = line.get(name)
    if not isinstance(value, str):
        raise BadLine(f"{name} is missing" if value is None else f"{name} is {value!r}, not text")
    return value


def _whole(line: Mapping[str, object], name: str) -> int:
    value = line.get(name)
    if value is None:
        return NULL
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadLine(f"{name} is {value!r}, not a whole number")
    if not INT_MIN < value <= INT_MAX:
        raise BadLine(f"{name} is {value}, which is out of range")
    return value


def _operation_to_json(history: History, row: int) -> dict[str, object]:
    f = F(int(history.f[row]))
    line: dict[str, object] = {
        "process": history.process_json(int(history.process[row])),
        "f": f.word,
        "key": history.keys[int(history.key[row])],
        "type": Type(int(history.type[row])).word,
        "invoke_ns": int(history.invoke_ns[row]),
        "complete_ns": _null(int(history.complete_ns[row])),
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
    return line


def _null(number: int) -> int | None:
    return None if number == NULL else number


def _object_to_json(given: Object) -> dict[str, object]:
    fields = {
        "kind": given.kind,
        "permits": given.permits,
        "strict_try": given.strict_try or None,
        "initial": given.initial,
        "role": given.role,
        "job": given.job,
        "bound": given.bound,
        "window_ns": given.window_ns,
        "lease_ns": given.lease_ns,
        "slack_ns": given.slack_ns,
    }
    return {name: value for name, value in fields.items() if value is not None}
