"""The pictures of a whole run: every case in its place, and nothing drawn of what is not known."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from lockbench.report.pictures import side_by_side, through_faults
from lockbench.report.source import Seen
from lockbench.report.timeline import COLUMNS, Shade, Timeline
from lockbench.results.documents import (
    CaseResult,
    PooledKinds,
    Quantiles,
    Spread,
    UndisturbedLock,
    made,
)
from tests.report.test_tables import case


def line(rates: list[int], fault: tuple[float, float] | None) -> Timeline:
    """A second for each number of grants on contended keys."""
    rows: list[dict[str, Any]] = [
        {"role": "contended", "outcome": "granted", "begin_s": s, "end_s": s + 1, "count": n}
        for s, n in enumerate(rates)
        if n
    ]
    bins = pd.DataFrame(rows, columns=list(COLUMNS))
    shades = () if fault is None else (Shade("kill", (), *fault),)
    return Timeline(float(len(rates)), 1.0, 1.0, bins, bins, shades)


def seen(
    lock: str, fault: str, rates: list[int], at: tuple[float, float] | None = None, **more: Any
) -> Seen:
    found = made(CaseResult, case(lock, fault, **more))
    return Seen(1, found, line(rates, at), (), {}, (), ())


def places(*cases: Seen) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """(lock, column) → the layers of a small picture, without its frame."""
    chart = through_faults(cases)
    assert chart is not None
    assert chart.svg().startswith("<svg")
    return {
        (name["data"]["values"][0]["lock"], column): place["layer"][1:]
        for name, *small in (row["hconcat"] for row in chart.spec["vconcat"])
        for column, place in enumerate(small)
    }


def drawn(layers: list[dict[str, Any]]) -> list[float]:
    """The rate over time."""
    return [
        row["v"] for layer in layers for row in layer["data"]["values"] if row["kind"] == "rate"
    ]


def test_each_case_stands_in_its_place_and_an_outage_is_seen() -> None:
    found = places(
        seen("etcd", "none", [0, 50, 50, 50]),
        seen("redlock", "kill", [0, 100, 100, 0, 0, 80], (3.0, 5.0)),
        seen("etcd", "kill", [0, 50, 50, 100, 50, 50], (3.0, 5.0)),
    )
    # From the first second with a grant; the last value stands to the end.
    assert drawn(found["etcd", 0]) == [0, 1, 1, 1, 1]
    assert drawn(found["redlock", 1]) == [0, 1, 1, 0, 0, 0.8, 0.8]
    assert drawn(found["etcd", 1])[3] == 1.5, "what is above is drawn at the edge"
    assert found["redlock", 0] == [], "it had no such case"
    kinds = [layer["data"]["values"][0]["kind"] for layer in found["redlock", 1]]
    assert kinds == ["fault", "edge", "one", "rate"]
    assert [layer["data"]["values"][0]["kind"] for layer in found["etcd", 0]] == ["one", "rate"]


def test_every_picture_of_a_fault_stands_below_its_name() -> None:
    """What is drawn at an edge makes no frame wider than its neighbours."""
    chart = through_faults(
        [
            seen("etcd", "kill", [50, 50, 100, 50], (1.0, 4.0)),
            seen("etcd", "none", [50, 50, 50, 50]),
            seen("redlock", "none", [50, 50]),
        ]
    )
    assert chart is not None
    # Three parts in each of two rows: the lock's name and two frames.
    assert len(set(re.findall(r'<g transform="translate\(([\d.]+),0\)', chart.svg()))) == 3


def test_void_figures_are_dashed() -> None:
    found = places(seen("etcd", "none", [50, 50]), seen("redlock", "none", [50], numbers="void"))
    dashes = {lock: layers[-1]["mark"]["strokeDash"] for (lock, _), layers in found.items()}
    assert dashes == {"etcd": [1, 0], "redlock": [2, 2]}


def test_what_was_never_granted_before_the_fault_is_not_drawn() -> None:
    assert through_faults([seen("etcd", "kill", [0, 0, 50], (1.0, 2.0))]) is None
    assert through_faults([]) is None


def test_locks_stand_side_by_side_with_the_range_of_their_cases() -> None:
    def lock(name: str, p50: float | None, p99: float | None) -> UndisturbedLock:
        response = Quantiles(count=2000, p50=p50, p99=p99, p999=None, max=99.0, iqr=None)
        none = Spread(count=0)
        kinds = PooledKinds(response, response, response)
        return UndisturbedLock(name, 3, kinds, none, none, none, response)

    ranges = [{"acquire": Spread(3, 2.0, 1.0, 4.0)}, {"acquire": Spread(2, 2.0, 1.0, 4.0)}, {}]
    chart = side_by_side([lock("a", 2.0, 9.0), lock("b", 3.0, None), lock("c", None, None)], ranges)
    assert chart is not None
    rows = chart.spec["data"]["values"]
    assert [(r["lock"], r["low"], r["p50"], r["high"], r["few"]) for r in rows] == [
        ("a", 1.0, 2.0, 4.0, False),
        ("b", 1.0, 3.0, 4.0, True),
    ]
    assert "p99" not in rows[1]
    assert chart.svg().startswith("<svg")
    assert side_by_side([], []) is None
