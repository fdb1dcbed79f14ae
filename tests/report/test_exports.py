"""Exports hold the same numbers as the run, in every format, and overwrite nothing."""

from __future__ import annotations

import csv
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.edn import read_edn
from lockbench.history.jsonl import read_jsonl
from lockbench.history.op import NULL
from lockbench.history.recording import read_recording
from lockbench.report import exports
from lockbench.report.columns import Column, Slot
from lockbench.report.exports import (
    ALL,
    FORMATS,
    HISTORY,
    CannotExport,
    columns_markdown,
    export,
    frame,
)
from lockbench.report.facts import EVERY
from lockbench.results.cases import latencies
from lockbench.results.store import NotARun, RunFolder
from tests.results.made_run import make_run

DOCS = Path(__file__).parents[2] / "docs" / "report.md"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    base = tmp_path_factory.mktemp("runs")
    return make_run(base, double=True, faults={"none": False, "pause": True})


def history_of(run: RunFolder, n: int) -> History:
    return read_recording(run.cases()[n].history)


def parquet(path: Path, what: str = "*") -> list[tuple[Any, ...]]:
    with duckdb.connect() as database:
        return database.execute(f"SELECT {what} FROM '{path}'").fetchall()


def test_the_tables_agree_in_every_format(run: RunFolder, tmp_path: Path) -> None:
    for form in ("csv", "json", "parquet"):
        export(run, form, tmp_path / form)
    names = {path.stem for path in (tmp_path / "json").glob("*.json")}
    assert {"cases", "latency", "verdicts", "errors", "fairness", "faults", "timeline"} <= names
    for name in names:
        plain = json.loads((tmp_path / "json" / f"{name}.json").read_text())
        text = (tmp_path / "csv" / f"{name}.csv").read_text().splitlines()
        rows = list(csv.DictReader(text))
        columnar = parquet(tmp_path / "parquet" / f"{name}.parquet")
        assert len(plain) == len(rows) == len(columnar), name
        for one, two, three in zip(plain, rows, columnar, strict=True):
            assert list(one) == list(two)
            for column, value in zip(one, three, strict=True):
                assert one[column] == value, (name, column)
                assert two[column] == ("" if value is None else str(value)), (name, column)


def test_latencies_are_those_of_the_results(run: RunFolder, tmp_path: Path) -> None:
    export(run, "json", tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "latency.json").read_text())
    wait = latencies(run.results().cases[1])["wait"]
    for phase, cell in wait.items():
        found = [
            row
            for row in rows
            if (row["case"], row["basis"], row["kind"], row["phase"])
            == (2, "service", "wait", phase)
        ]
        assert len(found) == 1
        for q in ("p50", "p99", "max", "iqr"):
            assert found[0][f"{q}_ms"] == getattr(cell, q)
        assert found[0]["count"] == cell.count


@pytest.mark.parametrize("form", ["json", "edn"])
def test_an_exported_history_has_the_same_verdicts(
    run: RunFolder, tmp_path: Path, form: str
) -> None:
    export(run, form, tmp_path / "out")
    suffix = {"json": "jsonl", "edn": "edn"}[form]
    files = sorted((tmp_path / "out" / "histories").glob(f"*.{suffix}"))
    assert len(files) == 2
    for n, file in enumerate(files):
        back = (read_jsonl if form == "json" else read_edn)(file)
        wanted = {name: v.result for name, v in check(history_of(run, n)).verdicts.items()}
        assert "invalid" in wanted.values()
        assert {name: v.result for name, v in check(back).verdicts.items()} == wanted


def test_histories_in_columns_are_those_that_were_recorded(run: RunFolder, tmp_path: Path) -> None:
    export(run, "parquet", tmp_path / "out")
    history = history_of(run, 1)
    file = next((tmp_path / "out" / "histories").glob("02-*.parquet"))
    rows = parquet(file, "invoke_ns, complete_ns, f, key, hold, valid_until_ns, error, type")
    assert len(rows) == len(history)
    assert [row[0] for row in rows] == history.invoke_ns.tolist()
    done = [None if t == NULL else t for t in history.complete_ns.tolist()]
    assert [row[1] for row in rows] == done
    assert None in done
    assert [row[3] for row in rows] == [history.keys[k] for k in history.key]
    held = [None if h == NULL else f"{h:x}" for h in history.hold.tolist()]
    assert [row[4] for row in rows] == held
    limits = [None if t == NULL else t for t in history.valid_until_ns.tolist()]
    assert [row[5] for row in rows] == limits
    said = [None if e < 0 else history.errors[e] for e in history.error.tolist()]
    assert [row[6] for row in rows] == said
    assert {row[7] for row in rows} == {"ok", "fail", "info"}


def test_the_timeline_counts_every_acquire(run: RunFolder, tmp_path: Path) -> None:
    export(run, "json", tmp_path / "out")
    bins = json.loads((tmp_path / "out" / "timeline.json").read_text())
    history = history_of(run, 0)
    load = [
        i
        for i, key in enumerate(history.keys)
        if history.object_of(key).role in {"own", "contended"}
    ]
    acquires = np.count_nonzero((history.f == 0) & np.isin(history.key, load))
    assert sum(row["count"] for row in bins if row["case"] == 1) == acquires


def test_every_column_is_explained_with_its_data_and_in_the_docs(
    run: RunFolder, tmp_path: Path
) -> None:
    export(run, "csv", tmp_path / "out")
    dictionary = list(csv.DictReader((tmp_path / "out" / "columns.csv").read_text().splitlines()))
    explained = {(row["table"], row["column"]) for row in dictionary}
    for file in (tmp_path / "out").glob("*.csv"):
        if file.stem != "columns":
            columns = file.read_text().splitlines()[0].split(",")
            assert {(file.stem, column) for column in columns} <= explained, file
    assert {("histories", column) for column in HISTORY.names} <= explained
    assert columns_markdown() in DOCS.read_text(), "run `python -m tools.columns`"
    units = {"_ms": "milliseconds", "_us": "microseconds", "_ns": "nanoseconds", "_s": "second"}
    for row in dictionary:
        for suffix, unit in units.items():
            if row["column"].endswith(suffix):
                said = row["meaning"]
                assert unit in said or said.startswith("the same"), row


def test_a_name_means_the_same_in_every_table() -> None:
    meanings: dict[str, set[str]] = {}
    for table in (*ALL, EVERY):
        assert len(set(table.names)) == len(table.names), table.name
        for column in table.columns:
            meanings.setdefault(column.name, set()).add(column.meaning)
    ours = {"verdict"}  # of the report's own table: sign and judgement
    assert {name for name, said in meanings.items() if len(said) > 1} <= ours


def test_a_new_column_is_one_entry(run: RunFolder) -> None:
    """It reaches the export, the dictionary, the report and the terminal."""
    new = Column("nodes_count", "how many nodes", "case.size", Slot("nodes"))
    table = replace(EVERY, columns=(*EVERY.columns, new))
    known = [{"label": "etcd", "words": "", "several": False}] * 2
    rows = table.rows(run.results().cases, known)
    for grid in (table.grid(rows), table.narrow(rows)):
        assert grid is not None
        heading = "nodes" if grid.headings[-1] == "nodes" else "nodes n"
        assert grid.headings[-1] == heading
        assert grid.rows[0][-1].text == "3"
    assert frame(table, [])["nodes_count"].empty


def test_nothing_is_overwritten_and_nothing_half_done_is_left(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine.txt").write_text("mine")
    for target in (taken, taken / "mine.txt"):
        with pytest.raises(CannotExport, match="is there already"):
            export(run, "csv", target)
    assert [path.name for path in taken.iterdir()] == ["mine.txt"]
    with pytest.raises(CannotExport, match="is no format; one of csv, json"):
        export(run, "xml", tmp_path / "new")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert export(run, "csv", empty)

    def breaks(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(exports, "dictionary", breaks)
    with pytest.raises(OSError, match="disk full"):
        export(run, "csv", tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "taken"]


@pytest.mark.parametrize("form", FORMATS)
def test_a_changed_run_is_not_exported(tmp_path: Path, form: str) -> None:
    run = make_run(tmp_path / "runs")
    faults = run.cases()[0].history / "faults.jsonl"
    faults.write_text("")
    with pytest.raises(NotARun, match=r"faults\.jsonl was changed"):
        export(run, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_without_the_library_for_parquet_it_is_named(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(CannotExport, match=r"pip install 'lockbench\[parquet\]'"):
        export(run, "parquet", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []
    assert export(run, "csv", tmp_path / "out")
