"""Draws a case over time. One Vega-Lite description per chart gives the SVG of the page and the one
beside the Markdown.

What a colour says, a shape, a dash or a word says too. Every series is one path, so a chart has
some ten kilobytes whatever it shows. The page maps the few colours used here to those of its theme.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final

import pandas as pd

from lockbench.report.timeline import ROLES, Timeline
from lockbench.results import wording

Spec = dict[str, Any]

CAN_DRAW: Final = find_spec("vl_convert") is not None
NOT_DRAWN: Final = "charts are not drawn here: pip install 'lockbench[charts]'"
MISSING: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="30" viewBox="0 0 480 30">'
    f'<text x="0" y="20" font-size="14" fill="#333333">{NOT_DRAWN}</text></svg>'
)

VEGA_LITE: Final = "6.4"
WIDTH, HEIGHT = 400, 150
STRIP_HEIGHT: Final = 34
# Colours that people with any colour vision tell apart (Okabe and Ito), and the greys of paper.
BLUE, ORANGE, RED, PURPLE = "#0072b2", "#e69f00", "#d55e00", "#b0548a"
INK, LINES, PAPER = "#333333", "#dddddd", "#ffffff"
QUANTILES: Final = {
    "p50": ("p50_ms", BLUE, [1, 0]),
    "p90": ("p90_ms", PURPLE, [6, 3]),
    "p99": ("p99_ms", RED, [2, 2]),
    "max": ("max_ms", INK, [8, 3, 2, 3]),
}
OUTCOME_STYLE: Final = {
    "granted": (BLUE, [1, 0], "circle"),
    "refused": (ORANGE, [6, 3], "diamond"),
    "unknown": (RED, [2, 2], "cross"),
}
ROLE_WORDS: Final = {
    "own": "own keys (uncontended)",
    "contended": "contended keys (waiting in the queue included)",
}
HOW_TO_READ: Final = (
    "Faults are tinted, with dashed edges and their names. Operations are put into bins by when "
    "they were due to start, latencies run from there, and nothing is left out. Latency by "
    "outcome: a thick bar runs from the smallest to the largest latency of the granted in a bin, "
    "the mark across it is their median where n carries one (20 or more); a thin bar with ◆ at its "
    "largest stands for the refused, ✚ at the upper edge for unknown outcomes, which have no "
    "latency. Quantiles over time are drawn where the n of a bin carries them: p50 from 20, p90 "
    "from 100, p99 from 1,000 on; the maximum always. Below the rate: one-second windows with a "
    "grant (thin line) and without any (block)."
)
CONFIG: Final[Spec] = {
    "background": PAPER,
    "font": "system-ui, sans-serif",
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "domainColor": INK, "tickColor": INK,
        "gridColor": LINES, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
    },
    "legend": {
        "labelColor": INK, "labelFontSize": 12, "title": None, "orient": "top", "symbolSize": 150,
        "symbolStrokeWidth": 2, "offset": 18,
    },
    "aria": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Chart:
    """``name`` is a file name without suffix; ``caption`` says what is drawn, with n."""

    name: str
    title: str
    caption: str
    spec: Spec

    def svg(self) -> str:
        """On white paper, by itself."""
        return svg(self.spec)


def svg(spec: Spec) -> str:
    """A Vega-Lite description drawn on white paper; without the extra a sentence in its place."""
    if not CAN_DRAW:
        return MISSING
    import vl_convert

    return slim(vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE))


def charts(line: Timeline, windows: Sequence[tuple[float, float, int]]) -> list[Chart]:
    """All charts of a case that have something to show. ``windows`` are (begin s, end s, grants) on
    contended keys, which the availability is counted by."""
    made = [_latency(line, role) for role in ROLES if _any(line.fine, role)]
    role = "contended" if _any(line.bins, "contended") else "own"
    if _any(line.bins, role):
        made += [_over_time(line, role), _rate(line, role, windows)]
    return made


def _any(bins: pd.DataFrame, role: str) -> bool:
    return bool((bins["role"] == role).any())


def _latency(line: Timeline, role: str) -> Chart:
    bins = line.fine[line.fine["role"] == role]
    layers: list[Spec] = []
    for outcome, width in (("granted", 3.0), ("refused", 1.2)):
        of = bins[bins["outcome"] == outcome]
        layers += _ranges(of, OUTCOME_STYLE[outcome][0], width)
    granted = bins[bins["outcome"] == "granted"]
    layers += _ticks(granted.dropna(subset=["p50_ms"]))
    refused = bins[bins["outcome"] == "refused"]
    layers += _points(_middle(refused), refused["max_ms"], "refused")
    unknown = bins[bins["outcome"] == "unknown"]
    layers += _points(_middle(unknown), None, "unknown")
    n = {o: int(bins.loc[bins["outcome"] == o, "count"].sum()) for o in OUTCOME_STYLE}
    caption = (
        f"Acquire on {ROLE_WORDS[role]}: "
        f"{', '.join(f'{count:,} {outcome}' for outcome, count in n.items())}; "
        f"bins of {line.fine_s:.3g} s."
    )
    spec = _chart([*_shading(line), *layers], line, "latency, ms", log=True)
    return Chart(f"latency-{role}", f"Latency by outcome, {role} keys", caption, spec)


def _over_time(line: Timeline, role: str) -> Chart:
    granted = line.bins[(line.bins["role"] == role) & (line.bins["outcome"] == "granted")]
    values = []
    for name, (column, _, _) in QUANTILES.items():
        for begin, end, at in _with_gaps(granted, column, line.bin_s):
            values += [{"t": begin, "v": at, "s": name}, {"t": end, "v": at, "s": name}]
    caption = (
        f"Granted acquires on {ROLE_WORDS[role]}: {int(granted['count'].sum()):,}; bins of "
        f"{line.bin_s:.3g} s with {_least_most(granted['count'])} each."
    )
    drawn = {value["s"] for value in values if value["v"] is not None}
    styles = {n: (colour, dash) for n, (_, colour, dash) in QUANTILES.items() if n in drawn}
    layers = [*_shading(line), _lines([v for v in values if v["s"] in drawn], styles)]
    spec = _chart(layers, line, "latency, ms", log=True)
    return Chart("quantiles", f"Quantiles over time, {role} keys", caption, spec)


def _rate(line: Timeline, role: str, windows: Sequence[tuple[float, float, int]]) -> Chart:
    values = []
    total = {}
    for outcome in OUTCOME_STYLE:
        of = line.bins[(line.bins["role"] == role) & (line.bins["outcome"] == outcome)]
        total[outcome] = int(of["count"].sum())
        rates = rates_of(of, line)
        if outcome == "granted" or total[outcome]:
            values += [{"t": t, "v": v, "s": outcome} for pair in rates for t, v in pair]
    styles = {o: (c, d) for o, (c, d, _) in OUTCOME_STYLE.items() if o == "granted" or total[o]}
    rate = _chart([*_shading(line), _lines(values, styles)], line, "acquires per second")
    without = sum(grants == 0 for _, _, grants in windows)
    caption = (
        f"Acquires on {ROLE_WORDS[role]}: "
        f"{', '.join(f'{count:,} {outcome}' for outcome, count in total.items())}; "
        f"bins of {line.bin_s:.3g} s."
    )
    if not windows:
        return Chart("rate", f"Rate, {role} keys", caption, rate)
    caption += f" Seconds without a grant: {without} of {len(windows)}."
    strip = _strip(line, windows)
    rate["encoding"]["x"]["axis"] = {"labels": False, "title": None, "grid": False}
    spec = {"vconcat": [_bare(rate), _bare(strip)], "spacing": 6, "config": CONFIG}
    return Chart("rate", f"Rate and availability, {role} keys", caption, spec)


def _strip(line: Timeline, windows: Sequence[tuple[float, float, int]]) -> Spec:
    layers: list[Spec] = _shading(line, label=False)
    for has, width, colour in ((True, 3.0, BLUE), (False, 16.0, INK)):
        values: list[Spec] = []
        for begin, end in _runs((b, e) for b, e, grants in windows if (grants > 0) == has):
            values += _stroke((begin, 0), (end, 0))
        if values:
            layers.append(_path(values, colour, width, cap="butt"))
    spec = _chart(layers, line, "", height=STRIP_HEIGHT)
    spec["encoding"]["y"] |= {"axis": None, "scale": {"domain": [-1, 1]}}
    return spec


def _chart(
    layers: list[Spec], line: Timeline, title: str, *, log: bool = False, height: int = HEIGHT
) -> Spec:
    x = {
        "field": "t",
        "type": "quantitative",
        "scale": {"domain": [0, line.end_s], "nice": False},
        "axis": {"title": "seconds since the first operation", "grid": False},
    }
    y: Spec = {
        "type": "quantitative",
        "scale": {"zero": True},
        "axis": {"title": title, "tickCount": 5},
    }
    if log:
        data = [row for layer in layers for row in layer["data"]["values"]]
        y = logarithmic([row["v"] for row in data if row.get("v") is not None], title)
    return {
        "width": WIDTH,
        "height": height,
        "layer": layers,
        "encoding": {"x": x, "y": {"field": "v", **y}},
        "config": CONFIG,
    }


def logarithmic(values: Sequence[float], title: str) -> Spec:
    """An axis from power of ten to power of ten around every value above zero."""
    known = [value for value in values if value > 0]
    low = math.floor(math.log10(min(known, default=1)))
    high = max(math.ceil(math.log10(max(known, default=10))), low + 1)
    steps = (1, 2, 5) if high - low < 3 else (1,)
    ticks = [10.0**power * step for power in range(low, high) for step in steps]
    return {
        "type": "quantitative",
        "scale": {"type": "log", "domain": [10.0**low, 10.0**high], "nice": False},
        # From thousandths of a millisecond to minutes in plain numbers.
        "axis": {"title": title, "values": [*ticks, 10.0**high], "format": "~g"},
    }


def _bare(spec: Spec) -> Spec:
    return {name: value for name, value in spec.items() if name != "config"}


def _shading(line: Timeline, *, label: bool = True) -> list[Spec]:
    """Faults as a tint with edges and their names, so that it needs no colour."""
    if not line.shades:
        return []
    spans = [(shade.name, *shade.within(line.end_s)) for shade in line.shades]
    values = [{"t": begin, "e": end, "name": name} for name, begin, end in spans]
    edges = [{"t": at} for value in values for at in (value["t"], value["e"])]
    both = {"y": {"value": 0}, "y2": {"value": "height"}}
    layers: list[Spec] = [
        {
            "data": {"values": values},
            "mark": {"type": "rect", "color": ORANGE, "opacity": 0.16},
            "encoding": {"x2": {"field": "e"}, **both},
        },
        {
            "data": {"values": edges},
            "mark": {"type": "rule", "color": INK, "strokeDash": [2, 3], "strokeWidth": 0.8},
            "encoding": both,
        },
    ]
    if label:
        # Of several that begin together one is named: names over each other cannot be read.
        named = {value["t"]: value["name"] for value in reversed(values)}
        texts = [{"t": t, "name": name} for t, name in named.items()]
        layers.append(
            {
                "data": {"values": texts},
                "mark": {
                    "type": "text", "align": "left", "baseline": "bottom", "dy": -2,
                    "color": INK, "fontSize": 11, "fontStyle": "italic",
                },
                "encoding": {"text": {"field": "name"}, "y": {"value": 0}},
            }
        )  # fmt: skip
    return layers


def _ranges(bins: pd.DataFrame, colour: str, width: float) -> list[Spec]:
    values: list[Spec] = []
    for t, low, high in zip(_middle(bins), bins["min_ms"], bins["max_ms"], strict=True):
        values += _stroke((t, low), (t, high))
    return [_path(values, colour, width)] if values else []


def _ticks(bins: pd.DataFrame) -> list[Spec]:
    values: list[Spec] = []
    for begin, end, at in zip(bins["begin_s"], bins["end_s"], bins["p50_ms"], strict=True):
        values += _stroke((begin, at), (end, at))
    return [_path(values, INK, 1.6)] if values else []


def _points(at: Sequence[float], of: Iterable[float] | None, outcome: str) -> list[Spec]:
    """At their values, or at the upper edge where there are none."""
    colour, _, shape = OUTCOME_STYLE[outcome]
    heights: Iterable[float | None] = [None] * len(at) if of is None else of
    values = [{"t": t, "v": v} for t, v in zip(at, heights, strict=True)]
    if not values:
        return []
    mark = {"type": "point", "shape": shape, "color": colour, "filled": True, "size": 45}
    layer: Spec = {"data": {"values": values}, "mark": mark}
    if of is None:
        layer["encoding"] = {"y": {"value": 5}}
    return [layer]


def _stroke(begin: tuple[float, float], end: tuple[float, float]) -> list[Spec]:
    """A straight line, after which the pen is lifted."""
    return [*({"t": t, "v": v} for t, v in (begin, end)), {"t": end[0], "v": None}]


def _path(values: list[Spec], colour: str, width: float, cap: str = "square") -> Spec:
    """One path through the values in their order, lifted where ``v`` is missing. A range of one
    value has no length; the square cap keeps it visible."""
    return {
        "data": {"values": [{**value, "i": i} for i, value in enumerate(values)]},
        "mark": {
            "type": "line", "color": colour, "strokeWidth": width, "strokeCap": cap,
            "invalid": "break-paths-filter-domains", "clip": False,
        },
        "encoding": {"order": {"field": "i"}},
    }  # fmt: skip


def _lines(values: list[Spec], styles: Mapping[str, tuple[str, list[int]]]) -> Spec:
    def scale(of: int) -> Spec:
        return {"domain": list(styles), "range": [style[of] for style in styles.values()]}

    return {
        "data": {"values": [{**value, "i": i} for i, value in enumerate(values)]},
        "mark": {"type": "line", "strokeWidth": 1.8, "invalid": "break-paths-filter-domains"},
        "encoding": {
            "order": {"field": "i"},
            "color": {"field": "s", "scale": scale(0)},
            "strokeDash": {"field": "s", "scale": scale(1)},
        },
    }


def _middle(bins: pd.DataFrame) -> list[float]:
    return ((bins["begin_s"] + bins["end_s"]) / 2).tolist()


def _with_gaps(
    bins: pd.DataFrame, column: str, bin_s: float
) -> Iterable[tuple[float, float, float | None]]:
    """(begin, end, value); an empty bin lifts the pen."""
    before: float | None = None
    for begin, end, value in zip(bins["begin_s"], bins["end_s"], bins[column], strict=True):
        if before is not None and begin - before > bin_s / 2:
            yield before, begin, None
        yield begin, end, None if wording.is_missing(value) else float(value)
        before = end


def rates_of(bins: pd.DataFrame, line: Timeline) -> list[tuple[tuple[float, float], ...]]:
    """A staircase over the whole time, with its zeros: (begin s, per s) and (end s, per s) of each
    step."""
    count = dict(
        zip((bins["begin_s"] / line.bin_s).round().astype(int), bins["count"], strict=True)
    )
    steps: list[tuple[tuple[float, float], ...]] = []
    for number in range(int(line.end_s / line.bin_s) + 1):
        begin, end = number * line.bin_s, min((number + 1) * line.bin_s, line.end_s)
        if end > begin:
            rate = float(count.get(number, 0)) / (end - begin)
            steps.append(((begin, rate), (end, rate)))
    return steps


def _runs(windows: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Windows next to each other become one."""
    merged: list[tuple[float, float]] = []
    for begin, end in windows:
        if merged and begin - merged[-1][1] < 1e-6:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((begin, end))
    return merged


def _least_most(counts: pd.Series[int]) -> str:
    if counts.empty:
        return "none"
    return f"{int(counts.min()):,} to {int(counts.max()):,}"


NOISE: Final = re.compile(
    r' (?:role|class|aria-[a-z]+|pointer-events|xmlns:xlink|version)="[^"]*"'
    r'| (?:opacity|stroke-opacity|fill-opacity)="1"| stroke-miterlimit="10"'
)
EMPTY_PATH: Final = re.compile(r'<path(?: [a-z-]+="[^"]*")* d="M0,0h0v0h0Z"(?: [a-z-]+="[^"]*")*/>')
LONG_NUMBER: Final = re.compile(r"(\d\.\d\d)\d+(?=[,LMHVhvlmZ\")])")


def slim(svg: str) -> str:
    """The same picture without what only scripts would read, places to a hundredth of a unit."""
    head, start, body = svg.partition(">")
    body = EMPTY_PATH.sub("", NOISE.sub("", body))
    return NOISE.sub("", head) + start + LONG_NUMBER.sub(r"\1", body)
