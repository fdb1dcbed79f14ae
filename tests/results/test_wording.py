"""Text of others stays text: in a terminal, in a spreadsheet."""

from __future__ import annotations

import pandas as pd
import pytest

from lockbench.report.exports import csv_text
from lockbench.results.wording import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("\x9b31m", "\\x9b31m"),
        ("\a", "\\x07"),
        ("a\rb", "a\\rb"),
        ("\u202egnp", "\\u202egnp"),
        ("\u2066x", "\\u2066x"),
        ("\ud800", "\\ud800"),
    ],
)
def test_what_acts_on_a_terminal_is_shown(text: str, shown: str) -> None:
    assert printable(text) == shown


@pytest.mark.parametrize("text", ["", "lines\nand\ttabs", "1\xa0000 µs", "検査", "✗ ‼", "[red]"])
def test_other_text_is_left_alone(text: str) -> None:
    assert printable(text) == text


def test_a_spreadsheet_is_given_no_formula() -> None:
    texts = ["=1+1", "+1", "-1", "@x", "\tx", "\r=x", "x=1", None]
    frame = pd.DataFrame(
        {
            "text": texts,
            "category": pd.Categorical(texts),
            "number": [-1.5, None, *range(-6, 0)],
            "whole": pd.array([-1, None, *range(6)], dtype="Int64"),
        }
    )
    first, *rows = csv_text(frame).splitlines()
    assert first == "text,category,number,whole"
    assert [row.split(",")[0] for row in rows] == [
        "'=1+1", "'+1", "'-1", "'@x", "'\tx", "\\r=x", "x=1", "",
    ]  # fmt: skip
    assert [row.split(",")[0] == row.split(",")[1] for row in rows] == [True] * len(rows)
    assert rows[0].endswith(",-1.5,-1")
    assert rows[1].endswith(",,")
