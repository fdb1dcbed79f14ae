"""Dated results of many nights as one page that informs and judges nothing.

Other days and other machines differ by more than most regressions, so no colour, no threshold and
no exit code hangs on these lines. A night whose numbers were void leaves a gap.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any, Final

from results import wording
from results.cases import NO_FAULT, Case, fault_of, in_order, is_published, lock_of
from results.gate import METRICS, QUIET, value_of

WIDTH, HEIGHT, MARGIN = 320, 60, 4
STYLE: Final = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;"
    "color-scheme:light dark}td,th{padding:.2rem .8rem;text-align:left}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
)


def night_of(cases: Sequence[Case], *, date: str, ending: str) -> dict[str, Any]:
    """One line of the record of nights: each lock's numbers without a fault."""
    numbers = {
        lock_of(case): {name: value_of(case, name) for name in QUIET}
        for case in cases
        if fault_of(case) == NO_FAULT and not is_published(case)
    }
    return {"date": date, "ending": ending, "numbers": numbers}


def page(nights: Sequence[Mapping[str, Any]]) -> str:
    """Self-contained HTML: one line per lock and number, the last nights and their endings."""
    rows = []
    for lock in in_order(lock for night in nights for lock in night.get("numbers") or {}):
        for name in QUIET:
            values = [((night.get("numbers") or {}).get(lock) or {}).get(name) for night in nights]
            known = [value for value in values if isinstance(value, int | float)]
            if known:
                rows.append(_row(lock, name, values, known))
    endings = "".join(
        f"<tr><td>{html.escape(str(night.get('date')))}</td>"
        f"<td>{html.escape(str(night.get('ending')))}</td></tr>"
        for night in reversed(nights[-30:])
    )
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><title>Lockbench: trends</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>"
        "<h1>Trends</h1><p>Nights on whatever machine ran them. They inform and judge nothing: "
        "only sides measured in turn in one job are judged.</p>"
        "<table><tr><th>lock<th>number<th>nights<th>lowest<th>median<th>highest<th>last<th></tr>"
        f"{''.join(rows)}</table><h2>Endings</h2><table>{endings}</table></html>\n"
    )


def _row(lock: str, name: str, values: Sequence[float | None], known: Sequence[float]) -> str:
    metric = METRICS[name]
    ordered = sorted(known)
    figures = (ordered[0], ordered[len(ordered) // 2], ordered[-1], known[-1])
    cells = "".join(f"<td class=n>{wording.ms(value)}</td>" for value in figures)
    return (
        f"<tr><td>{html.escape(lock)}</td><td>{metric.words}, {metric.unit}</td>"
        f"<td class=n>{len(known)}</td>{cells}<td>{_line(values, ordered[-1])}</td></tr>"
    )


def _line(values: Sequence[float | None], highest: float) -> str:
    """From zero, so that noise does not look like a cliff."""
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    dots = [
        (MARGIN + n * step, HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * value / highest)
        for n, value in enumerate(values)
        if value is not None
    ]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in dots)
    marks = "".join(
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='2' fill='currentColor'/>" for x, y in dots
    )
    return (
        f"<svg width={WIDTH} height={HEIGHT} role=img aria-label='{len(dots)} nights'>"
        f"<polyline points='{points}' fill=none stroke=currentColor />{marks}</svg>"
    )
