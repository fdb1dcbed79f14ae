"""Reads and completes a recording: the folder that recorders, nemesis and bench write into.

Works on a folder whose writers were killed: segments are read up to the last record that was begun,
and operations without an outcome become ``info``; what others saw of them is joined in
(``lockbench.history.joining``). A file that is missing or damaged is an error, never a shorter
history.

The folder may be somebody else's: its files are opened by the rule of ``lockbench.history.files``,
every field is validated as it is decoded, and the number of operations is bounded.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from lockbench.history.builder import NUMBERS, OPERATIONS_MAX, BadLine
from lockbench.history.columns import History, Ids, null_column
from lockbench.history.files import (
    BadFile,
    MissingFile,
    is_file,
    is_folder,
    names,
    open_file,
    read_bytes,
    read_json,
)
from lockbench.history.guarded import GUARDED, BadGuarded, Guarded, read_guarded
from lockbench.history.joining import unanswered, with_applied, with_deaths
from lockbench.history.layout import HEADER_BYTES, MAGIC, NO_STRING, RECORD
from lockbench.history.lines import FAULTS as FAULT_LINES
from lockbench.history.lines import WORKERS_MAX, Header, OnMachine, UnreadableHistory, decoded
from lockbench.history.machines import on_one_machine
from lockbench.history.op import INT_MAX, NULL, F, Fault, Mode, Object, Type
from lockbench.history.recorder import PROCESSES_PER_WORKER
from lockbench.history.service import SERVICE, BadService, Service, read_service
from lockbench.history.text import json_text, write_whole

META = "meta.json"
FAULTS = "faults.jsonl"
RESOURCE = "resource"  # the folder of the guarded resource's log
SEGMENT: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})\.ops")


def write_meta(
    folder: Path,
    objects: Mapping[str, Object],
    *,
    wall_minus_monotonic_ns: int,
    ended: bool | None = None,
    machines: Mapping[str, Sequence[int]] = MappingProxyType({}),
) -> None:
    """Says what the keys name; the offset lets a reader turn times into dates. ``ended``: False
    while the load is not over, None where nobody will say that it is. ``machines``: those that have
    workers beside this one, whose recordings have not come back yet."""
    meta: dict[str, object] = {
        "history": 1,
        "objects": {key: asdict(o) for key, o in objects.items()},
        "epsilon_ns": 0,  # one machine has one monotonic clock
        "wall_minus_monotonic_ns": wall_minus_monotonic_ns,
    }
    if ended is not None:
        meta["ended"] = ended
    if machines:
        meta["machines"] = {name: {"workers": list(of)} for name, of in machines.items()}
    write_whole(folder / META, json_text(meta, indent=1) + "\n")


def write_ended(folder: Path) -> None:
    """Says that the load of a recording went on to its end."""
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    write_whole(folder / META, json_text(meta | {"ended": True}, indent=1) + "\n")


def write_came_back(folder: Path, machine: str, sizes: Mapping[str, int]) -> None:
    """Says that all came back that a machine has recorded: its segments, with their bytes."""
    meta = json.loads((folder / META).read_text(encoding="utf-8"))
    meta["machines"][machine]["bytes"] = dict(sizes)
    write_whole(folder / META, json_text(meta, indent=1) + "\n")


def write_faults(folder: Path, faults: Sequence[Fault]) -> None:
    """Writes every fault of the case, one JSON line each."""
    lines = [json_text(fault_to_json(fault)) + "\n" for fault in faults]
    write_whole(folder / FAULTS, "".join(lines))


def fault_to_json(fault: Fault) -> dict[str, object]:
    """A fault as a line of the interchange format."""
    on = {} if fault.machine is None else {"machine": fault.machine}
    return on | {
        "process": "nemesis",
        "f": fault.name,
        "targets": list(fault.targets),
        "begin_ns": list(fault.begin_ns),
        "heal_ns": None if fault.heal_ns is None else list(fault.heal_ns),
        "rules": list(fault.rules),
        "facts": dict(fault.facts),
    }


def is_recording(folder: Path) -> bool:
    """Whether the folder is a recording, by its ``meta.json``."""
    return is_file(folder / META, inside=folder)


def read_recording(folder: Path) -> History:
    """All workers of one case merged, in the order of invocation, with what the guarded resource's
    log and the faults say of operations and holds whose client was killed. Raises
    UnreadableHistory."""
    try:
        return _read(folder)
    except BadFile as error:
        raise UnreadableHistory(str(error)) from None


def _read(folder: Path) -> History:
    meta = read_json(folder / META, Header, inside=folder)
    history = replace(
        _on_machines(_read_workers(folder, _partial(meta)), folder, meta.machines or {}),
        objects=dict(meta.objects or {}),
        faults=_read_faults(folder / FAULTS, owed=meta.ended is True),
        epsilon_ns=meta.epsilon_ns or 0,
        ended=meta.ended,
        # The checker compares it with one clock only.
        service=None if meta.machines else _read_service(folder / SERVICE),
        guarded=_read_guarded(folder / GUARDED),
    )
    if is_folder(folder / RESOURCE, inside=folder) and len(unanswered(history)):
        history = with_applied(history, _read_workers(folder / RESOURCE))
    return with_deaths(history)


def _on_machines(history: History, folder: Path, machines: Mapping[str, OnMachine]) -> History:
    """The history with the machine of each worker. Raises UnreadableHistory where something is
    gone that had come back."""
    if not machines:
        return history
    machine_of = np.full(WORKERS_MAX, -1, np.int32)
    for number, (name, machine) in enumerate(machines.items()):
        machine_of[list(machine.workers)] = number
        for file, size in (machine.bytes or {}).items():
            if not SEGMENT.fullmatch(file) or _size(folder / file) != size:
                raise UnreadableHistory(f"{folder / file}: not what came back from machine {name}")
    worker = np.clip(history.process // PROCESSES_PER_WORKER, 0, WORKERS_MAX - 1)
    missing = tuple(name for name, machine in machines.items() if machine.bytes is None)
    history = replace(
        history, machine=machine_of[worker], machines=tuple(machines), missing=missing
    )
    return on_one_machine(history, str(folder))


def _size(path: Path) -> int | None:
    try:
        with open_file(path, inside=path.parent) as file:
            return os.fstat(file.fileno()).st_size
    except MissingFile:
        return None


def _partial(meta: Header) -> frozenset[int]:
    """The workers of whose recording a part may be missing."""
    machines = (meta.machines or {}).values()
    return frozenset(worker for one in machines if one.bytes is None for worker in one.workers)


def _read_workers(folder: Path, partial: frozenset[int] = frozenset()) -> History:
    """The records of every worker in a folder, in the order of invocation."""
    strings: dict[str, int] = {}
    parts: list[NDArray[np.void]] = []
    keys: list[Ids] = []
    errors: list[Ids] = []
    left = OPERATIONS_MAX
    for worker, segments in _segments(folder, partial).items():
        records: list[tuple[Path, NDArray[np.void]]] = []
        for segment in segments:
            part = _read_segment(segment, left, torn=worker in partial)
            left -= len(part)
            records.append((segment, part))
        # After the records: a worker that still runs writes a string before a record that names it.
        table = _string_table(folder / f"{worker}.strings", strings)
        for segment, part in records:
            parts.append(part)
            keys.append(_translate(part["key"], table, segment))
            errors.append(_translate(part["error"], table, segment))
    rows = np.concatenate(parts) if parts else np.empty(0, RECORD)
    key = np.concatenate(keys) if keys else np.empty(0, np.int32)
    said = np.concatenate(errors) if errors else np.empty(0, np.int32)
    _verify(folder, rows, key)
    order = np.argsort(rows["invoke_ns"], kind="stable")
    rows, key, said = rows[order], key[order], said[order]
    names_by_id = tuple(strings)
    ended = rows["type"].copy()
    # A writer killed while it completed a record may have left half of the answer: no answer.
    open_ = ended == Type.OPEN
    ended[open_] = Type.INFO
    for name in ANSWER:
        rows[name][open_] = NULL

    def column(name: str) -> NDArray[np.int64]:
        values = rows[name]
        if len(values) == 0 or not np.any(values != NULL):
            return null_column(len(values))
        return np.ascontiguousarray(values)

    columns: dict[str, Any] = {name: column(name) for name in ("complete_ns", "hold", *NUMBERS)}
    return History(
        process=rows["process"].astype(np.int64),
        f=np.ascontiguousarray(rows["f"]),
        type=ended,
        mode=np.ascontiguousarray(rows["mode"]),
        key=key,
        error=said,
        invoke_ns=np.ascontiguousarray(rows["invoke_ns"]),
        keys=names_by_id,
        errors=names_by_id,
        **columns,
    )


def _segments(folder: Path, partial: frozenset[int]) -> dict[int, list[Path]]:
    """The segments of every worker, none of them missing; of those that are ``partial``, the ones
    before the first that is. Raises UnreadableHistory."""
    found: dict[int, dict[int, Path]] = {}
    for name in names(folder, inside=folder):
        if not name.endswith(".ops"):
            continue
        numbers = SEGMENT.fullmatch(name)
        if numbers is None:
            raise UnreadableHistory(f"{folder / name}: not named <worker>.<number>.ops")
        found.setdefault(int(numbers[1]), {})[int(numbers[2])] = folder / name
    for worker, paths in found.items():
        missing = set(range(len(paths))) - set(paths)
        if missing and worker in partial:
            found[worker] = {n: path for n, path in paths.items() if n < min(missing)}
        elif missing:
            raise UnreadableHistory(f"{folder}: {worker}.{min(missing)}.ops is missing")
    return {
        worker: [path for _, path in sorted(paths.items())]
        for worker, paths in sorted(found.items())
    }


ANSWER = ("complete_ns", "value", "fence", "sent_ns", "valid_until_ns", "applied_ns")
# A job's number (``version``) is any of 63 bits; nothing is added to those that are no times.
TIMES = ("intended_ns", "complete_ns", "sent_ns", "valid_until_ns", "applied_ns")


def records_of(segment: Path, first: int) -> NDArray[np.void]:
    """The records from number ``first`` on that were begun so far: to look on while they come."""
    rows = np.fromfile(segment, RECORD, offset=HEADER_BYTES + first * RECORD.itemsize)
    used = int(np.searchsorted(rows["invoke_ns"] == 0, True))
    return rows[:used]


def _read_segment(path: Path, most: int, *, torn: bool = False) -> NDArray[np.void]:
    """``torn``: its end may be missing, in the middle of a record, too."""
    # Twice: a worker that still runs may have set the file up between the two reads of the first.
    for _ in range(2):
        with open_file(path, inside=path.parent) as file:
            magic = file.read(HEADER_BYTES)[: len(MAGIC)]
            rows = _records(file, path, most, torn=torn) if magic == MAGIC else None
        if rows is not None:
            return rows
        if not any(read_bytes(path, inside=path.parent)):
            # Its writer was killed before it had set the file up.
            return np.empty(0, RECORD)
    raise UnreadableHistory(f"{path}: not a recorded segment")


def _records(file: BinaryIO, path: Path, most: int, *, torn: bool) -> NDArray[np.void]:
    """The records of a segment that were begun."""
    data = file.read(most * RECORD.itemsize + 1)
    if len(data) > most * RECORD.itemsize:
        raise UnreadableHistory(f"{path}: more than {OPERATIONS_MAX} operations in the recording")
    if torn:
        data = data[: len(data) - len(data) % RECORD.itemsize]
    if len(data) % RECORD.itemsize:
        raise UnreadableHistory(f"{path}: ends in the middle of a record")
    rows = np.frombuffer(data, RECORD)
    return rows[: int(np.searchsorted(rows["invoke_ns"] == 0, True))]


def _string_table(path: Path, strings: dict[str, int]) -> Ids:
    """Maps the string numbers of one worker to numbers of the whole recording."""
    try:
        # Where the disk was full, the last line may be cut: nothing can name it.
        *lines, _ = read_bytes(path, inside=path.parent).split(b"\n")
    except MissingFile:
        return np.empty(0, np.int32)
    decoder = msgspec.json.Decoder(str)
    table: list[int] = []
    for number, line in enumerate(lines, 1):
        try:
            table.append(strings.setdefault(decoded(line, decoder), len(strings)))
        except BadLine as error:
            raise UnreadableHistory(f"{path}:{number}: {error}") from None
    return np.array(table, np.int32)


def _translate(numbers: NDArray[np.uint32], table: Ids, path: Path) -> Ids:
    result = np.full(len(numbers), -1, np.int32)
    named = numbers != NO_STRING
    if np.any(numbers[named] >= len(table)):
        raise UnreadableHistory(f"{path}: a record names a string that {path.stem} does not have")
    result[named] = table[numbers[named]]
    return result


def _lines(path: Path) -> list[bytes]:
    """Raises BadFile, MissingFile."""
    return read_bytes(path, inside=path.parent).splitlines()


def _verify(folder: Path, rows: NDArray[np.void], key: Ids) -> None:
    """Raises UnreadableHistory for records that no recorder writes: the files were damaged."""
    done = (rows["type"] == Type.OK) | (rows["type"] == Type.FAIL)
    for wrong, what in (
        (rows["f"] > max(F), "an unknown operation"),
        (rows["type"] > max(Type), "an unknown outcome"),
        (rows["mode"] > max(Mode), "an unknown mode"),
        (key < 0, "no key"),
        (done & (rows["complete_ns"] < rows["invoke_ns"]), "an end before its beginning"),
        (_out_of_range(rows["invoke_ns"]), "a time out of range"),
        *(
            ((rows[name] != NULL) & _out_of_range(rows[name]), f"{name} out of range")
            for name in TIMES
        ),
    ):
        if np.any(wrong):
            place = int(np.flatnonzero(wrong)[0])
            raise UnreadableHistory(f"{folder}: record {place} has {what}; the files are damaged")


def _out_of_range(numbers: NDArray[np.int64]) -> NDArray[np.bool_]:
    return (numbers < -INT_MAX) | (numbers > INT_MAX)


def _read_faults(path: Path, *, owed: bool) -> tuple[Fault, ...]:
    try:
        lines = _lines(path)
    except MissingFile:
        if owed:
            raise
        return ()
    faults = []
    for number, line in enumerate(lines, 1):
        try:
            faults.append(decoded(line, FAULT_LINES).fault())
        except BadLine as error:
            raise UnreadableHistory(f"{path}:{number}: {error}") from None
    return tuple(faults)


def _read_service(path: Path) -> Service | None:
    try:
        return read_service(_lines(path))
    except MissingFile:
        return None
    except BadService as error:
        raise UnreadableHistory(f"{path}:{error}; the file is damaged") from None


def _read_guarded(path: Path) -> Guarded | None:
    try:
        return read_guarded(_lines(path))
    except MissingFile:
        return None
    except BadGuarded as error:
        raise UnreadableHistory(f"{path}:{error}; the file is damaged") from None
