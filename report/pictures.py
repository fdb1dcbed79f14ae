"""Pictures of a whole run: locks side by side, and what each fault did to the rate of each lock.

Colour repeats what a shape, a tint with its edges or a word says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Final

from lockbench.report.charts import (
    BLUE,
    CONFIG,
    INK,
    LINES,
    ORANGE,
    RED,
    Chart,
    Spec,
    logarithmic,
    rates_of,
)
from lockbench.report.labels import flat_labels
from lockbench.report.source import Seen
from lockbench.report.timeline import Timeline
from lockbench.results.baseline import CASES_MIN
from lockbench.results.cases import has_numbers, in_order, is_published
from lockbench.results.documents import Spread, UndisturbedLock

SMALL_WIDTH, SMALL_HEIGHT = 118, 44
MOST: Final = 1.5  # of the rate before the fault; what is above is drawn there
NAME_WIDTH: Final = 150
CASES_MAX: Final = 120  # of one picture
BESIDE: Final = (
    "Acquire of an own key before any fault, response time. ●: p50 of all cases together, with the "
    "smallest and the largest of the cases; ◆: p99 where its n carries it. Hollow: fewer than "
    f"{CASES_MIN} cases."
)
THROUGH: Final = (
    "Grants per second of contended keys over the time of the case, in bins of a second or more, "
    "as a share of the median before the fault; the line across is 1, and what is above 1.5 is "
    "drawn there. Tinted: the fault. Dashed: the figures of the case are void."
)


def side_by_side(
    found: Sequence[UndisturbedLock], ranges: Sequence[Mapping[str, Spread]]
) -> Chart | None:
    """Latency of all locks; ``ranges`` are the p50 of the cases of each. None without any."""
    rows: list[Spec] = []
    for lock, of_cases in zip(found, ranges, strict=True):
        span = of_cases.get("acquire")
        if lock.response_ms is None or lock.response_ms.p50 is None:
            continue
        p50, p99 = lock.response_ms.p50, lock.response_ms.p99
        row: Spec = {"lock": lock.lock, "p50": p50, "low": p50, "high": p50, "few": True}
        if span is not None and span.min is not None and span.max is not None:
            row |= {
                "low": min(span.min, p50),
                "high": max(span.max, p50),
                "few": span.count < CASES_MIN,
            }
        rows.append(row | ({"p99": p99} if p99 is not None else {}))
    if not rows:
        return None
    x = logarithmic([row[name] for row in rows for name in ("low", "p99") if name in row], "ms")
    filled = {"condition": {"test": "datum.few", "value": "transparent"}, "value": BLUE}
    spec: Spec = {
        "width": 620,
        "height": {"step": 20},
        "data": {"values": rows},
        "encoding": {
            "y": {"field": "lock", "type": "nominal", "sort": None, "axis": {"title": None}}
        },
        "layer": [
            {
                "mark": {"type": "rule", "color": BLUE, "strokeWidth": 2},
                "encoding": {"x": {"field": "low", **x}, "x2": {"field": "high"}},
            },
            {
                "mark": {"type": "point", "shape": "circle", "size": 60, "stroke": BLUE},
                "encoding": {"x": {"field": "p50", **x}, "fill": filled},
            },
            {
                "transform": [{"filter": "isValid(datum.p99)"}],
                "mark": {"type": "point", "shape": "diamond", "size": 60, "stroke": RED,
                         "fill": RED},
                "encoding": {"x": {"field": "p99", **x}},
            },
        ],
        "config": CONFIG,
    }  # fmt: skip
    return Chart("side-by-side", "Latency of all locks", BESIDE, spec)


def through_faults(seen: Sequence[Seen]) -> Chart | None:
    """The rate of each lock through each fault as small multiples; None where there is nothing to
    draw, or too much for one picture. Of several cases in a place the first is drawn."""
    ordinary = [one for one in seen if not is_published(one.case)]
    places: dict[tuple[str, str], list[Spec]] = {}
    for label, one in zip(flat_labels([one.case for one in ordinary]), ordinary, strict=True):
        rows = [] if one.line is None else list(_small(one.line))
        if rows:
            place = (label, one.case.fault)
            places.setdefault(place, _layers(rows, dashed=not has_numbers(one.case)))
    if not places or len(ordinary) > CASES_MAX:
        return None
    locks = in_order(lock for lock, _ in places)
    faults = [fault for fault in in_order(one.case.fault for one in ordinary)
              if any((lock, fault) in places for lock in locks)]  # fmt: skip
    lines = [
        {
            "spacing": 6,
            "bounds": "flush",  # else a line at an edge moves the frames beside it
            "hconcat": [
                _name(lock),
                *(
                    _place(places.get((lock, fault), []), fault if lock == locks[0] else "")
                    for fault in faults
                ),
            ],
        }
        for lock in locks
    ]
    spec: Spec = {
        "vconcat": lines,
        "spacing": 6,
        "config": CONFIG | {"title": {"color": INK, "fontSize": 12, "fontWeight": "normal"}},
    }
    return Chart("through-faults", "The rate through each fault", THROUGH, spec)


def _name(lock: str) -> Spec:
    return {
        "width": NAME_WIDTH,
        "height": SMALL_HEIGHT,
        "data": {"values": [{"lock": lock}]},
        "mark": {"type": "text", "align": "left", "color": INK, "fontSize": 12},
        "encoding": {"x": {"value": 0}, "text": {"field": "lock"}},
    }


def _place(layers: Sequence[Spec], title: str) -> Spec:
    frame: Spec = {"data": {"values": [{}]}, "mark": {"type": "rect", "filled": False,
                   "stroke": LINES}, "encoding": {
                       "x": {"value": 0}, "x2": {"value": SMALL_WIDTH},
                       "y": {"value": 0}, "y2": {"value": SMALL_HEIGHT}}}  # fmt: skip
    size = {"width": SMALL_WIDTH, "height": SMALL_HEIGHT}
    return {**size, "layer": [frame, *layers], **({"title": title} if title else {})}


def _layers(rows: Sequence[Spec], *, dashed: bool) -> list[Spec]:
    end_s = next(row["e"] for row in rows if row["kind"] == "one")
    x: Spec = {
        "field": "t", "type": "quantitative", "axis": None,
        "scale": {"nice": False, "domain": [0, end_s]},
    }  # fmt: skip
    y: Spec = {
        "field": "v", "type": "quantitative", "axis": None, "scale": {"domain": [0, MOST]},
    }  # fmt: skip
    ends: Spec = {"y": {"value": 0}, "y2": {"value": SMALL_HEIGHT}}
    drawn: tuple[tuple[str, Spec, Spec], ...] = (
        (
            "fault",
            {"type": "rect", "color": ORANGE, "opacity": 0.25},
            {"x2": {"field": "e"}, **ends},
        ),
        ("edge", {"type": "rule", "color": INK, "strokeDash": [2, 3], "strokeWidth": 0.8}, ends),
        ("one", {"type": "rule", "color": LINES}, {"x2": {"field": "e"}, "y": y}),
        (
            "rate",
            {"type": "line", "interpolate": "step-after", "color": BLUE, "strokeWidth": 1.5,
             "strokeDash": [2, 2] if dashed else [1, 0]},
            {"y": y},
        ),
    )  # fmt: skip
    return [
        {"data": {"values": of}, "mark": mark, "encoding": {"x": x, **encoding}}
        for kind, mark, encoding in drawn
        if (of := [row for row in rows if row["kind"] == kind])
    ]


def _small(line: Timeline) -> Iterator[Spec]:
    """The rows of one small picture; none where nothing was granted before the fault."""
    of = line.bins[(line.bins["role"] == "contended") & (line.bins["outcome"] == "granted")]
    steps = rates_of(of, line)
    first_s = min((shade.begin_s for shade in line.shades), default=line.end_s)
    # The contended load begins later than the case.
    before = [rate for (_, rate), (end, _) in steps if end <= first_s and rate]
    if not before:
        return
    usual = median(before)
    yield {"kind": "one", "t": 0.0, "e": line.end_s, "v": 1.0}
    for shade in line.shades:
        begin, end = shade.within(line.end_s)
        yield {"kind": "fault", "t": begin, "e": end}
        yield from ({"kind": "edge", "t": at} for at in (begin, end))
    points = [*((begin, rate) for (begin, rate), _ in steps), (line.end_s, steps[-1][0][1])]
    for t, rate in points:
        yield {"kind": "rate", "t": t, "v": min(rate / usual, MOST)}
