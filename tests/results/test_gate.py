"""The gate on data whose answer is known: how often it cries wolf, how often it sleeps.

Each job is played as ``lockbench regress`` does it: the declared pairs, and as many again of what
is suspected or too noisy. A few jobs of each kind in every run of the tests, thousands in the long
ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from msgspec import to_builtins
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import stats

from lockbench.evidence.regress_plan import turns
from lockbench.results import gate
from lockbench.results.documents import CaseResult, Quantiles
from lockbench.results.gate import Cell, judge_pairs, not_carried, suspects, value_of
from lockbench.results.statistics import needed_pairs
from tests.results.measured_noise import FIRST, RUNS, case

PAIRS = 10
BIAS = 0.03
NUMBERS = ("acquire-p50", "handover-p50", "throughput")
Logs = NDArray[np.float64]  # (pair, side, number)
Noise = Callable[[np.random.Generator, int], Logs]


def measured(rng: np.random.Generator, pairs: int) -> Logs:
    """Neighbours out of the measured runs, in a random order each, so that what the numbers of a
    run have in common and what neighbours have in common stays. Each stands for others like it; no
    two runs give the very same number."""
    first = rng.choice(FIRST, pairs)
    two = np.stack([RUNS[first], RUNS[first + 1]], axis=1)
    two = np.where(rng.integers(0, 2, (pairs, 1, 1)), two, two[:, ::-1])
    found: Logs = np.log(two) + rng.normal(0.0, 0.01, two.shape)
    return found


def drift(rng: np.random.Generator, pairs: int) -> Logs:
    """Everything takes half as long again at the end of the job."""
    return measured(rng, pairs) + in_time(np.linspace(0, math.log(1.5), 2 * pairs)[:, None], rng)


def memory(rng: np.random.Generator, pairs: int) -> Logs:
    """Runs resemble the run before: an autoregression that keeps nine tenths, and varies as what
    was measured does."""
    level = rng.normal(size=3)
    levels = np.empty((2 * pairs, 3))
    for at in range(2 * pairs):
        level = 0.9 * level + math.sqrt(1 - 0.9**2) * rng.normal(size=3)
        levels[at] = level
    return in_time(levels * np.log(RUNS).std(axis=0), rng)


def in_time(levels: Logs, rng: np.random.Generator) -> Logs:
    """Puts what runs had one after the other where their pair and side are."""
    pairs = len(levels) // 2
    found = np.empty((pairs, 2, levels.shape[1]))
    for at, (pair, side) in enumerate(turns(pairs, int(rng.integers(1 << 30)))):
        found[pair, side] = levels[at]
    return found


def noisy(first: float, last: float) -> Noise:
    """One half of the job is so many times noisier."""

    def made(rng: np.random.Generator, pairs: int) -> Logs:
        found = measured(rng, pairs)
        middle: Logs = found.mean(axis=1, keepdims=True)
        times = np.where(np.arange(pairs) < pairs // 2, first, last)
        return middle + (found - middle) * times[:, None, None]

    return made


def bias_of_runs(rng: np.random.Generator, pairs: int) -> Logs:
    """Every process is a little slower or faster, and every run has processes of its own."""
    found = measured(rng, pairs)
    return found + rng.normal(0.0, BIAS, found.shape)


def bias_of_sides(rng: np.random.Generator, pairs: int) -> Logs:
    """The same with one process a side, for all of a lock's runs."""
    return measured(rng, pairs) + rng.normal(0.0, BIAS, (1, 2, 3)) / math.sqrt(2)


NOISES: dict[str, Noise] = {
    "measured": measured,
    "drift": drift,
    "memory": memory,
    "first half noisier": noisy(3.0, 1.0),
    "second half noisier": noisy(1.0, 3.0),
    "bias of runs": bias_of_runs,
    "bias of sides": bias_of_sides,
}


def job(
    rng: np.random.Generator, noise: Noise, *, locks: int = 1, pairs: int = PAIRS,
    slower: Sequence[float] = (1.0, 1.0, 1.0),
) -> list[Cell]:  # fmt: skip
    """``slower`` multiplies the numbers of the first lock's new side."""
    whole = {}
    for n in range(locks):
        values = noise(rng, 2 * pairs)
        if n == 0:
            values[:, 1] += np.log(slower)
        both = np.exp(values).tolist()
        whole[f"lock-{n}", "none"] = [(case(*base), case(*new)) for base, new in both]
    cells = judge_pairs({key: of[:pairs] for key, of in whole.items()}, pairs)
    again = suspects(cells)
    if not again:  # nothing measured, nothing changed
        return cells
    return judge_pairs({k: of if k in again else of[:pairs] for k, of in whole.items()}, pairs)


def alarms(seed: int, jobs: int, noise: Noise, locks: int = 1) -> int:
    rng = np.random.default_rng(seed)
    return sum(any(c.word == "worse" for c in job(rng, noise, locks=locks)) for _ in range(jobs))


def found(seed: int, jobs: int, number: str, slowdown: float, pairs: int) -> int:
    """How often this number alone is found to be slower."""
    rng = np.random.default_rng(seed)
    factor = 1 - slowdown if number == "throughput" else 1 + slowdown
    slower = [factor if name == number else 1.0 for name in NUMBERS]
    count = 0
    for _ in range(jobs):
        cells = job(rng, measured, pairs=pairs, slower=slower)
        count += next(c for c in cells if c.metric == number).word == "worse"
    return count


@pytest.mark.parametrize("locks", [1, 4])
@pytest.mark.parametrize("name", NOISES)
def test_what_did_not_change_is_no_alarm(name: str, locks: int) -> None:
    """Too few jobs to tell 1 % from 2 %, and enough to tell it from 6 %."""
    jobs = 100 // locks
    count = alarms(20, jobs, NOISES[name], locks)
    assert stats.binomtest(count, jobs, 0.01, alternative="greater").pvalue > 0.01, count


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("locks", [1, 4])
@pytest.mark.parametrize("name", NOISES)
def test_at_most_one_job_in_a_hundred_is_a_false_alarm(name: str, locks: int) -> None:
    jobs = 2000 // locks
    assert alarms(21, jobs, NOISES[name], locks) <= 0.01 * jobs


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("slowdown", "pairs"), [(0.2, 10), (0.15, 20)])
def test_a_slowdown_is_found(number: str, slowdown: float, pairs: int) -> None:
    """Each number by itself, though a slower lock shows in all of them."""
    count = found(22, 60, number, slowdown, pairs)
    assert stats.binomtest(count, 60, 0.95, alternative="less").pvalue > 0.01, count


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize(("slowdown", "pairs"), [(0.2, 10), (0.15, 20)])
def test_a_slowdown_is_found_in_ninety_five_of_a_hundred_jobs(
    number: str, slowdown: float, pairs: int
) -> None:
    """Fifteen per cent of the noisiest number, in twenty pairs, are found in 94.9 of 100."""
    count = found(23, 1000, number, slowdown, pairs)
    assert stats.binomtest(count, 1000, 0.95, alternative="less").pvalue > 0.01, count


def test_without_the_margin_it_would_cry_wolf_more_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason for it: a bias between the sides is significant once there are pairs enough."""
    monkeypatch.setattr(gate.Metric, "margin", lambda *_: 0.0)
    assert alarms(31, 150, bias_of_sides, locks=4) > 2


def test_a_slowdown_that_noise_hides_is_not_called_no_difference() -> None:
    """Twice the measured noise on all of the job."""
    rng = np.random.default_rng(25)
    words = [
        next(c for c in job(rng, noisy(3.0, 3.0), slower=(1.25, 1.25, 1.0))).word for _ in range(60)
    ]
    assert words.count("no difference shown") <= 3
    assert "too noisy" in words


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
    # It did not come back: the same ten, and more that are the same on both sides.
    slow = same(10, base=1.0, new=1.3)
    twenty = judge_pairs({("lock", "none"): slow + same(10, base=1.0, new=1.0)}, 10)
    assert twenty[0].word == "too noisy"
    forty = judge_pairs({("lock", "none"): slow + same(30, base=1.0, new=1.0)}, 10)
    assert forty[0].word == "no difference shown"


def test_a_small_change_is_no_regression_however_sure() -> None:
    cell = word(40, 20, base=1.0, new=1.08)
    assert cell.p_worse_corrected is not None
    assert cell.p_worse_corrected < 0.001, "surely more than the margin"
    assert cell.word == "no difference shown"


def test_a_large_estimate_is_no_regression_while_its_bound_is_small() -> None:
    """Fifteen per cent in the middle, and the bound at the margin."""
    of = same(10, base=1.0, new=1.02) + same(10, base=1.0, new=1.30)
    (cell,) = [c for c in judge_pairs({("lock", "none"): of}, 10) if c.metric == "acquire-p50"]
    assert cell.change is not None
    assert cell.change > 0.10
    assert cell.low is not None
    assert cell.low < 0.06
    assert cell.word == "too noisy"


def with_p99(
    count: int, *, base: float, new: float, of: int
) -> list[tuple[CaseResult, CaseResult]]:
    """Pairs of which only the last ``of`` carry a p99."""

    def one(n: int, p99: float) -> CaseResult:
        quantiles = Quantiles(p50=1.0, p99=p99 * (1 + n / 1e4) if n >= count - of else None)
        made = case(1.0, 3.0, 200.0)
        assert made.latency_ms is not None
        return replace(made, latency_ms=made.latency_ms | {"acquire": {"before": quantiles}})

    return [(one(0 if n < count - of else count, base), one(n, new)) for n in range(count)]


def test_a_p99_is_judged_where_the_runs_carry_it_and_is_no_number_where_they_do_not() -> None:
    def words(of: int) -> dict[str, str]:
        pairs = with_p99(20, base=4.0, new=8.0, of=of)
        return {c.metric: c.word for c in judge_pairs({("lock", "none"): pairs}, 10)}

    assert words(20)["acquire-p99"] == "worse"
    assert "acquire-p99" not in words(9)
    assert set(words(0)) == set(NUMBERS)


def test_a_p99_that_the_new_side_alone_does_not_carry_is_not_passed() -> None:
    """It had fewer samples than the base: it may be slower by just so much."""

    def p99(lacking: int) -> Cell:
        pairs = with_p99(20, base=4.0, new=4.0, of=20)
        without = {"acquire": {"before": Quantiles(p50=1.0, count=320)}}
        for n in range(lacking):
            base, new = pairs[n]
            assert new.latency_ms is not None
            pairs[n] = (base, replace(new, latency_ms=new.latency_ms | without))
        cells = judge_pairs({("lock", "none"): pairs}, 5)
        (found,) = [c for c in cells if c.metric == "acquire-p99"]
        return found

    assert [p99(lacking).word for lacking in (0, 2)] == ["no difference shown"] * 2
    assert p99(8).words == "missing more often (8 of 20 runs, base 0 of 20)"
    assert [p99(lacking).word for lacking in (14, 20)] == ["too few pairs"] * 2


def test_a_p99_that_is_not_judged_is_named_with_its_samples() -> None:
    few = {"acquire": {"before": Quantiles(p50=1.0, count=320)}}
    of = [(replace(case(1.0, 3.0, 200.0), latency_ms=few),) * 2] * 10
    assert not_carried({("lock", "none"): of}) == [
        "acquire p99 of lock (n = 320 of 1,000)",
        "handover p99 of lock (n = 0 of 1,000)",
    ]
    void = (replace(case(1.0, 3.0, 200.0), numbers="void"),) * 2
    named = not_carried({("lock", "none"): [*of[:4], *[void] * 6]})
    assert named[0].endswith("of 1,000, 6 of 10 runs of the base void)")
    whole = with_p99(10, base=4.0, new=4.0, of=10)
    assert not_carried({("lock", "none"): whole}) == ["handover p99 of lock (n = 0 of 1,000)"]


def slow_to_recover(seconds: float | None) -> CaseResult:
    """None: nobody was granted in the nine seconds after the heal."""
    never_s = 9.0 if seconds is None else None
    made = case(1.0, 3.0, 200.0)
    return replace(made, fault="kill", recovery_seconds=seconds, unrecovered_seconds=never_s)


def recovery(
    base: Sequence[float | None], new: Sequence[float | None], declared: int = PAIRS
) -> Cell:
    pairs = zip(map(slow_to_recover, base), map(slow_to_recover, new), strict=True)
    (found,) = judge_pairs({("lock", "kill"): list(pairs)}, declared)
    return found


def recoveries(never: int, of: int, first: int = 0) -> list[float | None]:
    """About two seconds, and ``never`` from the number ``first`` on."""
    return [None if first <= n < first + never else 2.0 + n / 100 for n in range(of)]


@pytest.mark.parametrize(
    ("never", "word"), [(1, "too noisy"), (2, "too noisy"), (4, "worse"), (10, "worse")]
)
def test_a_lock_that_stops_recovering_does_not_pass(never: int, word: str) -> None:
    """In so many of ten runs, and as often in the ten that are measured then."""
    first = recovery(recoveries(0, 10), recoveries(never, 10))
    assert (first.word, first.suspected) == ("too few pairs", True)
    second = recovery(recoveries(0, 20), recoveries(never, 10) * 2)
    assert second.word == word
    assert f"nobody was granted after the heal in {2 * never} of 20 runs, base 0 of 20" in (
        second.words
    )
    document = second.document()
    assert all(v is None or math.isfinite(v) for v in (document.base, document.new))
    json.dumps(to_builtins(document), allow_nan=False)


def test_a_failure_to_recover_that_does_not_come_back_is_no_pass() -> None:
    assert recovery(recoveries(0, 20), recoveries(1, 20)).word == "too noisy"


@pytest.mark.parametrize(
    ("never", "first", "word", "pairs"),
    [
        (1, 0, "no difference shown", 19),
        (4, 0, "no difference shown", 16),
        (1, 10, "no difference shown", 20),
        (2, 10, "no difference shown", 20),
        (4, 10, "too noisy", 20),
    ],
)
def test_what_recovers_as_seldom_on_both_sides_is_no_slowdown(
    never: int, first: int, word: str, pairs: int
) -> None:
    """In the same pairs, which say nothing, or in others; where a fifth never recover, the rest
    rules out little."""
    cell = recovery(recoveries(never, 20, first), recoveries(never, 20))
    assert (cell.word, cell.pairs) == (word, pairs)


def recovery_job(rng: np.random.Generator, *, base: float, new: float) -> Cell:
    """About two seconds, give or take a fifth; never in so large a share of a side's runs."""
    seconds = 2.0 * np.exp(rng.normal(0.0, 0.2, (2, 2 * PAIRS)))
    never = rng.random(seconds.shape) < np.array([[base], [new]])
    seconds[never] = np.inf
    sides = [[s if s < math.inf else None for s in side] for side in seconds.tolist()]
    first = recovery(sides[0][:PAIRS], sides[1][:PAIRS])
    return recovery(sides[0], sides[1]) if first.suspected else first


@pytest.mark.parametrize("share", [0.05, 0.2])
def test_what_fails_to_recover_as_often_as_before_is_no_alarm(share: float) -> None:
    rng = np.random.default_rng(26)
    words = [recovery_job(rng, base=share, new=share).word for _ in range(60)]
    assert stats.binomtest(words.count("worse"), 60, 0.01, alternative="greater").pvalue > 0.01


@pytest.mark.parametrize("share", [0.2, 0.4])
def test_what_fails_to_recover_in_some_runs_hardly_ever_passes(share: float) -> None:
    """Only if it recovers in every run that is made."""
    rng = np.random.default_rng(27)
    cells = [recovery_job(rng, base=0.0, new=share) for _ in range(60)]
    passed = [cell for cell in cells if cell.word == "no difference shown"]
    assert all(cell.never.new == 0 for cell in passed)
    assert len(passed) <= 60 * (1 - share) ** PAIRS + 10


def void_job(rng: np.random.Generator, *, base: float, new: float) -> list[Cell]:
    """So large a share of each side's runs is void; void pairs are measured once more."""

    def more(pairs: int) -> list[tuple[CaseResult, CaseResult]]:
        of = np.exp(measured(rng, pairs)).tolist()
        void = rng.random((pairs, 2)) < (base, new)
        return [
            (with_numbers(case(*b), not v_base), with_numbers(case(*n), not v_new))
            for (b, n), (v_base, v_new) in zip(of, void.tolist(), strict=True)
        ]

    of = more(PAIRS)
    of += more(sum(value_of(b, "throughput") is None or value_of(n, "throughput") is None
                   for b, n in of))  # fmt: skip
    cells = judge_pairs({("lock", "none"): of}, PAIRS)
    return judge_pairs({("lock", "none"): of + more(PAIRS)}, PAIRS) if suspects(cells) else cells


def with_numbers(made: CaseResult, valid: bool) -> CaseResult:
    return made if valid else replace(made, numbers="void")


def test_a_client_that_voids_half_of_its_runs_hardly_ever_passes() -> None:
    rng = np.random.default_rng(28)
    words = [void_job(rng, base=0.0, new=0.5)[2].word for _ in range(60)]
    assert words.count("no difference shown") <= 12
    rng = np.random.default_rng(29)
    words = [void_job(rng, base=0.1, new=0.1)[2].word for _ in range(60)]
    assert words.count("missing more often") <= 4


def test_what_recovers_again_is_no_alarm() -> None:
    assert recovery(recoveries(4, 20), recoveries(0, 20)).word == "no difference shown"
    assert recovery(recoveries(20, 20), recoveries(0, 20)).word == "improved"
    assert recovery(recoveries(20, 20), recoveries(20, 20)).word == "too few pairs"


def test_no_middle_without_an_end_is_written_as_a_number() -> None:
    cell = recovery(recoveries(0, 20), recoveries(20, 20))
    assert (cell.word, cell.document().new, gate.change(cell)) == (
        "worse",
        None,
        "+∞ % (+∞ to +∞ %)",
    )


def test_recovery_is_gated_and_its_floor_is_half_a_second() -> None:
    def word_of(new: float) -> str:
        of = [(slow_to_recover(2.0), slow_to_recover(new * (1 + n / 1e4))) for n in range(1, 21)]
        return judge_pairs({("lock", "kill"): of}, 10)[0].word

    assert (word_of(2.4), word_of(3.0)) == ("no difference shown", "worse")


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


def with_void(base: int, new: int) -> list[str]:
    """The words of fifteen pairs of which so many runs of each side are void."""
    of = [
        (
            replace(b, numbers="void") if n < base else b,
            replace(v, numbers="void") if n < new else v,
        )
        for n, (b, v) in enumerate(same(15, base=1.0, new=1.0))
    ]
    return [cell.words for cell in judge_pairs({("lock", "none"): of}, 5)]


def test_a_side_that_is_void_more_often_is_not_passed() -> None:
    """A slower client can keep the generator busy, and only its good runs would be compared."""
    said = "missing more often (7 of 15 runs, base 0 of 15)"
    assert with_void(0, 7) == [said] * 3
    assert with_void(7, 0) == ["missing more often (0 of 15 runs, base 7 of 15)"] * 3
    assert with_void(7, 7) == with_void(2, 3) == ["no difference shown"] * 3
