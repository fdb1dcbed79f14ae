"""Columns lie where the documents of a run have them: a wrong path would read as missing."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from lockbench.report.columns import Column, Slot, Table, at
from lockbench.report.exports import FAULTS, TABLES
from lockbench.report.facts import BASELINE, EVERY
from lockbench.report.grid import Grid, markdown
from lockbench.report.rates import RATES
from lockbench.results import documents
from lockbench.results.wording import NONE

# What a row is about, beside its case: name in a path → the type of it.
ABOUT: dict[str, Any] = {
    "case": documents.CaseResult,
    "row": documents.UndisturbedLock,
    "found": documents.LockRates,
    "rate": documents.PooledRate,
    "cell": documents.Quantiles,
    "cells": dict[str, documents.Quantiles],
    "fair": documents.Fairness,
    "seen": documents.Recovery,
    "score": documents.Scoring,
    "health": documents.Generator,
    "processors": documents.Processors,
    "worker": documents.Worker,
    "item": documents.Entry,
    "tried": documents.JobNumbers,
    "measured": documents.JobNumbers,
    "acquires": dict[str, int],
    "counts": dict[str, int],
    "jobs": dict[str, int],
}


def types_at(kind: Any, names: list[str]) -> Iterator[Any]:
    """Every type that a path can end at."""
    if typing.get_origin(kind) in {typing.Union, types.UnionType, typing.Annotated}:
        for each in typing.get_args(kind):
            yield from types_at(each, names)
    elif not names:
        yield kind
    elif typing.get_origin(kind) is dict:
        yield from types_at(typing.get_args(kind)[1], names[1:])
    elif isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        hints = typing.get_type_hints(kind, include_extras=True)
        if names[0] in hints:
            yield from types_at(hints[names[0]], names[1:])


PATHS = [
    pytest.param(column.of, id=f"{table.name}-{column.name}")
    for table in (*TABLES, EVERY, BASELINE, RATES)
    for column in table.columns
    if isinstance(column.of, str) and "." in column.of
]


@pytest.mark.parametrize("path", PATHS)
def test_a_path_ends_at_a_field(path: str) -> None:
    about, *names = path.split(".")
    assert list(types_at(ABOUT[about], names)), path


def test_a_path_that_leads_nowhere_is_found() -> None:
    assert not list(types_at(documents.CaseResult, ["floor", "aquire_ms_p50"]))
    assert not list(types_at(documents.CaseResult, ["floors"]))
    assert FAULTS.columns[-1].of == "facts.measured_s"


def test_what_ends_early_or_is_unset_is_missing() -> None:
    case = documents.CaseResult(
        lock="etcd", fault="none", floor=documents.Floor(acquire_ms_p50=2.0)
    )
    assert at({"case": case}, "case.floor.acquire_ms_p50") == 2.0
    assert at({"case": {"floor": {"acquire_ms_p50": 2.0}}}, "case.floor.acquire_ms_p50") == 2.0
    assert at({"case": case}, "case.link_us.linked") is None
    assert at({"case": {}}, "case.floor.acquire_ms_p50") is None


TABLE = Table(
    "t",
    "a row",
    (
        Column("lock", "", "case.lock", Slot("", once=True)),
        Column("p50_ms", "", "cell.p50", Slot("both"), load=True),
        Column("p99_ms", "", "cell.p99", Slot("both", "/{text}"), load=True),
        Column("gap_s", "", slot=Slot("whole", "gap {whole}\n", optional=True), once=True),
        Column("seldom", "", slot=Slot("seldom", optional=True)),
        Column("valid", "", usual=True),
    ),
    lambda case: case["rows"],
    title="Title",
)


def made(*rows: dict[str, Any]) -> tuple[Grid, list[str]]:
    """As a terminal shows the rows of a case, and as Markdown."""
    found = TABLE.rows([{"lock": "a|b", "rows": rows}])
    narrow, wide = TABLE.narrow(found), TABLE.grid(found)
    assert narrow is not None
    assert wide is not None
    return narrow, markdown(wide)


def cell(p50: float | None, p99: float | None = None, *above: documents.Statistic) -> Any:
    return {"cell": documents.Quantiles(p50=p50, p99=p99, above=above), "valid": True}


def test_rows_of_a_case_share_a_cell_and_what_says_nothing_is_left_out() -> None:
    narrow, (title, table) = made({**cell(1.0), "gap_s": 2.25}, {**cell(None), "gap_s": 2.25})
    assert narrow.headings == ("", "both", "whole")
    assert [cell.text for cell in narrow.rows[0]] == ["a|b", f"1.00/{NONE}\n{NONE}", "gap 2.2 s"]
    assert title == "## Title"
    assert table.splitlines() == [
        "| lock | p50, ms | gap, s |",
        "| --- | ---: | ---: |",
        "| a&#124;b | 1.00 | 2.250 |",
        f"| a&#124;b | {NONE} | {NONE} |",
    ]


def test_void_figures_stand_in_brackets_and_what_is_no_figure_of_the_load_does_not() -> None:
    void = {**cell(1.0, 2000.0), "gap_s": 1.0, "void": True, "valid": False}
    narrow, (_, table) = made(void, cell(3.0))
    assert [cell.text for cell in narrow.rows[0]] == [
        "a|b",
        f"(1.00/2,000)\n3.00/{NONE}",
        "gap 1.0 s",
    ]
    assert table.splitlines() == [
        "| lock | p50, ms | p99, ms | gap, s | valid |",
        "| --- | ---: | ---: | ---: | --- |",
        "| a&#124;b | (1.00) | (2,000) | 1.000 | no |",
        f"| a&#124;b | 3.00 | {NONE} | {NONE} | yes |",
    ]
    narrow, _ = made({**cell(None), "gap_s": 1.0, "void": True})
    assert narrow.rows[0][1].text == NONE


def test_a_lower_bound_says_so_everywhere_and_its_exact_value_stays() -> None:
    narrow, (_, table) = made(cell(1.0, 1000.0, "p99"), {**cell(5.0, 9.0, "p50"), "void": True})
    assert narrow.rows[0][1].text == "1.00/> 1,000\n(> 5.00/9.00)"
    assert table.splitlines()[2:] == [
        "| a&#124;b | 1.00 | &gt; 1,000 |",
        "| a&#124;b | (&gt; 5.00) | (9.00) |",
    ]
    wide = TABLE.grid(TABLE.rows([{"lock": "a", "rows": [cell(1.0, 1000.0, "p99")]}]))
    assert wide is not None
    assert wide.rows[0][2].value == "1000.0"


@pytest.mark.parametrize("table", [t for t in (*TABLES, RATES) if any(c.load for c in t.columns)])
def test_a_file_with_figures_of_the_load_says_which_are_void(table: Table) -> None:
    assert "numbers_valid" in table.names, table.name
