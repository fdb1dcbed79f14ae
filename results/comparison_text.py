"""A comparison for people and for CI: the terminal, Markdown for a pull request, JUnit XML.

Names that come from outside are escaped in each. In JUnit, "too few pairs" and whatever is
undecided are errors, because most CI systems show a skipped test as green.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final

import pandas as pd
from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from results import wording
from results.comparison import Change, Comparison
from results.gate import METRICS, Cell, change, change_words
from results.tables import markdown_table
from results.wording import NONE, escape_markdown

SIGNS: Final = {
    "improved": "▲",
    "worse": "✗",
    "no difference shown": "=",
    "too few pairs": "?",
    "not judged": "·",
}
CHANGE_HEADINGS: Final = ("lock", "fault", "verdict", "base: broke", "new: broke", "what it means")
CELL_HEADINGS: Final = ("lock", "fault", "number", "base", "new", "change", "pairs", "p", "verdict")
CAPTION: Final = (
    "Base and new: median over pairs. Change: Hodges-Lehmann estimate of new against base with its "
    "95 % interval. p: one-sided, for being worse, corrected for all rows (Holm). Worse: p < 0.05, "
    "at least 10 %, at least the floor, and seen again in a second measurement."
)
SHOWN_CAPTION: Final = (
    "Change of the medians; the interval is a bootstrap over 20 blocks of time within each run."
)


def markdown(made: Comparison) -> str:
    """For a comment on a pull request."""
    title = {"regress": "Lockbench regress", "compare": "Lockbench compare"}[made.kind]
    parts = [
        f"### {title}: {made.ending}",
        f"**{escape_markdown(made.headline)}.**",
        f"base: {escape_markdown(made.base)}; new: {escape_markdown(made.new)}",
        *([markdown_table(change_grid(made.changes))] if made.changes else ["No verdict changed."]),
    ]
    if made.cells:
        caption = CAPTION if made.kind == "regress" else SHOWN_CAPTION
        parts += [markdown_table(cell_grid(made.cells)), escape_markdown(caption)]
    parts += [f"- {escape_markdown(note)}" for note in made.notes]
    if made.repeat:
        parts.append(f"Repeat with:\n\n    {made.repeat}")
    return "\n\n".join(parts) + "\n"


def drawn(made: Comparison) -> list[RenderableType]:
    """The same tables for a terminal."""
    tables: list[RenderableType] = []
    if made.changes:
        tables.append(_table(change_grid(made.changes), "Verdicts that changed", ""))
    if made.cells:
        caption = CAPTION if made.kind == "regress" else SHOWN_CAPTION
        tables.append(_table(cell_grid(made.cells), "Numbers", caption))
    return tables


def _table(frame: pd.DataFrame, title: str, caption: str) -> RenderableType:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD)
    table.caption, table.caption_justify = caption, "left"
    for name in frame.columns:
        table.add_column(Text(str(name)), overflow="fold")
    for row in frame.itertuples(index=False, name=None):
        table.add_row(*[Text(str(value)) for value in row])
    return table


def change_grid(changes: Sequence[Change]) -> pd.DataFrame:
    """One row per verdict that changed."""
    rows = [
        [c.lock, c.fault, c.verdict, c.base, c.new, f"{c.direction}: {c.words}"] for c in changes
    ]
    return pd.DataFrame(rows, columns=list(CHANGE_HEADINGS))


def cell_grid(cells: Sequence[Cell]) -> pd.DataFrame:
    """One row per number."""
    return pd.DataFrame([_row(cell) for cell in cells], columns=list(CELL_HEADINGS))


def _row(cell: Cell) -> list[str]:
    metric = METRICS[cell.metric]
    p = cell.p_worse_corrected
    return [
        cell.lock,
        cell.fault,
        metric.words,
        _value(cell.base, metric.unit),
        _value(cell.new, metric.unit),
        change(cell),
        str(cell.pairs),
        NONE if p is None else f"{p:.3f}" if p >= 0.001 else "< 0.001",
        f"{SIGNS[cell.word]} {cell.words}",
    ]


def _value(value: float | None, unit: str) -> str:
    if value is None:
        return NONE
    if unit == "ms":
        return f"{wording.ms(value)} ms"
    return f"{wording.rate(value)}/s" if unit == "/s" else wording.seconds(value)


def junit(made: Comparison) -> str:
    """One test case for the verdicts of all, one for every number that was judged."""
    judged = [cell for cell in made.cells if cell.word != "not judged"]
    failed = sum(cell.word == "worse" for cell in judged) + (made.ending == "safety")
    errors = sum(cell.word == "too few pairs" for cell in judged)
    open_ = made.ending in {"bench", "inconclusive"}
    suite = ET.Element(
        "testsuite",
        name=f"lockbench {made.kind}",
        tests=str(len(judged) + 1),
        failures=str(failed),
        errors=str(errors + open_),
    )
    verdicts = ET.SubElement(suite, "testcase", classname="lockbench", name="verdicts")
    if made.ending == "safety":
        ET.SubElement(verdicts, "failure", message=_xml(made.headline)).text = _xml(made.repeat)
    elif open_:
        ET.SubElement(verdicts, "error", message=_xml(made.headline)).text = _xml(made.repeat)
    for cell in judged:
        case = ET.SubElement(
            suite,
            "testcase",
            classname=_xml(f"lockbench.{cell.lock}.{cell.fault}"),
            name=METRICS[cell.metric].words,
        )
        kind = {"worse": "failure", "too few pairs": "error"}.get(cell.word)
        words = f"{cell.words}: {change_words(cell)}"
        if kind is not None:
            ET.SubElement(case, kind, message=_xml(words)).text = _xml(made.repeat)
        else:
            ET.SubElement(case, "system-out").text = _xml(words)
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _xml(text: str) -> str:
    """XML has no way to write most control characters."""
    return "".join(c if c.isprintable() or c in "\n\t" else "?" for c in text)
