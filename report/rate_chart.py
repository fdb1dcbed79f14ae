"""Draws all locks at stated rates in one frame: how long an acquire takes at how many per second.

A lock is told by its colour, the shape of its marks and, where there are many, the dashes of its
line. Both axes are logarithmic, because locks differ by more than ten times in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from report.charts import BLUE, CONFIG, INK, ORANGE, PURPLE, RED, Chart, Spec, logarithmic
from report.rates import labels
from results.documents import LockRates

WIDTH, HEIGHT = 760, 250
# No theme of the page maps another colour to one of these.
GREEN, GREY, BROWN = "#009e73", "#8a8a8a", "#a6761d"
COLOURS: Final = (BLUE, ORANGE, GREEN, RED, PURPLE, GREY, BROWN, INK)
SHAPES: Final = (
    "circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right",
    "triangle-left",
)  # fmt: skip
# Of the first, the next, … locks that have the same colour.
DASHES: Final = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3])
PANELS: Final = {"p50": "response p50, ms", "p99": "response p99, ms"}
CAPTION: Final = (
    "Granted per second against response time, from the intended start to the grant, of all rounds "
    "together; both axes are logarithmic. The band is where the figure of a repeated run is "
    "expected. Hollow: void. ↑: a lower bound. Without a mark: n does not carry the quantile."
)


def pictures(found: Sequence[LockRates]) -> list[Chart]:
    """All locks in one frame; none where nothing was measured at a rate."""
    points = {name: list(_points(found, name)) for name in PANELS}
    drawn = {name: rows for name, rows in points.items() if rows}
    if not drawn:
        return []
    rates = [row["x"] for rows in drawn.values() for row in rows]
    panels = [
        _panel(rows, PANELS[name], labels(found), rates, last=name == list(drawn)[-1])
        for name, rows in drawn.items()
    ]
    # Fonts may be wider where the picture is read than where it is drawn.
    padding = {"left": 5, "top": 5, "right": 70, "bottom": 5}
    spec: Spec = {"vconcat": panels, "spacing": 14, "padding": padding, "config": CONFIG}
    return [Chart("rates", "Response time at stated rates, all locks", CAPTION, spec)]


def _points(found: Sequence[LockRates], name: str) -> Iterator[Spec]:
    """A row for each rate that was granted at all and whose quantile is carried."""
    for label, one in zip(labels(found), found, strict=True):
        for rate in one.rates:
            x, v = rate.granted_per_s.median, getattr(rate.response_ms, name)
            bounds = getattr(rate, f"{name}_ms_range")
            if not x or not v or bounds is None:
                continue
            yield {
                "x": x,
                "v": v,
                "low": min(bounds.min, v),
                "high": max(bounds.max, v),
                "s": label,
                "i": rate.offered_per_s.median,
                "void": bool(rate.why),
                "above": name in rate.response_ms.above,
            }


def _panel(
    rows: list[Spec], title: str, series: Sequence[str], rates: Sequence[float], *, last: bool
) -> Spec:
    many = len(series)
    colour = {"domain": series, "range": [COLOURS[n % len(COLOURS)] for n in range(many)]}
    shape = {"domain": series, "range": [SHAPES[n % len(SHAPES)] for n in range(many)]}
    dashes = [DASHES[n // len(COLOURS) % len(DASHES)] for n in range(many)]
    legend = {"orient": "right", "offset": 12, "symbolOpacity": 1, "labelLimit": 0}
    colours: Spec = {"field": "s", "type": "nominal", "scale": colour, "legend": legend}
    shapes = {"field": "s", "type": "nominal", "scale": shape, "legend": legend}
    dashed = {"field": "s", "scale": {"domain": series, "range": dashes}, "legend": None}
    y = logarithmic([row[end] for row in rows for end in ("low", "high")], title)
    layers: list[Spec] = [
        {
            "mark": {"type": "area", "opacity": 0.16},
            "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}, "color": colours},
        },
        {
            "mark": {"type": "line", "strokeWidth": 1.8},
            "encoding": {"color": colours, "strokeDash": dashed, "order": {"field": "i"}},
        },
        *(
            {
                "transform": [{"filter": f"datum.void === {str(void).lower()}"}],
                "mark": {"type": "point", "filled": not void, "size": 60, "opacity": 1},
                "encoding": {"color": colours, "shape": shapes},
            }
            for void in (False, True)
        ),
        {
            "transform": [{"filter": "datum.above"}],
            "mark": {"type": "text", "text": "↑", "dy": -11, "fontSize": 13, "color": INK},
        },
    ]
    low, high = 0.85 * min(rates), 1.15 * max(rates)
    x: Spec = {
        "field": "x",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": {"title": "granted per second" if last else None, "values": _ticks(low, high),
                 "format": "~g", "grid": True, "labels": last},
    }  # fmt: skip
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "data": {"values": rows},
        "layer": layers,
        "encoding": {"x": x, "y": {"field": "v", **y}},
    }


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 of every decade."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [at for p in powers for step in (1, 2, 5) if low <= (at := step * 10.0**p) <= high]
