"""What a table is made of: columns, each declared once with its name, meaning, source and places.

A column's name ends with its unit (``wait_p99_ms``), which decides how its values are written. From
its declaration come the cell of the report, the part of a cell in a terminal, the exported value
and the line of the data dictionary. A missing value stays missing and is never zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from numbers import Integral, Real
from typing import Any, Final, NamedTuple, Self

from msgspec import UNSET

from lockbench.report.grid import Cell, Grid, missing
from lockbench.results import wording
from lockbench.results.cases import has_numbers, number
from lockbench.results.documents import CaseResult, Quantiles
from lockbench.results.wording import NONE

Context = Mapping[str, Any]
MORE: Final = "> "  # before what is a lower bound


class Unit(NamedTuple):
    """How a unit is called, and how a value reads beside its name and by itself."""

    name: str
    plain: Callable[[float], str]
    whole: Callable[[float], str]


def _thousandths(value: float) -> str:
    return f"{value:.3f}"


def _count(value: float) -> str:
    return f"{value:,.0f}"


UNITS: Final = {
    "_us_per_cycle": Unit("µs/cycle", _count, wording.micros),
    "_per_s": Unit("1/s", wording.rate, wording.rate),
    "_percent": Unit("%", lambda v: wording.percent(v).removesuffix(" %"), wording.percent),
    "_share": Unit("share", _thousandths, _thousandths),
    "_ms": Unit("ms", wording.ms, lambda value: f"{wording.ms(value)} ms"),
    "_us": Unit("µs", _count, wording.micros),
    "_s": Unit("s", _thousandths, wording.seconds),
}
# Parts of names that read badly as they are.
WORDS: Final = {
    "count": "n",
    "iqr": "IQR",
    "p999": "p99.9",
    "handover": "hand-over",
    "cpu": "CPU",
    "jain": "Jain",
}


@dataclass(frozen=True, slots=True)
class Slot:
    """Where a column stands in a terminal, whose tables are narrow: columns with the same heading
    share a cell, and the rows of a case too, one below the other.

    ``form`` makes the part of the cell, from ``text`` (without unit) or ``whole`` (with it); a
    function is given the text. ``optional`` leaves out what is missing; ``once`` says it in the
    first row of a case. A slot without a heading heads the rows below it.
    """

    heading: str
    form: str | Callable[[str], str] = "{text}"
    optional: bool = False
    once: bool = False

    def part(self, column: Column, row: Row) -> str:
        """The column's share of the cell, without brackets: these are put around all of it."""
        value = row.values[column.name]
        text = column.cell(value).text
        if self.optional and missing(text):
            return ""
        if callable(self.form):
            return self.form(text)
        unit = column.unit
        whole = text if unit is None or missing(text) else unit.whole(value)
        sign = row.signs.get(column.name, "")
        return self.form.format(text=sign + text, whole=sign + whole)


@dataclass(frozen=True, slots=True)
class Column:
    """``of`` is the dotted path of its value in what a row is about, or a function of that; without
    one the path is the name. ``once``: it is of a whole case and stands in its first row alone.
    Without ``report`` it is left out of the report. ``said`` has the words of people for values.
    ``load``: it depends on how fast the load was, and stands in brackets where that is void.
    ``usual``: the report leaves the column out where it says nothing else. ``signed`` is what
    stands before a value; without it, a quantile that is a lower bound has a ``>``."""

    name: str
    meaning: str
    of: str | Callable[[Any], Any] = ""
    slot: Slot | None = None
    once: bool = False
    report: bool = True
    said: Mapping[str, str] = field(default_factory=dict)
    load: bool = False
    usual: Any = None
    signed: Callable[[Context], str] | None = None

    def at(self, of: str | Callable[[Any], Any], **changed: Any) -> Self:
        """The same column, whose values lie elsewhere."""
        return replace(self, of=of, **changed)

    @property
    def unit(self) -> Unit | None:
        """None for what has no unit."""
        return next((unit for end, unit in UNITS.items() if self.name.endswith(end)), None)

    @property
    def heading(self) -> str:
        """``wait_p99_ms`` reads ``wait p99, ms``."""
        end = next((end for end in UNITS if self.name.endswith(end)), "")
        words = " ".join(WORDS.get(w, w) for w in self.name.removesuffix(end).split("_"))
        return f"{words}, {UNITS[end].name}" if end else words

    def value(self, context: Context) -> Any:
        """From what a row is about; None where it is missing."""
        if self.once and not context.get("first", True):
            return None
        found = self.of(context) if callable(self.of) else at(context, self.of or self.name)
        return found if self.unit is None else number(found)

    def sign(self, context: Context) -> str:
        """What stands before the value: ``> `` before a lower bound."""
        if self.signed is not None:
            return self.signed(context)
        where, _, name = self.of.rpartition(".") if isinstance(self.of, str) else ("", "", "")
        found = at(context, where) if where else None
        return MORE if isinstance(found, Quantiles) and name in found.above else ""

    def shown(self, row: Row) -> Cell:
        """A value as people read it: with its sign, and in brackets where it is void."""
        cell = self.cell(row.values[self.name])
        if missing(cell.text):
            return cell
        text = row.signs.get(self.name, "") + cell.text
        return replace(cell, text=f"({text})" if self.load and row.void else text)

    def cell(self, value: Any) -> Cell:
        """A value as people read it."""
        if value is None or wording.is_missing(value):
            return Cell(NONE)
        if isinstance(value, bool):
            return Cell("yes" if value else "no")
        whole = isinstance(value, float) and value.is_integer() and self.unit is None
        if isinstance(value, Integral) or whole:
            return Cell(f"{int(value):,}", str(int(value)))
        if isinstance(value, Real):
            plain = _thousandths if self.unit is None else self.unit.plain
            return Cell(plain(float(value)), repr(float(value)))
        return Cell(self.said.get(str(value), str(value)))


def at(found: Any, path: str) -> Any:
    """What lies at a dotted path, in objects and dictionaries alike; None where it ends early."""
    for name in path.split("."):
        found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        if found is None or found is UNSET:
            return None
    return found


@dataclass(frozen=True, slots=True)
class Row:
    """Column → value, and → what stands before it. ``first`` of its case, which has a number;
    ``void``: what depends on how fast the load was is no figure of the lock."""

    values: dict[str, Any]
    number: int
    first: bool
    void: bool
    signs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """``about`` yields what the rows of a case are about, and with ``void`` whether a row is, where
    that is not the case's to say. ``name`` is also the name of its file. ``row`` says what a row
    is, for the dictionary of what is exported."""

    name: str
    row: str
    columns: tuple[Column, ...]
    about: Callable[[Any], Iterable[Context]] = lambda _: ({},)
    title: str = ""
    caption: str = ""

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    def values(self, context: Context) -> dict[str, Any]:
        return {column.name: column.value(context) for column in self.columns}

    def rows(self, cases: Sequence[Any], also: Sequence[Context] = ()) -> list[Row]:
        """Of all cases, or of what else the table is about; ``also`` adds to what is known of
        each."""
        found = []
        for n, (case, more) in enumerate(zip(cases, also or [{}] * len(cases), strict=True), 1):
            for place, about in enumerate(self.about(case)):
                known = {"n": n, "case": case, "first": place == 0, **more, **about}
                void = isinstance(case, CaseResult) and not has_numbers(case)
                signs = {c.name: sign for c in self.columns if (sign := c.sign(known))}
                row = Row(self.values(known), n, place == 0, bool(known.get("void", void)), signs)
                found.append(row)
        return found

    def grid(
        self, rows: Iterable[Row], *, name: str = "", leave_out: Sequence[str] = ()
    ) -> Grid | None:
        """For the report: columns in which nothing stands, or the usual everywhere, are left out.
        None without rows."""
        found = list(rows)
        shown = [
            column
            for column in self.columns
            if column.report and column.name not in leave_out
            if any(
                not wording.is_missing(value := row.values[column.name]) and value != column.usual
                for row in found
            )
        ]
        if not shown:
            return None
        return Grid(
            name or self.name,
            self.title,
            tuple(column.heading for column in shown),
            tuple(tuple(column.shown(row) for column in shown) for row in found),
            self.caption,
        )

    def narrow(self, rows: Sequence[Row]) -> Grid | None:
        """For a terminal: a row a case. None without rows."""
        slots = [column.slot for column in self.columns if column.slot is not None]
        # Each where the last of its columns stands; what heads the rows comes first.
        headings = list(dict.fromkeys(slot.heading for slot in reversed(slots)))[::-1]
        headings.sort(key=bool)
        needed = {slot.heading for slot in slots if not slot.optional}
        cases = [list(case) for _, case in groupby(rows, key=lambda row: row.number)]
        columns = {
            heading: [Cell("\n".join(self._lines(heading, case)) or NONE) for case in cases]
            for heading in headings
        }
        kept = {
            heading: cells
            for heading, cells in columns.items()
            if heading in needed or any(not missing(cell.text) for cell in cells)
        }
        if not rows:
            return None
        cells = tuple(zip(*kept.values(), strict=True))
        return Grid(self.name, self.title, tuple(kept), cells, self.caption, grouped="" in kept)

    def _lines(self, heading: str, rows: Sequence[Row]) -> Iterator[str]:
        """The lines of a cell: one for each row, and more where a part has several."""
        for row in rows:
            parts = [
                (slot, column)
                for column in self.columns
                if (slot := column.slot) is not None and slot.heading == heading
                if row.first or not (slot.once or column.once)
            ]
            if not parts:
                continue
            if all(missing(column.cell(row.values[column.name]).text) for _, column in parts):
                if not all(slot.optional for slot, _ in parts):
                    yield NONE
                continue
            text = "".join(slot.part(column, row) for slot, column in parts).strip("\n")
            if text:
                void = row.void and any(column.load for _, column in parts)
                yield "\n".join(f"({line})" for line in text.split("\n")) if void else text
