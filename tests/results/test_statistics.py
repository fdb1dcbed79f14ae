"""Intervals and bounds against answers that are known from elsewhere or by construction."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from results.statistics import (
    blocks_of,
    bootstrap_ratio,
    holm,
    needed_pairs,
    paired_effect,
    share,
)


@pytest.mark.parametrize(("cells", "pairs"), [(1, 5), (3, 6), (12, 8), (30, 10)])
def test_the_pairs_needed(cells: int, pairs: int) -> None:
    """The smallest p of n pairs is 2^-n: one pair fewer could never pass the correction."""
    assert needed_pairs(cells) == pairs
    effect = paired_effect([1.0] * pairs, [1.0 + n / 10 for n in range(1, pairs + 1)])
    assert effect is not None
    assert effect.p_higher == pytest.approx(2.0**-pairs)
    assert effect.p_higher * cells < 0.05
    assert 2 * effect.p_higher * cells > 0.05


def test_holm_against_the_example_of_a_textbook() -> None:
    """Holm 1979: 0.01, 0.04, 0.03, 0.005 become 0.03, 0.06, 0.06, 0.02."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_keeps_the_family_below_five_percent() -> None:
    rng = np.random.default_rng(1)
    wrong = sum(min(holm(list(rng.uniform(size=12)))) < 0.05 for _ in range(4000))
    assert wrong <= 0.05 * 4000 + 3 * math.sqrt(4000 * 0.05 * 0.95)


def test_the_interval_of_pairs_covers_the_truth() -> None:
    """95 % of intervals hold the true ratio of 1.1, and they are not so wide that they say
    nothing."""
    rng = np.random.default_rng(2)
    inside, widths = 0, []
    for _ in range(1000):
        base = rng.lognormal(0.0, 0.3, 10)  # what both of a pair have in common
        effect = paired_effect(
            base * rng.lognormal(0, 0.1, 10), base * rng.lognormal(0, 0.1, 10) * 1.1
        )
        assert effect is not None
        assert effect.low is not None
        assert effect.high is not None
        inside += effect.low <= 1.1 <= effect.high
        widths.append(effect.high / effect.low)
    assert 935 <= inside <= 968, inside
    # Student's interval would be exp(2 * 2.26 * 0.141 / sqrt(10)) wide.
    assert np.median(widths) == pytest.approx(math.exp(2 * 2.26 * 0.141 / math.sqrt(10)), rel=0.05)


def test_five_pairs_carry_no_interval_and_none_is_made_up() -> None:
    effect = paired_effect([1.0] * 5, [1.1, 1.2, 1.3, 1.4, 1.5])
    assert effect is not None
    assert (effect.low, effect.high) == (None, None)
    assert paired_effect([], []) is None


def test_pairs_that_are_all_the_same_show_nothing() -> None:
    effect = paired_effect([2.0] * 8, [2.0] * 8)
    assert effect is not None
    assert (effect.ratio, effect.p_higher, effect.p_lower) == (1.0, 1.0, 1.0)


def test_k_of_n_against_the_published_table() -> None:
    """Clopper and Pearson 1934: 1 of 10 lies between 0.0025 and 0.4450."""
    found = share(1, 10)
    assert (found.low, found.high) == pytest.approx((0.0025, 0.4450), abs=5e-5)


def test_zero_of_n_is_the_rule_of_three() -> None:
    assert share(0, 1000).high == pytest.approx(3 / 1000, rel=0.01)
    assert share(0, 3).high == pytest.approx(1 - 0.05 ** (1 / 3))  # where 3/n would say 100 %
    assert share(3, 3).low == pytest.approx(0.05 ** (1 / 3))
    assert (share(0, 0).low, share(0, 0).high) == (0.0, 1.0)


def dependent(rng: np.random.Generator, count: int, keep: float) -> NDArray[np.float64]:
    """Latencies whose logarithm remembers: an autoregression with variance 0.3 squared."""
    noise = rng.normal(0.0, 0.3 * math.sqrt(1 - keep * keep), count)
    values = np.empty(count)
    last = rng.normal(0.0, 0.3)
    for n in range(count):
        last = keep * last + noise[n]
        values[n] = last
    return np.exp(values)


def coverage(blocks: int | None) -> float:
    """How many of 60 intervals of two runs of the same thing hold the ratio 1. None: every
    operation is a block, which is the mistake."""
    rng = np.random.default_rng(3)
    inside = 0
    for _ in range(60):
        sides = []
        for _side in range(2):
            values = dependent(rng, 400, 0.9)
            sides.append(blocks_of(values, blocks or len(values)))
        found = bootstrap_ratio(sides[0], sides[1])
        assert found is not None
        inside += found[0] <= 1.0 <= found[1]
    return inside / 60


def test_blocks_hold_what_single_operations_pretend() -> None:
    """Operations in a run are not independent; resampling them one by one claims far too much."""
    assert coverage(20) >= 0.89
    assert coverage(None) <= 0.60


def test_too_few_blocks_carry_no_interval() -> None:
    few = [np.array([1.0, 2.0])] * 9
    assert bootstrap_ratio(few, few) is None
    assert bootstrap_ratio([np.array([])] * 20, [np.array([1.0])] * 20) is None


def test_a_shift_between_two_runs_is_inside_its_interval() -> None:
    rng = np.random.default_rng(4)
    base, new = rng.lognormal(0, 0.2, 2000), rng.lognormal(0, 0.2, 2000) * 1.5
    found = bootstrap_ratio(blocks_of(base), blocks_of(new))
    assert found is not None
    assert found[0] < 1.5 < found[1]
    assert found[1] - found[0] < 0.1
