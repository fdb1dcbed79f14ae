"""Draws the experiment: what is found by how long it lasts, and what many machines cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from lockbench.report.charts import BLUE, CONFIG, INK, ORANGE, PURPLE, RED, Spec, svg
from lockbench.report.rate_chart import GREEN, SHAPES
from perf.clocks.experiment import Outcome, accused_wrongly, found, share
from perf.clocks.methods import METHODS

COLOURS: Final = (INK, ORANGE, PURPLE, GREEN, RED, BLUE)
NAMES: Final = [method.name for method in METHODS]
SIZE: Final = {"width": 270, "height": 170}
PADDING: Final = {"left": 5, "top": 5, "right": 70, "bottom": 5}

Grouped = Mapping[tuple[str, float], Sequence[Outcome]]


def draw(folder: Path, overlaps: Grouped, machines: Grouped) -> None:
    """``overlaps`` by fleet and overlap, ``machines`` by overlap and number of machines."""
    fleets = list(dict.fromkeys(fleet for fleet, _ in overlaps))
    frames = [_found(fleet, overlaps) for fleet in fleets]
    rows = [{"hconcat": frames[at : at + 2]} for at in range(0, len(frames), 2)]
    beside = [_accused(machines), _cost(machines)]
    for name, spec in (("overlap", {"vconcat": rows}), ("machines", {"hconcat": beside})):
        whole = {**spec, "padding": PADDING, "config": CONFIG}
        (folder / f"clocks-{name}.svg").write_text(svg(whole) + "\n")


def _found(fleet: str, overlaps: Grouped) -> Spec:
    rows = []
    for (of, overlap_ns), outcomes in overlaps.items():
        if of != fleet or not overlap_ns:
            continue
        for number, name in enumerate(NAMES):
            rows.append(_row(overlap_ns / 1e6, share(outcomes, number, found), name))
    x = {"title": "overlap, ms", "type": "log"}
    return _frame(f"Overlaps found, {fleet}", rows, x, {"title": "found, %", "domain": [0, 100]})


def _accused(machines: Grouped) -> Spec:
    rows = [
        _row(count, share(outcomes, number, accused_wrongly), name)
        for (kind, count), outcomes in machines.items()
        if kind == "control"
        for number, name in enumerate(NAMES)
    ]
    x = {"title": "machines", "type": "log"}
    y = {"title": "correct histories accused, %", "domain": [0, 100]}
    return _frame("False accusations, mixed fleet", rows, x, y)


def _cost(machines: Grouped) -> Spec:
    rows = []
    for (kind, count), outcomes in machines.items():
        if kind != "control":
            continue
        for number, name in enumerate(NAMES):
            spent = sorted(it.judged[number].seconds for it in outcomes)
            row = {"x": count, "s": name, "v": spent[len(spent) // 2]}
            rows.append({**row, "low": spent[0], "high": spent[-1]})
    x = {"title": "machines", "type": "log"}
    y = {"title": "processor time of a history, s", "type": "log"}
    return _frame("Cost, mixed fleet", rows, x, y)


def _row(x: float, share_: object, name: str) -> Spec:
    value, (low, high) = share_.value, share_.interval  # type: ignore[attr-defined]
    return {"x": x, "v": 100 * value, "low": 100 * low, "high": 100 * high, "s": name}


def _frame(title: str, rows: list[Spec], x: Spec, y: Spec) -> Spec:
    scale = {"domain": NAMES, "range": list(COLOURS)}
    legend = {"orient": "right", "labelLimit": 0}
    colour: Spec = {"field": "s", "type": "nominal", "scale": scale, "legend": legend}
    shapes = {"domain": NAMES, "range": list(SHAPES[: len(NAMES)])}
    shape = {**colour, "scale": shapes}

    def axis(name: str, asked: Spec) -> Spec:
        kind: Spec = {"type": asked.get("type", "linear"), "nice": False}
        if "domain" in asked:
            kind["domain"] = asked["domain"]
        drawn = {"title": asked["title"], "format": "~g", "grid": name != "x"}
        if kind["type"] == "log":
            powers = sorted({10.0**power for power in range(-6, 5)})
            drawn["values"] = powers
        return {"field": name, "type": "quantitative", "scale": kind, "axis": drawn}

    return {
        **SIZE,
        "title": {"text": title, "frame": "group"},
        "data": {"values": rows},
        "encoding": {"x": axis("x", x), "color": colour},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.12},
                "encoding": {"y": axis("low", y), "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 1.8}, "encoding": {"y": axis("v", y)}},
            {
                "mark": {"type": "point", "filled": True, "size": 45, "opacity": 1},
                "encoding": {"y": axis("v", y), "shape": shape},
            },
        ],
    }
