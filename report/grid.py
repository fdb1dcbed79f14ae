"""A table for people, drawn in a terminal, as Markdown and, by the template of the page, as HTML.

A cell has a text to read and, where it is a number, the exact value to sort by and to download. Its
lines stand one below the other everywhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from lockbench.results.wording import NONE, escape_markdown

KEPT, BROKE, OPEN, FAILED = "✓", "✗", "?", "!"
NOT_EXPECTED: Final = "(NOT expected)"
UNDECLARED: Final = "(undeclared)"
# What a line begins with → its class in the style of the page, its style in a terminal.
SIGNS: Final = {
    KEPT: ("kept", "green"),
    BROKE: ("broke", "red"),
    OPEN: ("open", "yellow"),
    FAILED: ("failed", "magenta"),
    NOT_EXPECTED: ("worse", "bold red"),
    UNDECLARED: ("worse", "bold red"),
}
WORST_FIRST: Final = ("worse", "broke", "failed", "open", "plain", "kept")
NUMBERS: Final = re.compile(r"\(?(?:[>≥] )?[\d–][\d.,/()\[\] –]*")
# Headings of a terminal whose lines are not broken, though they are words.
UNBROKEN: Final = frozenset({"name", "phase", "whole case", "figures", "done"})


def sign(line: str) -> tuple[str, str]:
    """The class of a line and its style in a terminal; colour repeats what the signs say."""
    return SIGNS.get(line) or SIGNS.get(line[:1], ("plain", ""))


@dataclass(frozen=True, slots=True)
class Cell:
    """``value`` is the exact number, None for a text. ``cases`` are the numbers of the cases that
    it sums up."""

    text: str
    value: str | None = None
    cases: tuple[int, ...] = ()

    @property
    def lines(self) -> list[tuple[str, str]]:
        """(class, text) of every line."""
        return [(sign(line)[0], line) for line in self.text.split("\n")]

    @property
    def kind(self) -> str:
        """The class of the cell: kept only where nothing else stands in it."""
        kinds = {kind for kind, _ in self.lines}
        return next(kind for kind in WORST_FIRST if kind in kinds)


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: ``name`` is the file name of its download, without suffix. With ``grouped``, what
    stands in the first column heads the rows that share it, where there is little room."""

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    grouped: bool = False


def texts(
    name: str,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell | str]],
    caption: str = "",
) -> Grid:
    """A table of words, and of cells that are more than words."""
    cells = tuple(tuple(c if isinstance(c, Cell) else Cell(c) for c in row) for row in rows)
    return Grid(name, title, tuple(headings), cells, caption)


class Markdown(str):
    """Text that is Markdown already."""

    __slots__ = ()


def as_markdown(value: object) -> Markdown:
    """Text as it stands in Markdown, escaped unless it is Markdown already."""
    return value if isinstance(value, Markdown) else Markdown(escape_markdown(str(value)))


def markdown_table(headings: Iterable[str], rows: Iterable[Iterable[object]]) -> Markdown:
    """GitHub's tables; every cell is text, whatever is in it, unless it is ``Markdown``. Numbers
    are to the right."""
    cells = [[as_markdown(cell) for cell in row] for row in rows]
    rules = ["---:" if cells and numeric(column) else "---" for column in zip(*cells, strict=True)]
    heading = [as_markdown(heading) for heading in headings]
    lines: list[Sequence[str]] = [heading, rules or ["---"] * len(heading), *cells]
    return Markdown("\n".join(f"| {' | '.join(line)} |" for line in lines))


def numeric(cells: Iterable[str]) -> bool:
    """Whether every line of a column is a number, or several, or a dash."""
    return all(NUMBERS.fullmatch(line) for cell in cells for line in cell.split("\n"))


def markdown(grid: Grid | None, level: str = "##") -> list[str]:
    """Title, table and caption as paragraphs; none for no table."""
    if grid is None:
        return []
    table = markdown_table(grid.headings, ([cell.text for cell in row] for row in grid.rows))
    caption = [escape_markdown(grid.caption)] if grid.caption else []
    return [f"{level} {escape_markdown(grid.title)}", table, *caption]


def drawn(grid: Grid) -> RenderableType:
    """For a terminal: nothing is cut, cells are wrapped where it is narrow."""
    table = Table(
        title=grid.title,
        title_justify="left",
        title_style="bold",
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    first = int(grid.grouped)
    for heading, column in list(zip(grid.headings, zip(*grid.rows, strict=True), strict=True))[
        first:
    ]:
        numbers = numeric(cell.text for cell in column)
        table.add_column(
            Text(heading),
            justify="right" if numbers else "left",
            overflow="fold",
            no_wrap=numbers or heading in UNBROKEN,
        )
    group = None
    for row in grid.rows:
        if grid.grouped and row[0].text != group:
            if group is not None:
                table.add_section()
            group = row[0].text
            table.add_row(Text(group, style="bold"))
        table.add_row(*(_styled(cell.text) for cell in row[first:]))
        if any("\n" in cell.text for cell in row):
            table.add_row()
    if not grid.caption:
        return _above_a_line(table)
    return Group(_above_a_line(table), _above_a_line(Text(grid.caption, style="dim")))


def _above_a_line(part: RenderableType) -> Padding:
    """No wider than it is: what is not a terminal is as wide as one likes."""
    return Padding(part, (0, 0, 1, 0), expand=False)


def _styled(cell: str) -> Text:
    return Text("\n").join(Text(line, sign(line)[1]) for line in cell.split("\n"))


def missing(text: str) -> bool:
    """Whether a cell says nothing."""
    return text in {"", NONE}
