"""Writes every table and every history of a run as CSV, JSON, Parquet or Jepsen EDN.

Nothing is overwritten: the folder must not exist or be empty, and it appears whole or not at all.
``columns.csv`` says beside the data what each column means and in which unit. A missing number is
an empty cell, null or NULL, never zero. EDN is Jepsen's form of a history and has no tables.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd

from lockbench.checker.clocks import on_one_clock
from lockbench.history.columns import History, Ints
from lockbench.history.edn import write_edn
from lockbench.history.jsonl import write_jsonl
from lockbench.history.op import NULL, F, Mode, Type
from lockbench.report.columns import UNITS, Column, Table
from lockbench.report.facts import (
    BASELINE,
    CASES,
    COUNT,
    EVIDENCE,
    ID,
    INJECTED,
    LATENCY,
    MAX,
    MIN,
    OF_A_CASE,
    P50,
    P90,
    P99,
    PROCESSORS,
    VERDICTS,
)
from lockbench.report.grid import Markdown, markdown_table
from lockbench.report.jobs import JOBS, WORTH
from lockbench.report.rates import RATES, labels
from lockbench.report.source import histories, read
from lockbench.report.timeline import timeline
from lockbench.results.cases import lock_of
from lockbench.results.documents import CaseResult, LockRates
from lockbench.results.store import RunFolder
from lockbench.results.wording import printable

# Where a spreadsheet begins to compute. A carriage return is no longer there by then.
FORMULA: Final = ("=", "+", "-", "@", "\t")
FORMATS: Final = ("csv", "json", "parquet", "edn")
HISTORY_SUFFIX: Final = {"csv": "csv", "json": "jsonl", "parquet": "parquet", "edn": "edn"}
TABLES: Final = (CASES, VERDICTS, *OF_A_CASE, PROCESSORS, JOBS, WORTH, EVIDENCE)
# Of these files a run keeps its own, anew after each case.
BESIDE_THE_RESULTS: Final = (CASES, LATENCY, VERDICTS)
BEGIN: Final = Column("begin_s", "beginning, seconds since the first operation of the case")
FAULTS: Final = Table("faults", "a fault of a case, when it was on", (
    *ID,
    INJECTED.at("shade.name"),
    Column("targets", "what the fault hit, separated by commas",
           lambda r: ", ".join(r["shade"].targets)),
    BEGIN.at("shade.begin_s"),
    Column("heal_s",
           "when the heal was complete, seconds since the first operation; empty: never",
           "shade.heal_s"),
    Column("declared_s", "how long the fault was to last, seconds", "facts.declared_s"),
    Column("measured_s", "how long it lasted, seconds", "facts.measured_s"),
))  # fmt: skip
ROLE: Final = Column(
    "role",
    "own: a key of one client; contended: a key that many want; aimed: holds for the nemesis; "
    "floor: that of one client alone",
    lambda h: _named(h.key, {i: h.object_of(key).role for i, key in enumerate(h.keys)}),
)
TIMELINE: Final = Table("timeline", "a bin of time of a case by role and outcome", (
    *ID, ROLE,
    Column("outcome", "granted, refused or unknown"),
    BEGIN,
    Column("end_s", "end, seconds since the first operation of the case"),
    COUNT, MIN, P50, P90, P99, MAX,
))  # fmt: skip


def _whole(values: Ints) -> Any:
    return pd.arrays.IntegerArray(np.ascontiguousarray(values), np.asarray(values == NULL))


def _named(codes: np.ndarray, words: Mapping[int, str | None]) -> Any:
    """Texts by number; a number without a text is missing."""
    categories = list(dict.fromkeys(word for word in words.values() if word is not None))
    place = {word: i for i, word in enumerate(categories)}
    # -1, none, reads the last entry, which is never set.
    table = np.full(max(words, default=0) + 2, -1, np.int64)
    for code, word in words.items():
        table[code] = -1 if word is None else place[word]
    chosen = pd.Index(categories, dtype="str")
    return pd.Categorical.from_codes(table[codes.astype(np.int64)], categories=chosen)


def _holds(history: History) -> Any:
    hold = np.full(len(history), None, dtype=object)
    held = history.hold != NULL
    hold[held] = [history.hold_name(h) for h in history.hold[held].tolist()]
    return pd.Series(hold, dtype="string")


def _machines(history: History) -> Any:
    if history.machine is None:
        return pd.Series(np.full(len(history), None, dtype=object), dtype="string")
    return _named(history.machine, dict(enumerate(history.machines)))


def _number(name: str, meaning: str) -> Column:
    return Column(name, meaning, lambda history: _whole(getattr(history, name)))


# One row per operation; times are nanoseconds of CLOCK_MONOTONIC. Each column is of a history.
HISTORY: Final = Table("histories", "an operation", (
    Column("process", "the client; after an unknown outcome it goes on under a new number",
           lambda h: h.process),
    Column("f", "acquire, release, extend, lost, death, read, write, cas or add",
           lambda h: _named(h.f, {int(f): f.word for f in F})),
    Column("type", "ok, fail (certainly no effect) or info (unknown)",
           lambda h: _named(h.type, {int(t): t.word for t in Type})),
    Column("mode", "none (exclusive), read or write",
           lambda h: _named(h.mode, {int(m): m.name.lower() for m in Mode})),
    Column("key", "the key of the lock", lambda h: _named(h.key, dict(enumerate(h.keys)))),
    ROLE,
    Column("hold", "id of the grant under which it was done, hexadecimal", _holds),
    Column("error", "class of the error, or its whole text in a history",
           lambda h: _named(h.error, dict(enumerate(h.errors)))),
    _number("invoke_ns", "invoked, nanoseconds"),
    _number("intended_ns", "when it was due, nanoseconds; empty: when it was invoked"),
    _number("complete_ns", "completed, nanoseconds; empty for info"),
    _number("value", "version found or made, register value, amount"),
    _number("old", "first half of a cas"),
    _number("version", "version that had been read before a write"),
    _number("fence", "fencing number of the grant"),
    _number("sent_ns", "when the acknowledged attempt was sent, nanoseconds"),
    _number("valid_until_ns", "end of the promise, nanoseconds"),
    _number("applied_ns", "when the resource applied it, nanoseconds"),
    _number("owner", "who asked, where that is not the process"),
    Column("machine", "on whose clock the times are, where several recorded; times of two machines "
           "cannot be compared", _machines),
))  # fmt: skip
ALL: Final = (*TABLES, BASELINE, RATES, FAULTS, TIMELINE, HISTORY)


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
            made = {table.name: frame(table, source.cases) for table in TABLES}
            made[BASELINE.name] = frame(BASELINE, source.results.undisturbed)
            made[RATES.name] = _rates(source.results.rates)
            made |= extra
            for name, rows in made.items():
                _write(rows, form, beside / f"{name}.{form}")
            _csv(dictionary(), beside / "columns.csv")
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return sorted(path for path in out.rglob("*") if path.is_file())


def files(cases: Sequence[CaseResult], rates: Sequence[LockRates] = ()) -> dict[str, str]:
    """File name → CSV of the tables that a run keeps beside its results."""
    tables = {table.name: frame(table, cases) for table in BESIDE_THE_RESULTS}
    if rates:
        tables[RATES.name] = _rates(rates)
    return {f"{name}.csv": csv_text(_typed(rows)) for name, rows in tables.items()}


def _rates(found: Sequence[LockRates]) -> pd.DataFrame:
    return frame(RATES, found, [{"label": label} for label in labels(found)])


def frame(
    table: Table, cases: Sequence[Any], also: Sequence[Mapping[str, Any]] = ()
) -> pd.DataFrame:
    """A table of what it is about; without a row it has its columns all the same. ``also`` adds to
    what is known of each."""
    rows = [row.values for row in table.rows(cases, also)]
    return pd.DataFrame(rows, columns=table.names, dtype=object)


def history_frame(history: History) -> pd.DataFrame:
    """One row per operation. Missing numbers are NA in columns of whole numbers."""
    assert all(callable(column.of) for column in HISTORY.columns)
    return pd.DataFrame({c.name: c.of(history) for c in HISTORY.columns if callable(c.of)})


def dictionary() -> pd.DataFrame:
    """What every column of every table means."""
    rows = [(table.name, column.name, column.meaning) for table in ALL for column in table.columns]
    return pd.DataFrame(rows, columns=["table", "column", "meaning"])


def columns_markdown() -> str:
    """The same for the manual: what a row of each table is, then every column once."""
    tables = [
        (Markdown(f"`{table.name}{'/…' if table is HISTORY else ''}`"), table.row) for table in ALL
    ]
    found: dict[str, tuple[Column, list[str]]] = {}
    for table in ALL:
        for column in table.columns:
            found.setdefault(column.name, (column, []))[1].append(f"`{table.name}`")
    rows = [
        (Markdown(f"`{name}`"), Markdown(", ".join(of)), column.meaning)
        for name, (column, of) in found.items()
    ]
    return "\n\n".join(
        [
            markdown_table(("table", "a row is"), tables),
            "### Columns",
            markdown_table(("column", "in", "meaning"), rows),
        ]
    )


def _histories(run: RunFolder, form: str, folder: Path) -> dict[str, pd.DataFrame]:
    """Writes them one after the other; returns what is derived from all."""
    bins: list[pd.DataFrame] = []
    faults: list[dict[str, Any]] = []
    for n, case, history in histories(run):
        path = folder / f"{case.folder}.{HISTORY_SUFFIX[form]}"
        if form == "json":
            write_jsonl(history, path)
        elif form == "edn":
            write_edn(history, path)
        else:
            _write(history_frame(history), form, path)
        line = timeline(on_one_clock(history))
        if line is not None:
            bins.append(line.bins.assign(case=n, lock=lock_of(case), fault=case.fault))
            for shade, fault in zip(line.shades, history.faults, strict=True):
                known = {"n": n, "case": case, "shade": shade, "facts": fault.facts}
                faults.append(FAULTS.values(known))
    found = {FAULTS.name: pd.DataFrame(faults, columns=FAULTS.names, dtype=object)}
    if bins:
        every = pd.concat([part for part in bins if not part.empty] or bins[:1])
        found[TIMELINE.name] = every[TIMELINE.names]
    return found


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


def csv_text(frame: pd.DataFrame) -> str:
    """CSV of a table. A spreadsheet takes text for a formula that begins with =, +, -, @ or a tab:
    such a text gets an apostrophe before it."""
    made = frame.copy()
    for name in made.columns:
        if not pd.api.types.is_numeric_dtype(made[name]):
            made[name] = made[name].map(_no_formula, na_action="ignore")
    return str(made.to_csv(index=False, lineterminator="\n"))


def _no_formula(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def _csv(frame: pd.DataFrame, path: Path) -> None:
    path.write_text(csv_text(frame), encoding="utf-8")


def _json(frame: pd.DataFrame, path: Path) -> None:
    plain = frame.astype(object).where(frame.notna(), None)
    text = json.dumps(plain.to_dict("records"), indent=1, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


def _parquet(frame: pd.DataFrame, path: Path) -> None:
    # DuckDB, because pandas' own way needs a library twice its size.
    try:
        import duckdb
    except ImportError as error:
        raise CannotExport(
            "parquet needs DuckDB, which is not installed here: pip install 'lockbench[parquet]'"
        ) from error

    with duckdb.connect() as database:
        database.register("exported", frame)
        target = str(path).replace("'", "''")
        database.execute(f"COPY exported TO '{target}' (FORMAT parquet, COMPRESSION zstd)")


WRITERS: Final[Mapping[str, Callable[[pd.DataFrame, Path], None]]] = {
    "csv": _csv,
    "json": _json,
    "parquet": _parquet,
}
