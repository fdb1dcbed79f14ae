"""A comparison for people and for CI: the terminal, Markdown for a pull request, JUnit XML.

Names that come from outside are escaped in each. In JUnit, "too few pairs" and whatever is
undecided are errors, because most CI systems show a skipped test as green.
"""

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Final

import pandas as pd

from lockbench.report.exports import csv_text
from lockbench.report.grid import Grid, texts
from lockbench.report.grid import markdown as grid_markdown
from lockbench.results import wording
from lockbench.results.comparison import MORE_OFTEN, Comparison
from lockbench.results.gate import METRICS, UNDECIDED, Cell, change, change_words
from lockbench.results.wording import NONE, escape_markdown, printable

SIGNS: Final = {
    "improved": "▲",
    "worse": "✗",
    "no difference shown": "=",
    "too few pairs": "?",
    "too noisy": "?",
    "missing more often": "?",
    "not judged": "·",
}
CHANGE_HEADINGS: Final = ("lock", "fault", "verdict", "base: broke", "new: broke", "what it means")
CELL_HEADINGS: Final = ("lock", "fault", "number", "base", "new", "change", "pairs", "p", "verdict")
CAPTION: Final = (
    "Base and new: median over pairs. Change: Hodges-Lehmann estimate of new against base with its "
    "95 % interval. p: one-sided, for being worse by more than 6 % (or the floor), corrected for "
    "all rows (Holm). Worse: p < 0.05, at least 10 %, and seen again in a second measurement. Too "
    "noisy: the interval still holds a slowdown of 20 %."
)
SHOWN_CAPTION: Final = (
    "Change of the medians. How far two runs of the same thing differ is not known from two runs, "
    "so there is no interval and no judgement."
)


def markdown(made: Comparison) -> str:
    """For a comment on a pull request."""
    title = {"regress": "Lockbench regress", "compare": "Lockbench compare"}[made.kind]
    parts = [
        f"### {title}: {', '.join(made.endings)}",
        f"**{escape_markdown(made.headline)}.**",
        f"base: {escape_markdown(made.base)}; new: {escape_markdown(made.new)}",
    ]
    if not made.changes:
        parts.append("No verdict changed.")
    for grid in grids(made):
        parts += grid_markdown(grid)[1:]
    parts += [f"- {escape_markdown(note)}" for note in made.notes]
    if made.repeat:
        parts.append(f"Repeat with:\n\n    {made.repeat}")
    return "\n\n".join(parts) + "\n"


def grids(made: Comparison) -> list[Grid]:
    """What changed among the verdicts, and every number; no table without a row."""
    changes = [
        [c.lock, c.fault, c.verdict, c.base, c.new, f"{c.direction}: {c.words}"]
        for c in made.changes
    ]
    caption = CAPTION if made.kind == "regress" else SHOWN_CAPTION
    both = (
        texts("verdict-changes", "Verdicts that changed", CHANGE_HEADINGS, changes),
        texts("cells", "Numbers", CELL_HEADINGS, map(_row, made.cells), caption),
    )
    return [grid for grid in both if grid.rows]


def csv(made: Comparison) -> str:
    """Every number, for a spreadsheet."""
    rows = [_row(cell) for cell in made.cells]
    return csv_text(pd.DataFrame(rows, columns=list(CELL_HEADINGS)))


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
    suite = ET.Element("testsuite", name=f"lockbench {made.kind}")
    kinds = {"safety": "failure", "bench": "error", "inconclusive": "error"}
    if any(change.direction == MORE_OFTEN for change in made.changes):
        kinds["regression"] = "failure"
    kind = next((kinds[ending] for ending in made.endings if ending in kinds), None)
    verdicts = ET.SubElement(suite, "testcase", classname="lockbench", name="verdicts")
    _tell(verdicts, kind, made.headline if kind else "", made.repeat)
    for cell in made.cells:
        if cell.word != "not judged":
            kind = {"worse": "failure", **dict.fromkeys(UNDECIDED, "error")}.get(cell.word)
            of = printable(f"lockbench.{cell.lock}.{cell.fault}")
            name = METRICS[cell.metric].words
            case = ET.SubElement(suite, "testcase", classname=of, name=name)
            _tell(case, kind, f"{cell.words}: {change_words(cell)}", made.repeat)
    for count, of in (("tests", "testcase"), ("failures", "*/failure"), ("errors", "*/error")):
        suite.set(count, str(len(suite.findall(of))))
    ET.indent(suite)
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _tell(case: ET.Element, kind: str | None, words: str, repeat: str) -> None:
    """What came of a test case; ``kind`` is the way in which it failed."""
    # XML has no way to write most control characters.
    if kind is not None:
        ET.SubElement(case, kind, message=printable(words)).text = printable(repeat)
    elif words:
        ET.SubElement(case, "system-out").text = printable(words)
