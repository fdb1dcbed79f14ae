"""Columns lie where the documents of a run have them: a wrong path would read as missing."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from report.columns import Column, Row, Slot, Table, at
from report.exports import FAULTS, TABLES
from report.facts import BASELINE, EVERY
from report.grid import Grid, markdown
from results import documents
from results.wording import NONE

# What a row is about, beside its case: name in a path → the type of it.
ABOUT: dict[str, Any] = {
    "case": documents.CaseResult,
    "row": documents.UndisturbedLock,
    "cell": documents.Quantiles,
    "cells": dict[str, documents.Quantiles],
    "fair": documents.Fairness,
    "seen": documents.Recovery,
    "score": documents.Scoring,
    "health": documents.Generator,
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
    for table in (*TABLES, EVERY, BASELINE)
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
        Column("p50_ms", "", slot=Slot("both", load=True)),
        Column("p99_ms", "", slot=Slot("both", "/{text}", load=True)),
        Column("gap_s", "", slot=Slot("whole", "gap {whole}\n", optional=True), once=True),
        Column("seldom", "", slot=Slot("seldom", optional=True)),
    ),
    title="Title",
)


def made(*rows: dict[str, Any], void: bool = False) -> tuple[Grid, list[str]]:
    """As a terminal shows the rows of a case, and as Markdown."""
    found = [
        Row(TABLE.values({"case": {"lock": "a|b"}, "first": n == 0, **row}), 1, n == 0, void)
        for n, row in enumerate(rows)
    ]
    narrow, wide = TABLE.narrow(found), TABLE.grid(found)
    assert narrow is not None
    assert wide is not None
    return narrow, markdown(wide)


def test_rows_of_a_case_share_a_cell_and_what_says_nothing_is_left_out() -> None:
    rows = ({"p50_ms": 1.0, "p99_ms": None, "gap_s": 2.25}, {"p50_ms": None, "gap_s": 2.25})
    narrow, (title, table) = made(*rows)
    assert narrow.headings == ("", "both", "whole")
    assert [cell.text for cell in narrow.rows[0]] == ["a|b", f"1.00/{NONE}\n{NONE}", "gap 2.2 s"]
    assert title == "## Title"
    assert table.splitlines() == [
        "| lock | p50, ms | gap, s |",
        "| --- | ---: | ---: |",
        "| a&#124;b | 1.00 | 2.250 |",
        f"| a&#124;b | {NONE} | {NONE} |",
    ]


def test_void_numbers_stand_in_brackets_and_what_is_no_number_of_the_load_does_not() -> None:
    narrow, _ = made({"p50_ms": 1.0, "p99_ms": 2.0, "gap_s": 1.0}, void=True)
    assert [cell.text for cell in narrow.rows[0]] == ["a|b", "(1.00/2.00)", "gap 1.0 s"]
    narrow, _ = made({"p50_ms": None, "gap_s": 1.0}, void=True)
    assert narrow.rows[0][1].text == NONE
