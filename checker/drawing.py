"""Draws what is wrong: lanes per client, holds, faults, the violation marked. One SVG a verdict.

Only the neighbourhood of the evidence is drawn, so a history of any length stays usable: at most
``ROWS_MAX`` operations and ``LANES_MAX`` clients, those of the evidence first. The page needs
nothing from outside; without JavaScript it is still a drawing, with it one can pan (drag), zoom
(wheel) and return (double click). ``figure`` is one drawing, for reports; ``page`` a document of
its own. What they look like is in the templates beside this file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Final

import numpy as np
from jinja2 import Environment, StrictUndefined

from lockbench.checker.analysis import Analysis
from lockbench.checker.rows import FOREVER, Rows
from lockbench.checker.verdict import Report, Verdict
from lockbench.checker.words import describe, operation
from lockbench.history.columns import History
from lockbench.history.op import NULL, F, Type

ROWS_MAX: Final = 1500
LANES_MAX: Final = 40
MARGIN: Final = 0.35  # of the evidence's span, on either side
WIDTH, LABELS, LANE, TOP = 1000, 160, 26, 44  # in the units of the drawing
TICKS: Final = 8
LINES: Final = frozenset({"ask", "unknown", "fail"})  # drawn as lines, all else as rectangles


def _asset(name: str) -> str:
    return (resources.files(__package__) / name).read_text(encoding="utf-8")


STYLE: Final = _asset("drawing.css")
SCRIPT: Final = _asset("drawing.js")
LEGEND: Final = _asset("legend.html")


@dataclass(frozen=True)
class _View:
    """The window that is drawn, and how times and clients become places."""

    analysis: Analysis
    begin: int
    end: int
    rows: Rows
    lanes: Mapping[int, int]
    marked: frozenset[int]

    def x(self, time: int) -> float:
        return WIDTH * (min(max(time, self.begin), self.end) - self.begin) / (self.end - self.begin)

    def y(self, row: int) -> int:
        return TOP + LANE * self.lanes[int(self.analysis.history.process[row])]

    def mark(self, row: int) -> str:
        return " marked" if row in self.marked else ""

    @property
    def height(self) -> int:
        return TOP + LANE * len(self.lanes) + 8


@dataclass(frozen=True, slots=True)
class _Shape:
    """A line or a rectangle, in the units of the drawing. ``look``: its classes, ``kind`` first."""

    look: str
    x: float
    y: int
    width: float
    title: str
    height: int = 0

    @property
    def kind(self) -> str:
        return self.look.split()[0]


def page(drawn: Sequence[tuple[str, History, Report]]) -> str:
    """A document with every violation of some histories, given with their names."""
    return _rendered(
        "drawing.html.j2",
        style=STYLE,
        legend=LEGEND,
        script=SCRIPT,
        drawn=[
            (name, report, [figure(history, n, v) for n, v in report.verdicts.items()])
            for name, history, report in drawn
        ],
    )


def figure(history: History, name: str, verdict: Verdict) -> str:
    """One verdict drawn, or nothing where there is no operation to show. ``STYLE`` and ``SCRIPT``
    belong on the page once."""
    rows = sorted({int(str(e["row"])) for e in verdict.evidence if "row" in e})
    if not rows or verdict.result == "valid":
        return ""
    view = _view(Analysis.of(history), rows)
    origin = int(history.invoke_ns[0])
    begin, end = view.begin - origin, view.end - origin
    return _rendered(
        "figure.html.j2",
        name=name,
        verdict=verdict,
        shapes=_shapes(view),
        lines=LINES,
        clients=[(TOP + LANE * lane + 4, history.client(p)) for p, lane in view.lanes.items()],
        labels=LABELS,
        width=WIDTH,
        height=view.height,
        ticks=[
            (LABELS + WIDTH * i / TICKS, (begin + (end - begin) * i // TICKS) / 1e9)
            for i in range(TICKS)
        ],
        begin_s=begin / 1e9,
        end_s=end / 1e9,
    )


def _rendered(template: str, **values: object) -> str:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.from_string(_asset(template)).render(**values)


def _view(analysis: Analysis, marked: Sequence[int]) -> _View:
    history, links = analysis.history, analysis.links
    evidence = np.array(marked)
    times = [int(t) for t in history.invoke_ns[evidence]]
    times += [int(t) for t in history.complete_ns[evidence] if t != NULL]
    grants = analysis.grant_of[evidence]
    ends = analysis.promises.end[grants[grants >= 0]]
    times += ends[ends < FOREVER].tolist()
    low, high = min(times), max(times)
    margin = max(1, int((high - low) * MARGIN))
    begin, end = low - margin, high + margin
    done = np.where(history.complete_ns == NULL, history.invoke_ns, history.complete_ns)
    near = np.isin(history.key, history.key[evidence])
    near &= (history.invoke_ns <= end) & (done >= begin)
    near[evidence] = True
    rows = np.flatnonzero(near)
    if len(rows) > ROWS_MAX:
        # The nearest in the order of the history, so that the picture stays whole around it.
        middle = int(np.median(np.searchsorted(rows, evidence)))
        first = max(0, min(middle - ROWS_MAX // 2, len(rows) - ROWS_MAX))
        rows = np.union1d(rows[first : first + ROWS_MAX], evidence)
    # The holds under which something was done here, though they may have begun long before.
    rows = np.union1d(rows, links.acquire[links.under(rows)])
    lanes = _lanes(history, rows, evidence)
    shown = np.isin(history.process[rows], np.array(list(lanes)))
    return _View(analysis, begin, end, rows[shown], lanes, frozenset(marked))


def _lanes(history: History, rows: Rows, evidence: Rows) -> dict[int, int]:
    """Clients from top to bottom: those of the evidence, then the others as they appear."""
    order = dict.fromkeys([*history.process[evidence].tolist(), *history.process[rows].tolist()])
    return {process: lane for lane, process in enumerate(list(order)[:LANES_MAX])}


def _shapes(view: _View) -> Iterator[_Shape]:
    history, held = view.analysis.history, view.analysis.promises
    for fault in history.faults:
        healed = view.end if fault.heal_ns is None else fault.heal_ns[1]
        if fault.begin_ns[0] < view.end and healed > view.begin:
            span = (fault.begin_ns[0], healed)
            yield _rect("fault", view, span, describe(fault), y=0, height=view.height)
    holds = np.flatnonzero(np.isin(held.row, view.rows)).tolist()
    marked = [i for i in holds if int(held.row[i]) in view.marked]
    if len(marked) > 1:
        begin, end = int(held.start[marked].max()), int(held.end[marked].min())
        if begin < end:
            tall = view.height - TOP
            yield _rect("clash", view, (begin, end), "both held it", y=TOP - 8, height=tall)
    for i in holds:
        yield from _hold(view, i)
    for row in view.rows.tolist():
        yield _operation(view, row)


def _hold(view: _View, i: int) -> Iterator[_Shape]:
    """The promised part, and after it the time in which the holder still acted."""
    history, held = view.analysis.history, view.analysis.promises
    row = int(held.row[i])
    text = str(operation(view.analysis, row)["text"])
    y = view.y(row) - 8
    start, end = int(held.start[i]), int(held.end[i])
    if start < end:
        look = f"promised{view.mark(row)}"
        yield _rect(look, view, (start, min(end, view.end)), text, y=y, height=16)
    under = view.rows[view.analysis.links.acquire[view.rows] == row]
    acted = int(history.invoke_ns[under].max()) if len(under) else end
    if acted > end:
        title = f"{text}; still acting after the promise"
        yield _rect("unpromised", view, (max(start, end), acted), title, y=y, height=16)


def _operation(view: _View, row: int) -> _Shape:
    history = view.analysis.history
    begin, end, outcome = (
        int(history.invoke_ns[row]), int(history.complete_ns[row]), history.type[row],
    )  # fmt: skip
    title = str(operation(view.analysis, row)["text"])
    y = view.y(row)
    applied = int(history.applied_ns[row])
    if history.f[row] in {F.READ, F.WRITE, F.CAS, F.ADD, F.EFFECT} and applied != NULL:
        return _Shape(f"use{view.mark(row)}", view.x(applied), y - 5, 0.8, title, 10)
    kind = "unknown" if outcome == Type.INFO else "fail" if outcome == Type.FAIL else "ask"
    x = view.x(begin)
    width = max((WIDTH if end == NULL else view.x(end)) - x, 0.5)
    return _Shape(f"{kind}{view.mark(row)}", x, y + 10, width, title)


def _rect(
    look: str, view: _View, span: tuple[int, int], text: str, *, y: int, height: int
) -> _Shape:
    x = view.x(span[0])
    return _Shape(look, x, y, max(view.x(span[1]) - x, 0.5), text, height)
