"""Arrivals come at the declared rate, whoever serves them, and are counted when they come."""

from __future__ import annotations

import numpy as np
import pytest

from lockbench.workloads.arrivals import Arrivals

S = 1_000_000_000


def taken(arrivals: Arrivals, until_ns: int) -> np.ndarray:
    times = []
    while (at := arrivals.take()) < until_ns:
        times.append(at)
    return np.array(times)


@pytest.mark.parametrize("style", ["poisson", "constant"])
def test_the_rate_is_kept(style: str) -> None:
    times = taken(Arrivals(200, style, 5 * S, "seed"), 105 * S)
    assert times[0] >= 5 * S
    # Twenty thousand Poisson arrivals stray by 141 (one standard deviation).
    assert abs(len(times) - 20_000) < 5 * 141
    gaps = np.diff(times) / S
    spread = gaps.std() / gaps.mean()
    assert spread == pytest.approx(1 if style == "poisson" else 0, abs=0.05)


def test_two_constant_streams_do_not_march_in_step() -> None:
    one = taken(Arrivals(10, "constant", 0, "a", late=1 / 3), S)
    other = taken(Arrivals(10, "constant", 0, "b", late=2 / 3), S)
    assert np.abs(one[:, None] - other[None, :]).min() > S / 40


def test_what_nobody_took_is_due_all_the_same() -> None:
    arrivals = Arrivals(100, "constant", 0, "seed", late=0.5)
    assert arrivals.due(S) == 100
    assert [arrivals.take() for _ in range(3)] == [5_000_000, 15_000_000, 25_000_000]
    assert arrivals.due(S) == 100
    assert arrivals.due(2 * S) == 200


def test_what_was_taken_early_is_due_when_it_arrives() -> None:
    arrivals = Arrivals(10, "constant", 0, "seed", late=1)
    for _ in range(5):
        arrivals.take()
    assert arrivals.due(S // 4) == 2


def test_the_same_seed_draws_the_same_arrivals() -> None:
    one, other = (taken(Arrivals(50, "poisson", 0, "seed"), S) for _ in range(2))
    assert one.tolist() == other.tolist()
