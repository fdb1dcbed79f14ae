"""Dated results of many nights as one page that informs and judges nothing.

Other days and other machines differ by more than most regressions, so no colour, no threshold and
no exit code hangs on these lines. A night whose numbers were void leaves a gap.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import Any

from report.charts import BLUE, Spec, svg
from report.columns import at
from report.page import asset, rendered
from results import wording
from results.cases import NO_FAULT, in_order, is_published, lock_of, number
from results.documents import CaseResult
from results.gate import METRICS, QUIET, value_of

WIDTH, HEIGHT = 320, 60


def night_of(cases: Sequence[CaseResult], *, date: str, ending: str) -> dict[str, Any]:
    """One line of the record of nights: each lock's numbers without a fault."""
    numbers = {
        lock_of(case): {name: value_of(case, name) for name in QUIET}
        for case in cases
        if case.fault == NO_FAULT and not is_published(case)
    }
    return {"date": date, "ending": ending, "numbers": numbers}


def page(nights: Sequence[Mapping[str, Any]]) -> str:
    """Self-contained HTML: one line per lock and number, the last nights and their endings."""
    numbers = [night.get("numbers") or {} for night in nights]
    rows = [
        _row(lock, name, values)
        for lock in in_order(lock for of in numbers for lock in of)
        for name in QUIET
        if any(values := [number(at(of.get(lock), name)) for of in numbers])
    ]
    return rendered("trends.html.j2", style=asset("style.css"), rows=rows, endings=nights[:-31:-1])


def _row(lock: str, name: str, values: Sequence[float | None]) -> dict[str, Any]:
    metric = METRICS[name]
    known = [value for value in values if value is not None]
    # Of two in the middle the higher: a number that was measured.
    figures = (min(known), median_high(known), max(known), known[-1])
    return {
        "lock": lock,
        "number": f"{metric.words}, {metric.unit}",
        "figures": [len(known), *map(wording.ms, figures)],
        "line": svg(_line(values)),
    }


def _line(values: Sequence[float | None]) -> Spec:
    """From zero, so that noise does not look like a cliff; a night without the number is a gap."""
    axis = {"type": "quantitative", "axis": None}
    return {
        "data": {"values": [{"night": n, "value": value} for n, value in enumerate(values)]},
        "width": WIDTH,
        "height": HEIGHT,
        "mark": {"type": "line", "point": {"color": BLUE}, "color": BLUE},
        "encoding": {
            "x": {"field": "night", "scale": {"nice": False}, **axis},
            "y": {"field": "value", "scale": {"zero": True}, **axis},
        },
        "config": {"background": None, "view": {"stroke": None}, "aria": False},
    }
