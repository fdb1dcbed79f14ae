"""Dated results of many nights as one page that informs and judges nothing.

Other days and other machines differ by more than most regressions, so no threshold and no exit
code hangs on these lines. A night whose numbers were void leaves a gap. A vertical line is where a
number has changed its level (``lockbench.results.statistics.change_points``); what else was new
that night stands in the table of nights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_high
from typing import Any, Final

from lockbench.report.charts import BLUE, Spec, svg
from lockbench.report.page import asset, rendered
from lockbench.results import wording
from lockbench.results.cases import MUTEX, in_order, is_published, lock_of
from lockbench.results.documents import CaseResult, Machine, Night, Versions
from lockbench.results.errors import Ending
from lockbench.results.gate import METRICS, metrics_of, value_of
from lockbench.results.statistics import change_points

WIDTH, HEIGHT = 320, 60
WARNED: Final = frozenset({Ending.INCONCLUSIVE.word, Ending.BENCH.word})


def figures_of(cases: Sequence[CaseResult]) -> dict[str, dict[str, dict[str, float | None]]]:
    """Lock → fault (and workload, of cases of another than ``mutex``) → what is gated under it, of
    those that the cases carry."""
    found: dict[str, dict[str, dict[str, float | None]]] = {}
    for case in cases:
        if not is_published(case):
            known = {name: value_of(case, name) for name in metrics_of(case.fault)}
            carried = {name: value for name, value in known.items() if value is not None}
            if carried:
                workload = case.workload or MUTEX
                under = case.fault if workload == MUTEX else f"{case.fault}, {workload}"
                found.setdefault(lock_of(case), {})[under] = dict(carried)
    return found


def machine_in(machine: Machine) -> dict[str, str | None]:
    """What tells one machine from another."""
    facts = {name: getattr(machine, name) for name in ("cpu", "cores_usable", "kernel", "engine")}
    return {name: None if value is None else str(value) for name, value in facts.items()}


def versions_in(versions: Versions) -> dict[str, str | None]:
    """Libraries, and what images and clients of adapted libraries hold, as ``name: package``."""
    inside = {
        f"{name}: {package}": version
        for name, image in (versions.images or {}).items()
        for package, version in (image.versions or {}).items()
    }
    adapted = {
        f"{name}: {package}": version
        for name, client in (versions.clients or {}).items()
        for package, version in ((client.versions or client.pins) or {}).items()
    }
    return {**(versions.libraries or {}), **inside, **adapted}


def page(nights: Sequence[Night]) -> str:
    """Self-contained HTML: one line per lock, fault and number; the last nights, what was new in
    them and how they ended."""
    named = dict.fromkeys(
        (lock, fault, name)
        for night in nights
        for lock, by_fault in night.figures.items()
        for fault, values in by_fault.items()
        for name in values
        if name in METRICS
    )
    rows = [_row(lock, fault, name, nights) for lock, fault, name in named]
    told = [_night(before, night) for before, night in zip([None, *nights], nights, strict=False)]
    return rendered(
        "trends.html.j2", style=asset("style.css"), rows=rows, nights=list(reversed(told))[:30]
    )


def _row(lock: str, fault: str, name: str, nights: Sequence[Night]) -> dict[str, Any]:
    metric = METRICS[name]
    values = [night.figures.get(lock, {}).get(fault, {}).get(name) for night in nights]
    known = [(n, value) for n, value in enumerate(values) if value is not None]
    only = [value for _, value in known]
    changed = [known[at][0] for at in change_points(only)]
    # Of two in the middle the higher: a number that was measured.
    figures = (min(only), median_high(only), max(only), only[-1])
    return {
        "lock": lock,
        "fault": fault,
        "number": f"{metric.words}, {metric.unit}",
        "figures": [len(only), *map(wording.ms, figures)],
        "line": svg(_line(values, [night.date for night in nights], changed)),
        "changed": ", ".join(nights[at].date for at in changed),
    }


def _night(before: Night | None, night: Night) -> dict[str, Any]:
    new = [] if before is None else _differing(before.machine, night.machine)
    new += [] if before is None else _differing(before.versions, night.versions)
    return {
        "date": night.date,
        "endings": ", ".join(night.endings),
        "warned": bool(WARNED & set(night.endings)),
        "commit": (night.commit or "")[:12],
        "baseline": (night.baseline or "")[:12],
        "new": "; ".join(new),
        "void": "; ".join(night.void),
    }


def _differing(before: Mapping[str, str | None], now: Mapping[str, str | None]) -> list[str]:
    return [
        f"{name} {before.get(name) or 'none'} → {now.get(name) or 'none'}"
        for name in in_order([*before, *now])
        if before.get(name) != now.get(name)
    ]


def _line(values: Sequence[float | None], dates: Sequence[str], changed: Sequence[int]) -> Spec:
    """From zero, so that noise does not look like a cliff; a night without the number is a gap."""
    axis = {"type": "quantitative", "axis": None}
    ends = [{"night": n, "date": dates[n]} for n in sorted({0, len(dates) - 1})]
    where = {"x": {"field": "night", "scale": {"nice": False}, **axis}}
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "layer": [
            {
                "data": {"values": [{"night": n, "value": v} for n, v in enumerate(values)]},
                "mark": {"type": "line", "point": {"color": BLUE}, "color": BLUE},
                "encoding": {
                    **where,
                    "y": {"field": "value", "scale": {"zero": True}, **axis},
                },
            },
            {
                "data": {"values": [{"night": at} for at in changed]},
                "mark": {"type": "rule", "color": "#b42318", "strokeDash": [3, 2]},
                "encoding": where,
            },
            {
                "data": {"values": ends},
                "mark": {"type": "text", "fontSize": 9, "y": HEIGHT + 8},
                "encoding": {**where, "text": {"field": "date"}},
            },
        ],
        "config": {"background": None, "view": {"stroke": None}, "aria": False},
    }
