"""Reads and completes a recording: the folder that recorders, nemesis and bench write into.

Works on a folder whose writers were killed: segments are read up to the last record that was begun,
and operations without an outcome become ``info``; what others saw of them is joined in
(``history.joining``). A file that is missing or damaged is an error, never a shorter history.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from history.columns import History, Ids, null_column
from history.joining import unanswered, with_applied, with_deaths
from history.layout import HEADER_BYTES, MAGIC, NO_STRING, RECORD
from history.op import NULL, F, Fault, Mode, Object, Type
from history.service import SERVICE, BadService, Service, read_service

META = "meta.json"
FAULTS = "faults.jsonl"
RESOURCE = "resource"  # the folder of the guarded resource's log


class UnreadableHistory(Exception):
    """The file is not a history, or is damaged; the message names file and place."""


def write_meta(
    folder: Path,
    objects: Mapping[str, Object],
    *,
    wall_minus_monotonic_ns: int,
    epsilon_ns: int = 0,
) -> None:
    """Says what the keys name; the offset lets a reader turn times into dates."""
    meta = {
        "history": 1,
        "objects": {key: asdict(o) for key, o in objects.items()},
        "epsilon_ns": epsilon_ns,
        "wall_minus_monotonic_ns": wall_minus_monotonic_ns,
    }
    (folder / META).write_text(json.dumps(meta, indent=1) + "\n", encoding="utf-8")


def write_faults(folder: Path, faults: Sequence[Fault]) -> None:
    """Writes every fault of the case, one JSON line each."""
    lines = [json.dumps(fault_to_json(fault)) + "\n" for fault in faults]
    (folder / FAULTS).write_text("".join(lines), encoding="utf-8")


def fault_to_json(fault: Fault) -> dict[str, object]:
    """A fault as a line of the interchange format."""
    return {
        "process": "nemesis",
        "f": fault.name,
        "targets": list(fault.targets),
        "begin_ns": list(fault.begin_ns),
        "heal_ns": None if fault.heal_ns is None else list(fault.heal_ns),
        "rules": list(fault.rules),
        "facts": dict(fault.facts),
    }


def fault_from_json(line: Mapping[str, object]) -> Fault:
    """The reverse of ``fault_to_json``. Raises KeyError, TypeError or ValueError."""
    heal = line.get("heal_ns")
    rules = line.get("rules") or ()
    targets = line.get("targets") or ()
    facts = line.get("facts") or {}
    if not (
        isinstance(rules, Sequence) and isinstance(targets, Sequence) and isinstance(facts, Mapping)
    ):
        raise TypeError("targets, rules or facts of a fault have the wrong shape")
    return Fault(
        name=str(line["f"]),
        targets=tuple(str(t) for t in targets),
        begin_ns=_interval(line["begin_ns"]),
        heal_ns=None if heal is None else _interval(heal),
        rules=tuple(str(r) for r in rules),
        facts=facts,
    )


def is_recording(folder: Path) -> bool:
    """Whether the folder is a recording, by its ``meta.json``."""
    return (folder / META).is_file()


def read_recording(folder: Path) -> History:
    """All workers of one case merged, in the order of invocation, with what the guarded resource's
    log and the faults say of operations and holds whose client was killed. Raises
    UnreadableHistory."""
    try:
        meta = json.loads((folder / META).read_text(encoding="utf-8"))
        objects = {key: Object(**o) for key, o in meta["objects"].items()}
        epsilon_ns = int(meta["epsilon_ns"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreadableHistory(f"{folder / META}: {error}") from error
    history = replace(
        _read_workers(folder),
        objects=objects,
        faults=_read_faults(folder / FAULTS),
        epsilon_ns=epsilon_ns,
        service=_read_service(folder / SERVICE),
    )
    if (folder / RESOURCE).is_dir() and len(unanswered(history)):
        history = with_applied(history, _read_workers(folder / RESOURCE))
    return with_deaths(history)


def _read_workers(folder: Path) -> History:
    """The records of every worker in a folder, in the order of invocation."""
    strings: dict[str, int] = {}
    parts: list[NDArray[np.void]] = []
    keys: list[Ids] = []
    errors: list[Ids] = []
    for worker, segments in _segments(folder).items():
        names = folder / f"{worker}.strings"
        table = _string_table(names, strings) if names.exists() else np.empty(0, np.int32)
        for segment in segments:
            part = _read_segment(segment)
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
        intended_ns=column("intended_ns"),
        complete_ns=column("complete_ns"),
        hold=column("hold"),
        value=column("value"),
        old=column("old"),
        version=column("version"),
        fence=column("fence"),
        sent_ns=column("sent_ns"),
        valid_until_ns=column("valid_until_ns"),
        applied_ns=column("applied_ns"),
        owner=column("owner"),
    )


def _segments(folder: Path) -> dict[int, list[Path]]:
    """The segments of every worker, none of them missing. Raises UnreadableHistory."""
    found: dict[int, list[Path]] = {}
    for path in folder.glob("*.ops"):
        try:
            worker, _ = (int(part) for part in path.stem.split("."))
        except ValueError:
            raise UnreadableHistory(f"{path}: not named <worker>.<number>.ops") from None
        found.setdefault(worker, []).append(path)
    for worker, paths in found.items():
        paths.sort(key=_segment_number)
        missing = set(range(len(paths))) - {_segment_number(path) for path in paths}
        if missing:
            raise UnreadableHistory(f"{folder}: {worker}.{min(missing)}.ops is missing")
    return dict(sorted(found.items()))


ANSWER = ("complete_ns", "value", "fence", "sent_ns", "valid_until_ns", "applied_ns")
TIMES = ("invoke_ns", "complete_ns", "sent_ns", "valid_until_ns", "applied_ns")
TIME_MAX = 2**61  # so that sums and differences stay within 64 bits


def records_of(segment: Path, first: int) -> NDArray[np.void]:
    """The records from number ``first`` on that were begun so far: to look on while they come."""
    rows = np.fromfile(segment, RECORD, offset=HEADER_BYTES + first * RECORD.itemsize)
    used = int(np.searchsorted(rows["invoke_ns"] == 0, True))
    return rows[:used]


def _read_segment(path: Path) -> NDArray[np.void]:
    with path.open("rb") as file:
        magic = file.read(len(MAGIC))
    if magic != MAGIC:
        if not np.any(np.fromfile(path, np.uint8)):
            # Its writer was killed before it had set the file up.
            return np.empty(0, RECORD)
        raise UnreadableHistory(f"{path}: not a recorded segment")
    if (path.stat().st_size - HEADER_BYTES) % RECORD.itemsize:
        raise UnreadableHistory(f"{path}: ends in the middle of a record")
    return records_of(path, 0)


def _segment_number(path: Path) -> int:
    return int(path.name.split(".")[1])


def _string_table(path: Path, strings: dict[str, int]) -> Ids:
    """Maps the string numbers of one worker to numbers of the whole recording."""
    table: list[int] = []
    for number, line in enumerate(_text_lines(path), 1):
        try:
            text = json.loads(line)
        except ValueError as error:
            raise UnreadableHistory(f"{path}:{number}: {error}") from error
        table.append(strings.setdefault(text, len(strings)))
    return np.array(table, np.int32)


def _translate(numbers: NDArray[np.uint32], table: Ids, path: Path) -> Ids:
    result = np.full(len(numbers), -1, np.int32)
    named = numbers != NO_STRING
    if np.any(numbers[named] >= len(table)):
        raise UnreadableHistory(f"{path}: a record names a string that {path.stem} does not have")
    result[named] = table[numbers[named]]
    return result


def _text_lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UnreadableHistory(f"{path}: not text in UTF-8 ({error.reason})") from error


def _verify(folder: Path, rows: NDArray[np.void], key: Ids) -> None:
    """Raises UnreadableHistory for records that no recorder writes: the files were damaged."""
    done = (rows["type"] == Type.OK) | (rows["type"] == Type.FAIL)
    times = np.stack([rows[name] for name in TIMES]) if len(rows) else np.empty((1, 0), np.int64)
    for wrong, what in (
        (rows["f"] > max(F), "an unknown operation"),
        (rows["type"] > max(Type), "an unknown outcome"),
        (rows["mode"] > max(Mode), "an unknown mode"),
        (key < 0, "no key"),
        (done & (rows["complete_ns"] < rows["invoke_ns"]), "an end before its beginning"),
        (np.any((times != NULL) & (np.abs(times) > TIME_MAX), axis=0), "a time out of range"),
    ):
        if np.any(wrong):
            place = int(np.flatnonzero(wrong)[0])
            raise UnreadableHistory(f"{folder}: record {place} has {what}; the files are damaged")


def _read_faults(path: Path) -> tuple[Fault, ...]:
    if not path.exists():
        return ()
    faults = []
    for number, line in enumerate(_text_lines(path), 1):
        try:
            faults.append(fault_from_json(json.loads(line)))
        except (ValueError, KeyError, TypeError) as error:
            raise UnreadableHistory(f"{path}:{number}: {error}") from error
    return tuple(faults)


def _read_service(path: Path) -> Service | None:
    if not path.exists():
        return None
    try:
        return read_service(_text_lines(path))
    except BadService as error:
        raise UnreadableHistory(f"{path}:{error}; the file is damaged") from error


def _interval(value: object) -> tuple[int, int]:
    if not isinstance(value, Sequence) or len(value) != 2:
        raise ValueError(f"{value!r} is not an interval of two times")
    return int(value[0]), int(value[1])
