"""Writes every table and every history of a run as CSV, JSON, Parquet or Jepsen EDN.

Nothing is overwritten: the folder must not exist or be empty, and it appears whole or not at all.
``columns.csv`` says beside the data what each column means and in which unit. A missing number is
an empty cell, null or NULL, never zero. EDN is Jepsen's form of a history and has no tables.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from history.columns import History, Ints
from history.edn import write_edn
from history.jsonl import write_jsonl
from history.op import NULL, F, Mode, Type
from results.cases import Case, fault_of, lock_of, mapping
from results.dictionary import MEANING
from results.report.facts import facts
from results.report.grid import UNITS
from results.report.source import histories, read
from results.report.timeline import timeline
from results.store import RunFolder

FORMATS: Final = ("csv", "json", "parquet", "edn")
HISTORY_SUFFIX: Final = {"csv": "csv", "json": "jsonl", "parquet": "parquet", "edn": "edn"}
NUMBERS: Final = (
    "invoke_ns", "intended_ns", "complete_ns", "value", "old", "version", "fence", "sent_ns",
    "valid_until_ns", "applied_ns", "owner",
)  # fmt: skip
FAULTS: Final = (
    "case", "lock", "fault", "injected", "targets", "begin_s", "heal_s", "declared_s", "measured_s",
)  # fmt: skip


class CannotExport(Exception):
    """The folder for the export cannot be written; the message names the remedy."""


def export(run: RunFolder, form: str, out: Path) -> list[Path]:
    """Returns what was written. Raises NotARun, CannotExport or OSError."""
    if form not in FORMATS:
        raise CannotExport(f"{form} is no format; one of {', '.join(FORMATS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise CannotExport(f"{out} is there already; give a folder that is new or empty")
    source = read(run)
    beside = out.with_name(f".{out.name}.tmp")
    if beside.exists():
        shutil.rmtree(beside)
    (beside / "histories").mkdir(parents=True)
    try:
        extra = _histories(run, form, beside / "histories")
        if form != "edn":
            made = {**facts(source.cases, source.results.get("undisturbed", ())), **extra}
            for name, frame in made.items():
                _write(frame, form, beside / f"{name}.{form}")
            _columns(made, beside / "columns.csv")
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return sorted(path for path in out.rglob("*") if path.is_file())


def history_frame(history: History) -> pd.DataFrame:
    """One row per operation. Missing numbers are NA in columns of whole numbers."""
    names = [history.object_of(key).role for key in history.keys]
    held = history.hold != NULL
    hold = np.full(len(history), None, dtype=object)
    hold[held] = [history.hold_name(h) for h in history.hold[held].tolist()]
    frame = pd.DataFrame(
        {
            "process": history.process,
            "f": _words(history.f, {int(f): f.word for f in F}),
            "type": _words(history.type, {int(t): t.word for t in Type}),
            "mode": _words(history.mode, {int(m): m.name.lower() for m in Mode}),
            "key": _words(history.key, dict(enumerate(history.keys))),
            "role": _words(history.key, {i: n for i, n in enumerate(names) if n is not None}),
            "hold": pd.Series(hold, dtype="string"),
            "error": _words(history.error, dict(enumerate(history.errors))),
        }
    )
    for name in NUMBERS:
        frame[name] = _whole(getattr(history, name))
    return frame


def _histories(run: RunFolder, form: str, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes them one after the other; returns what is derived from all."""
    bins: list[pd.DataFrame] = []
    faults: list[dict[str, Any]] = []
    for n, (name, case, history) in _numbered(run):
        path = folder / f"{name}.{HISTORY_SUFFIX[form]}"
        if form == "json":
            write_jsonl(history, path)
        elif form == "edn":
            write_edn(history, path)
        else:
            _write(history_frame(history), form, path)
        line = timeline(history)
        identity = {"case": n, "lock": lock_of(case), "fault": fault_of(case)}
        if line is not None:
            bins.append(_identified(line.bins, identity))
            for shade, fault in zip(line.shades, history.faults, strict=True):
                faults.append(
                    identity
                    | {"injected": shade.name, "targets": ", ".join(shade.targets)}
                    | {"begin_s": shade.begin_s, "heal_s": shade.heal_s}
                    | {name: mapping(fault.facts).get(name) for name in FAULTS[-2:]}
                )
    found = {"faults": pd.DataFrame(faults, columns=list(FAULTS))}
    if bins:
        found["timeline"] = pd.concat([part for part in bins if not part.empty] or bins[:1])
    return found


def _identified(frame: pd.DataFrame, identity: Mapping[str, Any]) -> pd.DataFrame:
    made = frame.copy()
    for place, (name, value) in enumerate(identity.items()):
        made.insert(place, name, value)
    return made


def _numbered(run: RunFolder) -> Iterator[tuple[int, tuple[str, Case, History]]]:
    """With the number of the case, which a case without history has as well."""
    folders = [mapping(case).get("folder") for case in run.results()["cases"]]
    for found in histories(run):
        yield folders.index(found[0]) + 1, found


def _write(frame: pd.DataFrame, form: str, path: Path) -> None:
    WRITERS[form](_typed(frame), path)


def _typed(frame: pd.DataFrame) -> pd.DataFrame:
    """Columns of one type each, whatever is missing in them."""
    made = frame.reset_index(drop=True)
    for name in made.columns:
        column = made[name]
        if column.dtype != object:
            continue
        values = column.dropna()
        kinds = {type(value) for value in values}
        if kinds and kinds <= {bool}:
            made[name] = column.astype("boolean")
        elif kinds and kinds <= {int}:
            made[name] = column.astype("Int64")
        elif kinds <= {int, float} and (kinds or name.endswith(tuple(UNITS))):
            made[name] = column.astype("Float64")
        else:
            made[name] = values.map(str).reindex(column.index).astype("string")
    return made


def _csv(frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False, lineterminator="\n")


def _json(frame: pd.DataFrame, path: Path) -> None:
    plain = frame.astype(object).where(frame.notna(), None)
    text = json.dumps(plain.to_dict("records"), indent=1, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    # DuckDB, because pandas' own way needs a library twice its size.
    import duckdb

    with duckdb.connect() as database:
        database.register("exported", frame)
        target = str(path).replace("'", "''")
        database.execute(f"COPY exported TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


WRITERS: Final[Mapping[str, Callable[[pd.DataFrame, Path], None]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}


def _columns(made: Mapping[str, pd.DataFrame], path: Path) -> None:
    """The dictionary of what is beside it; a history's columns stand under ``histories``."""
    rows = [
        {"table": table, "column": column, "meaning": MEANING[column]}
        for table, frame in made.items()
        for column in frame.columns
    ]
    rows += [
        {"table": "histories", "column": column, "meaning": MEANING[column]}
        for column in HISTORY_COLUMNS
    ]
    _csv(pd.DataFrame(rows), path)


HISTORY_COLUMNS: Final = (
    "process", "f", "type", "mode", "key", "role", "hold", "error", *NUMBERS,
)  # fmt: skip


def _whole(values: Ints) -> Any:
    return pd.arrays.IntegerArray(np.ascontiguousarray(values), np.asarray(values == NULL))


def _words(codes: np.ndarray, words: Mapping[int, str]) -> Any:
    """Texts by number; a number without a text is missing."""
    categories = list(dict.fromkeys(words.values()))
    place = {word: i for i, word in enumerate(categories)}
    size = max(words, default=0) + 2
    table = np.full(size, -1, np.int64)
    for code, word in words.items():
        table[code] = place[word]
    # -1, none, reads the last entry, which is never set.
    chosen = pd.Index(categories, dtype="str")
    return pd.Categorical.from_codes(table[codes.astype(np.int64)], categories=chosen)
