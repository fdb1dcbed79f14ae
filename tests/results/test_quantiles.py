from __future__ import annotations

import numpy as np
import pytest

from lockbench.results.documents import Quantiles
from lockbench.results.quantiles import P50, P99, P999, carries, needed, quantiles, rank


def test_a_quantile_is_a_value_that_was_measured() -> None:
    # 500 fast and 500 slow: an interpolated median would be 500.5, which nobody had.
    values = np.array([1] * 500 + [1000] * 500)
    found = quantiles(values)
    assert found.p50 == 1
    assert found.p99 == 1000
    assert found.max == 1000


def test_of_the_numbers_1_to_n_the_quantile_is_its_rank() -> None:
    values = np.random.default_rng(1).permutation(np.arange(1, 10_001))
    found = quantiles(values)
    assert (found.p50, found.p99, found.p999, found.max) == (5000, 9900, 9990, 10000)
    assert found.iqr == 7500 - 2500
    assert found.count == 10_000


@pytest.mark.parametrize(("permille", "count"), [(P50, 20), (P99, 1000), (P999, 10_000)])
def test_a_quantile_needs_ten_values_beyond_it(permille: int, count: int) -> None:
    assert needed(permille) == count
    assert carries(count, permille)
    assert not carries(count - 1, permille)


def test_what_n_does_not_carry_is_none() -> None:
    few, enough = quantiles(np.arange(999)), quantiles(np.arange(1000))
    assert few.p50 == 499
    assert few.p99 is None
    assert few.max == 998
    assert enough.p99 == 989
    assert enough.p999 is None


def test_nothing_has_no_quantiles() -> None:
    found = quantiles(np.array([], np.int64), 1e6)
    assert found == Quantiles(p50=None, p99=None, p999=None, max=None, count=0, iqr=None)


def test_units() -> None:
    assert quantiles(np.full(20, 2_500_000), 1e6).p50 == 2.5


def test_rank_agrees_with_the_definition_where_floats_would_not() -> None:
    for count in range(1, 3000):
        for permille in (P50, P99, P999):
            at = rank(count, permille)
            # The smallest number of values that makes up at least the share.
            assert at * 1000 >= count * permille > (at - 1) * 1000


def test_one_that_was_given_up_early_moves_no_median() -> None:
    """Whatever it would have taken, the median lies between two neighbours."""
    values = np.concatenate([np.arange(100, 200), [5]])
    given_up = np.arange(101) == 100
    found = quantiles(values, 1.0, given_up)
    assert (found.p50, found.above) == (150, ()), "the highest that it can be"
    plain = np.sort(np.where(given_up, 10**9, values))
    assert found.p50 == plain[50]


def test_many_that_were_given_up_early_leave_a_lower_bound() -> None:
    values = np.concatenate([np.arange(100, 200), np.full(40, 5)])
    found = quantiles(values, 1.0, np.arange(140) >= 100)
    assert found.p50 == np.sort(values)[69]
    assert found.above == ("p50",)


def test_of_a_lower_bound_there_is_no_spread() -> None:
    values = np.array([1] * 600 + [2000] * 400)
    given_up = np.arange(1000)
    assert quantiles(values, 1.0, given_up >= 600).iqr is None
    above_p75 = quantiles(np.array([1] * 900 + [2000] * 100), 1.0, given_up >= 900)
    assert (above_p75.iqr, above_p75.above) == (0, ("p99", "max"))
