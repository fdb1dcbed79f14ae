"""Repeated runs agree where their ranges overlap, and how far they differ is told by kind."""

from __future__ import annotations

import math

import pytest

from lockbench.results.documents import Bounds
from perf.repeats import Repeated, deviations, figures
from tests.report.test_rates import at_rate, lock


def repeated(value: float, low: float, high: float) -> Repeated:
    return Repeated(value, Bounds(low, high))


def test_runs_agree_where_their_ranges_overlap() -> None:
    one = repeated(2.0, 1.5, 2.5)
    assert one.agrees(repeated(2.8, 2.4, 3.2))
    assert repeated(2.8, 2.4, 3.2).agrees(one)
    assert not one.agrees(repeated(3.0, 2.6, 3.4))
    assert not repeated(3.0, 2.6, 3.4).agrees(one)


def test_how_far_runs_differ_is_told_in_logarithms_and_over_locks() -> None:
    """Twice and half as much are equally far; what one run alone has says nothing."""
    of = {
        ("a", "p50"): [repeated(value, 0, 9) for value in (1.0, 4.0)],
        ("b", "p50"): [repeated(value, 0, 9) for value in (8.0, 8.0)],
        ("c", "p50"): [repeated(3.0, 0, 9)],
        ("c", "p99"): [repeated(3.0, 0, 9)],
    }
    # ln 4 apart: a variance of (ln 2)² · 2 with one degree of freedom; the other's is 0.
    ((kind, (sd, free)),) = deviations(of).items()
    assert (kind, free) == ("p50", 2)
    assert sd == pytest.approx(math.log(2))


def test_void_figures_are_left_out() -> None:
    found = list(
        figures([lock("etcd", at_rate(0.1, 3.0, None), at_rate(0.5, 7.0, 9.0, why=("x",)))])
    )
    assert [(kind, figure.value) for _, kind, figure in found] == [
        ("carried, per second", 812.0),
        ("p50 at 10 %, ms", 3.0),
    ]
