"""Intervals and bounds against answers that are known from elsewhere or by construction."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats

from lockbench.results.statistics import (
    holm,
    needed_pairs,
    p_beyond,
    p_more_often,
    paired_effect,
    share,
)


@pytest.mark.parametrize(("cells", "pairs"), [(1, 5), (3, 6), (12, 8), (30, 10)])
def test_the_pairs_needed(cells: int, pairs: int) -> None:
    """The smallest p of n pairs is 2^-n: one pair fewer could never pass the correction."""
    assert needed_pairs(cells) == pairs
    p = p_beyond([1.0] * pairs, [1.0 + n / 10 for n in range(1, pairs + 1)], 1.0, above=True)
    assert p == pytest.approx(2.0**-pairs)
    assert p * cells < 0.05
    assert 2 * p * cells > 0.05


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
    assert (effect.ratio, p_beyond([2.0] * 8, [2.0] * 8, 1.0, above=True)) == (1.0, 1.0)


def test_a_test_against_a_ratio_and_the_bound_say_the_same() -> None:
    """Beyond it at 2.5 % one-sided just where the 95 % interval lies beyond it."""
    rng = np.random.default_rng(6)
    for shift in (1.5, 1 / 1.5):
        base = rng.lognormal(0, 0.1, 10)
        new = base * shift * rng.lognormal(0, 0.1, 10)
        effect = paired_effect(base, new)
        assert effect is not None
        assert effect.low is not None
        assert effect.high is not None
        bound, outwards = (effect.low, 1.0001) if shift > 1 else (effect.high, 0.9999)
        above = shift > 1
        assert p_beyond(base, new, bound / outwards, above=above) <= 0.025
        assert p_beyond(base, new, bound * outwards, above=above) > 0.025
        assert p_beyond(base, new, 1.0, above=not above) > 0.9


@pytest.mark.parametrize("pairs", [5, 80, 98, 100])
def test_no_p_is_more_than_one(pairs: int) -> None:
    base = [1.0] * pairs
    faster = [1 / (2 + n / 100) for n in range(pairs)]
    assert p_beyond(base, faster, 1.0, above=True) == 1.0


def test_as_far_up_as_down_is_a_tie_whatever_its_logarithm() -> None:
    """Every sign tried, on ratios that are few and often the same."""
    rng = np.random.default_rng(7)
    for n in range(2, 10):
        base, new = rng.integers(1, 5, (2, n))
        far = np.maximum(base, new) / np.minimum(base, new)
        far, up = far[base != new], (new > base)[base != new]
        ranks = stats.rankdata(far)
        signs = np.array(list(product((0, 1), repeat=len(far))))
        p = np.mean(signs @ ranks >= ranks[up].sum())
        assert p_beyond(base, new, 1.0, above=True) == pytest.approx(p)


def test_k_of_n_against_the_published_table() -> None:
    """Clopper and Pearson 1934: 1 of 10 lies between 0.0025 and 0.4450."""
    found = share(1, 10)
    assert (found.low, found.high) == pytest.approx((0.0025, 0.4450), abs=5e-5)


def test_zero_of_n_is_the_rule_of_three() -> None:
    # 0.3, 9.5, 13.9 and 45.07 %: a bound is never rounded down, and no try makes it nothing.
    assert [share(0, n).at_most_percent for n in (1000, 30, 20, 5)] == [1, 10, 14, 46]
    assert (share(4, 4).at_most_percent, share(0, 0).at_most_percent) == (100, 100)
    assert share(0, 1000).high == pytest.approx(3 / 1000, rel=0.01)
    assert share(0, 3).high == pytest.approx(1 - 0.05 ** (1 / 3))  # where 3/n would say 100 %
    assert share(3, 3).low == pytest.approx(0.05 ** (1 / 3))
    assert (share(0, 0).low, share(0, 0).high) == (0.0, 1.0)


def test_what_was_never_reached_ranks_above_everything_and_has_no_size() -> None:
    found = paired_effect([1.0, math.inf], [math.inf, 1.0])
    assert found is not None
    assert found.ratio == 1.0, "one each way is neither"
    found = paired_effect([1.0] * 10, [1.0] * 6 + [math.inf] * 4)
    assert found is not None
    assert found.high == math.inf
    few, many = (p_beyond([1.0] * 10, [0.9] * n + [math.inf] * (10 - n), 1.0, above=True)
                 for n in (5, 1))  # fmt: skip
    assert many < 0.01 < few


@pytest.mark.parametrize(
    ("base", "new", "p"),
    [
        ((0, 10), (4, 10), 0.0433),  # 210 / 4845
        ((0, 10), (0, 10), 1.0),
        ((4, 10), (0, 10), 1.0),
        ((0, 0), (3, 3), 1.0),
        ((0, 3), (3, 3), 0.05),  # 1 / 20
    ],
)
def test_k_of_n_on_two_sides(base: tuple[int, int], new: tuple[int, int], p: float) -> None:
    assert p_more_often(*base, *new) == pytest.approx(p, abs=1e-4)


@pytest.mark.parametrize("n", [1, 2, 7, 40, 1000])
def test_a_share_s_bounds_are_those_of_clopper_and_pearson(n: int) -> None:
    for k in {0, 1, n // 3, n // 2, n - 1, n}:
        level = 0.95 if 0 < k < n else 0.9
        known = stats.binomtest(k, n).proportion_ci(level, method="exact")
        found = share(k, n)
        assert (found.low, found.high) == pytest.approx((known.low, known.high), abs=1e-10)
