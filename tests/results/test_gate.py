"""The gate on data whose answer is known: how often it cries wolf, how often it sleeps."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from results.documents import CaseResult
from results.gate import Cell, judge_pairs, suspects, value_of
from results.statistics import needed_pairs
from tests.results.measured_noise import case, pairs

PAIRS = 10
QUIET = ("acquire-p50", "handover-p50", "throughput")


def night(
    rng: np.random.Generator, locks: int, *, latency: float = 1.0, throughput: float = 1.0
) -> list[Cell]:
    """What ``lockbench regress`` does: the declared pairs, and as many again of what is suspected.
    Only the first lock is slower."""

    def measured(lock: str) -> list[tuple[CaseResult, CaseResult]]:
        if lock != "lock-0":
            return pairs(rng, PAIRS)
        return pairs(rng, PAIRS, latency=latency, throughput=throughput)

    found = {(f"lock-{n}", "none"): measured(f"lock-{n}") for n in range(locks)}
    cells = judge_pairs(found, PAIRS)
    again = suspects(cells)
    for lock, fault in again:
        found[lock, fault] += measured(lock)
    # Nothing measured, nothing changed: most nights need not be judged twice.
    return judge_pairs(found, PAIRS) if again else cells


def test_fewer_than_one_in_a_hundred_comparisons_of_a_thing_with_itself_is_an_alarm() -> None:
    rng = np.random.default_rng(20)
    alarms = sum(any(c.word == "worse" for c in night(rng, 1)) for _ in range(1000))
    assert alarms <= 10, alarms


@pytest.mark.timeout(300)
def test_fewer_than_one_night_in_a_hundred_is_a_false_alarm() -> None:
    """Four locks, twelve cells, corrected together."""
    rng = np.random.default_rng(21)
    alarms = sum(any(c.word == "worse" for c in night(rng, 4)) for _ in range(400))
    assert alarms <= 4, alarms


@pytest.mark.parametrize(
    ("metric", "latency", "throughput"),
    [("acquire-p50", 1.2, 1.0), ("handover-p50", 1.2, 1.0), ("throughput", 1.0, 0.8)],
)
def test_a_slowdown_of_a_fifth_is_found(metric: str, latency: float, throughput: float) -> None:
    """Each number by itself, though a slower lock shows in all of them."""
    rng = np.random.default_rng(22)
    found = 0
    for _ in range(300):
        cells = night(rng, 1, latency=latency, throughput=throughput)
        found += next(c for c in cells if c.metric == metric).word == "worse"
    assert found >= 0.95 * 300, found


def test_without_the_second_measurement_it_would_cry_wolf_more_often() -> None:
    """The reason for it: what the first ten pairs alone would have called worse."""
    rng = np.random.default_rng(23)
    alarms = 0
    for _ in range(500):
        first = judge_pairs({("lock", "none"): pairs(rng, PAIRS)}, declared=0)
        alarms += any(cell.word == "worse" for cell in first)
    assert alarms > 0.01 * 500


def same(count: int, *, base: float, new: float) -> list[tuple[CaseResult, CaseResult]]:
    """Pairs without noise but for what keeps them from being ties."""
    return [
        (case(base, 3.0, 200.0), case(new * (1 + n / 1e4), 3.0, 200.0)) for n in range(1, count + 1)
    ]


def word(count: int, declared: int, **values: float) -> Cell:
    return judge_pairs({("lock", "none"): same(count, **values)}, declared)[0]


def test_too_few_pairs_are_no_pass_and_say_how_many_are_needed() -> None:
    assert needed_pairs(3) == 6
    cell = word(5, 5, base=1.0, new=2.0)
    assert cell.words == "too few pairs, need n ≥ 6"
    assert word(6, 4, base=1.0, new=2.0).word == "worse"


def test_a_suspicion_is_measured_again_before_it_counts() -> None:
    first = judge_pairs({("lock", "none"): same(10, base=1.0, new=1.3)}, 10)
    assert first[0].words == "too few pairs, need n ≥ 15"
    assert suspects(first) == [("lock", "none")]
    assert word(20, 10, base=1.0, new=1.3).word == "worse"
    # It did not come back: the same ten, and ten that are the same on both sides.
    both = same(10, base=1.0, new=1.3) + same(10, base=1.0, new=0.8)
    assert judge_pairs({("lock", "none"): both}, 10)[0].word == "no difference shown"


def test_a_small_change_is_no_regression_however_sure() -> None:
    cell = word(40, 20, base=1.0, new=1.05)
    assert cell.p_worse_corrected is not None
    assert cell.p_worse_corrected < 0.001
    assert cell.word == "no difference shown"


def test_a_change_below_the_floor_is_no_regression_however_large() -> None:
    assert word(40, 20, base=0.010, new=0.020).word == "no difference shown"
    assert word(40, 20, base=0.100, new=0.200).word == "worse"


def test_faster_is_improved_and_more_throughput_is_too() -> None:
    assert word(10, 10, base=1.3, new=1.0).word == "improved"
    quicker = [(case(1.0, 3.0, 200.0), case(1.0, 3.0, 260.0 + n)) for n in range(10)]
    cells = {c.metric: c for c in judge_pairs({("lock", "none"): quicker}, 10)}
    assert cells["throughput"].word == "improved"
    assert cells["acquire-p50"].word == "no difference shown"


def test_the_pairs_needed_grow_with_the_cells() -> None:
    """Six pairs carry three cells and not thirty."""
    slow = {("lock-0", "none"): same(6, base=1.0, new=2.0)}
    more = {(f"lock-{n}", "none"): same(6, base=1.0, new=1.0) for n in range(1, 10)}
    assert judge_pairs(slow, 4)[0].word == "worse"
    assert judge_pairs(slow | more, 4)[0].words == "too few pairs, need n ≥ 10"


def test_void_numbers_take_the_pair_out() -> None:
    of = same(8, base=1.0, new=2.0)
    of[0] = (of[0][0], replace(of[0][1], numbers="void"))
    cells = judge_pairs({("lock", "none"): of}, 4)
    assert {cell.pairs for cell in cells} == {7}
    assert value_of(of[0][1], "throughput") is None
