"""Draws all locks at stated rates: how long an acquire takes at how many per second.

A lock is told by its colour, the shape of its marks and, where there are many, the dashes of its
line. Locks that were measured under several settings (networks, clients, keys, holds) have a frame
for each, with the same axes. These are logarithmic, because locks differ by more than ten times.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from lockbench.report.charts import BLUE, CONFIG, INK, ORANGE, PURPLE, RED, Chart, Spec, logarithmic
from lockbench.report.rates import labels, locks_and_settings
from lockbench.results.cases import in_order
from lockbench.results.documents import LockRates

WIDTH, HEIGHT = 760, 250
SPACING: Final = 14
BESIDE_MAX: Final = 4  # frames in one row
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
    """All locks together; none where nothing was measured at a rate."""
    told = locks_and_settings(found)
    if len({lock for lock, _ in told}) == 1:
        told = [(label, "") for label in labels(found)]
    points = {name: list(_points(found, told, name)) for name in PANELS}
    drawn = {name: rows for name, rows in points.items() if rows}
    if not drawn:
        return []
    locks, settings = (in_order(pair[n] for pair in told) for n in (0, 1))
    rates = [row["x"] for rows in drawn.values() for row in rows]
    panels = []
    for start in range(0, len(settings), BESIDE_MAX):
        beside = settings[start : start + BESIDE_MAX]
        for name, rows in drawn.items():
            values = [row[end] for row in rows for end in ("low", "high")]
            axes = _Axes(locks, rates, values, PANELS[name])
            frames = [
                axes.frame(
                    [row for row in rows if row["in"] == setting],
                    setting if name == next(iter(drawn)) else "",
                    (WIDTH - SPACING * (len(beside) - 1)) / len(beside),
                    first=setting == beside[0],
                    last=name == list(drawn)[-1],
                )
                for setting in beside
            ]
            panels.append({"hconcat": frames, "spacing": SPACING, "bounds": "flush"})
    # Fonts may be wider where the picture is read than where it is drawn.
    padding = {"left": 5, "top": 5, "right": 70, "bottom": 5}
    spec: Spec = {"vconcat": panels, "spacing": SPACING, "padding": padding, "config": CONFIG}
    return [Chart("rates", "Response time at stated rates, all locks", CAPTION, spec)]


def _points(
    found: Sequence[LockRates], told: Sequence[tuple[str, str]], name: str
) -> Iterator[Spec]:
    """A row for each rate that was granted at all and whose quantile is carried."""
    for (lock, setting), one in zip(told, found, strict=True):
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
                "s": lock,
                "in": setting,
                "i": rate.offered_per_s.median,
                "void": bool(rate.why),
                "above": name in rate.response_ms.above,
            }


@dataclass(frozen=True)
class _Axes:
    """What all frames of a picture have in common. ``locks`` in the order of their colours."""

    locks: Sequence[str]
    x: Sequence[float]
    y: Sequence[float]
    title: str

    def frame(
        self, rows: list[Spec], heading: str, width: float, *, first: bool, last: bool
    ) -> Spec:
        """``first`` of its row, ``last`` of its column."""
        many = len(self.locks)
        colour = {"domain": self.locks, "range": [COLOURS[n % len(COLOURS)] for n in range(many)]}
        shape = {"domain": self.locks, "range": [SHAPES[n % len(SHAPES)] for n in range(many)]}
        dashes = [DASHES[n // len(COLOURS) % len(DASHES)] for n in range(many)]
        legend = {"orient": "right", "offset": 12, "symbolOpacity": 1, "labelLimit": 0}
        colours: Spec = {"field": "s", "type": "nominal", "scale": colour, "legend": legend}
        shapes = {"field": "s", "type": "nominal", "scale": shape, "legend": legend}
        dashed = {"field": "s", "scale": {"domain": self.locks, "range": dashes}, "legend": None}
        y = logarithmic(self.y, self.title)
        if not first:
            y["axis"] = y["axis"] | {"title": None, "labels": False}
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
        low, high = 0.85 * min(self.x), 1.15 * max(self.x)
        x: Spec = {
            "field": "x",
            "type": "quantitative",
            "scale": {"type": "log", "domain": [low, high], "nice": False},
            "axis": {"title": "granted per second" if last else None, "format": "~g",
                     "values": _ticks(low, high, width), "grid": True, "labels": last},
        }  # fmt: skip
        made: Spec = {
            "width": width,
            "height": HEIGHT,
            "data": {"values": rows},
            "layer": layers,
            "encoding": {"x": x, "y": {"field": "v", **y}},
        }
        return made | ({"title": {"text": heading, "frame": "group"}} if heading else {})


def _ticks(low: float, high: float, width: float) -> list[float]:
    """1, 2 and 5 of every decade; of a narrow frame the powers of ten."""
    steps = (1, 2, 5) if width == WIDTH else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [at for p in powers for step in steps if low <= (at := step * 10.0**p) <= high]
