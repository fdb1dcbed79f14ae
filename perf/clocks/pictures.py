"""Draws the experiment: what is found by how long it lasts, and what many machines cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lockbench.report.charts import BLUE, CONFIG, INK, ORANGE, PURPLE, RED, Spec, logarithmic, svg
from lockbench.report.rate_chart import GREEN, SHAPES
from perf.clocks.experiment import Outcome, Share, accused_wrongly, found, share
from perf.clocks.methods import METHODS

COLOURS: Final = (INK, ORANGE, PURPLE, GREEN, RED, BLUE)
NAMES: Final = [method.name for method in METHODS]
SIZE: Final = {"width": 270, "height": 170}
MANY: Final = len(NAMES)
PERCENT: Final[Spec] = {"scale": {"domain": [0, 100]}, "axis": {"format": "d"}}
PADDING: Final = {"left": 5, "top": 5, "right": 70, "bottom": 5}

Grouped = Mapping[tuple[str, float], Sequence[Outcome]]


def draw(folder: Path, overlaps: Grouped, controls: Mapping[int, Sequence[Outcome]]) -> None:
    """``overlaps`` by fleet and overlap; ``controls``, without any, by the number of machines."""
    fleets = list(dict.fromkeys(fleet for fleet, _ in overlaps))
    frames = [_found(fleet, overlaps) for fleet in fleets]
    rows = [{"hconcat": frames[at : at + 2]} for at in range(0, len(frames), 2)]
    beside = [_accused(controls), _cost(controls)]
    for name, spec in (("overlap", {"vconcat": rows}), ("machines", {"hconcat": beside})):
        whole = {**spec, "padding": PADDING, "config": CONFIG}
        (folder / f"clocks-{name}.svg").write_text(svg(whole) + "\n")


def _found(fleet: str, overlaps: Grouped) -> Spec:
    rows = [
        _row(overlap_ns / 1e6, share(outcomes, number, found), name)
        for (of, overlap_ns), outcomes in overlaps.items()
        if of == fleet and overlap_ns
        for number, name in enumerate(NAMES)
    ]
    return _frame(f"Overlaps found, {fleet}", rows, "overlap, ms", PERCENT | {"title": "found, %"})


def _accused(controls: Mapping[int, Sequence[Outcome]]) -> Spec:
    rows = [
        _row(count, share(outcomes, number, accused_wrongly), name)
        for count, outcomes in controls.items()
        for number, name in enumerate(NAMES)
    ]
    y = PERCENT | {"title": "correct histories accused, %"}
    return _frame("False accusations, mixed fleet", rows, "machines", y)


def _cost(controls: Mapping[int, Sequence[Outcome]]) -> Spec:
    rows: list[Spec] = []
    for count, outcomes in controls.items():
        for number, name in enumerate(NAMES):
            spent = sorted(it.judged[number].seconds for it in outcomes)
            row = {"x": count, "s": name, "v": statistics.median(spent)}
            rows.append({**row, "low": spent[0], "high": spent[-1]})
    y = logarithmic([row[end] for row in rows for end in ("low", "high")], "")
    y["axis"]["title"] = "processor time of a history, s"
    return _frame("Cost, mixed fleet", rows, "machines", y)


def _row(x: float, of: Share, name: str) -> Spec:
    low, high = of.interval
    return {"x": x, "v": 100 * of.value, "low": 100 * low, "high": 100 * high, "s": name}


def _frame(heading: str, rows: list[Spec], title: str, y: Spec) -> Spec:
    """``y`` is an axis and its scale, with its title."""
    y = {"type": "quantitative", **y}
    title_y = y.pop("title", y["axis"].get("title"))
    y["axis"] = y["axis"] | {"title": title_y}
    legend = {"orient": "right", "labelLimit": 0, "symbolOpacity": 1}
    colour: Spec = {"field": "s", "type": "nominal", "legend": legend}
    at = sorted({row["x"] for row in rows})
    scale_x = {"type": "log", "nice": False, "domain": [0.8 * at[0], 1.25 * at[-1]]}
    return {
        **SIZE,
        "title": {"text": heading, "frame": "group"},
        "data": {"values": rows},
        "encoding": {
            "x": {
                "field": "x",
                "type": "quantitative",
                "scale": scale_x,
                "axis": {"title": title, "values": at, "format": ",~r", "grid": False},
            },
            "y": {"field": "v", **y},
            "color": colour | {"scale": {"domain": NAMES, "range": list(COLOURS)}},
        },
        "layer": [
            {
                "mark": {"type": "rule", "strokeWidth": 1.2, "opacity": 0.5},
                "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 1.8}},
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {
                    "shape": colour | {"scale": {"domain": NAMES, "range": list(SHAPES[:MANY])}}
                },
            },
        ],
    }
