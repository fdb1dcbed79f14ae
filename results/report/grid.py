"""Turns a data frame into cells for people: the same words in HTML and in Markdown.

A cell has a text to read and, where it is a number, the exact value to sort by and to download.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Final

import numpy as np
import pandas as pd

from results import wording
from results.wording import NONE

UNITS: Final = {
    "_us_per_cycle": "µs/cycle",
    "_per_s": "1/s",
    "_percent": "%",
    "_share": "share",
    "_ms": "ms",
    "_us": "µs",
    "_s": "s",
}
# Words of columns that read badly with spaces for underscores alone.
WORDS: Final = {
    "count": "n",
    "iqr": "IQR",
    "p999": "p99.9",
    "handover": "hand-over",
    "cpu": "CPU",
    "jain": "Jain",
    "cycles": "cycles",
}


# Kinds of latency, as people call them.
KINDS: Final = {"handover": "hand-over", "acquire_beside": "acquire beside the load"}


@dataclass(frozen=True, slots=True)
class Cell:
    """``value`` is the exact number, None for a text."""

    text: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: ``name`` is the file name of its download, without suffix."""

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""

    @property
    def frame(self) -> pd.DataFrame:
        """The texts alone, for Markdown."""
        texts = [[cell.text for cell in row] for row in self.rows]
        return pd.DataFrame(texts, columns=list(self.headings))


def grid(
    frame: pd.DataFrame, name: str, title: str, caption: str = "", leave_out: Sequence[str] = ()
) -> Grid | None:
    """None for a table without rows. Columns in which nothing stands are left out."""
    columns = [
        column
        for column in frame.columns
        if column not in leave_out and frame[column].notna().any()
    ]
    if frame.empty or not columns:
        return None
    rows = tuple(
        tuple(cell(column, value) for column, value in zip(columns, row, strict=True))
        for row in frame[columns].itertuples(index=False, name=None)
    )
    return Grid(name, title, tuple(heading(str(column)) for column in columns), rows, caption)


def heading(column: str) -> str:
    """``wait_p99_ms`` reads ``wait p99, ms``."""
    for suffix, unit in UNITS.items():
        if column.endswith(suffix):
            return f"{_words(column.removesuffix(suffix))}, {unit}"
    return _words(column)


def _words(column: str) -> str:
    return " ".join(WORDS.get(word, word) for word in column.split("_"))


def cell(column: str, value: Any) -> Cell:
    """A value as it is read in a column of this name."""
    if value is None or wording.is_missing(value):
        return Cell(NONE)
    if isinstance(value, bool | np.bool_):
        return Cell("yes" if value else "no")
    if isinstance(value, Integral) or (isinstance(value, float) and _counts(column, value)):
        return Cell(f"{int(value):,}", str(int(value)))
    if isinstance(value, Real):
        exact = float(value)
        return Cell(_number(column, exact), repr(exact))
    return Cell(KINDS.get(str(value), str(value)) if column == "kind" else str(value))


def _counts(column: str, value: float) -> bool:
    """A count that a missing neighbour has turned into a float."""
    return value.is_integer() and not any(column.endswith(suffix) for suffix in UNITS)


def _number(column: str, value: float) -> str:
    if column.endswith(("_us_per_cycle", "_us")):
        return f"{value:,.0f}"
    if column.endswith("_per_s"):
        return wording.rate(value)
    if column.endswith("_ms"):
        return wording.ms(value)
    if column.endswith("_percent"):
        return f"{value:.1f}"
    return f"{value:.3f}"
