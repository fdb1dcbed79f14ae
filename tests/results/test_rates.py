"""Figures at stated rates: what was due is in them, nothing else is, and what is void says so."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

from lockbench.history.op import F, Type
from lockbench.results.documents import LockRates, Processed, Processors, RatesOf, RateStep, Spread
from lockbench.results.knee import knee, not_granted
from lockbench.results.rates import Block, Samples, again, pooled, step_of
from tests.results.load import MS, Load

OF = RatesOf("redis-token", "redis", 1, "loopback", 32, 0, 0.0)
BEGIN_MS, END_MS = 10_000, 20_000


def arriving(load: Load, count: int, took_ms: float = 2.0, late_ms: float = 0.0) -> None:
    """So many acquires that were due in the step, one every 5 ms, each on a key of its own."""
    for n in range(count):
        at = BEGIN_MS + 5 * n
        hold = load.grant(f"r{n}", at + late_ms, at + late_ms + took_ms, intended=at)
        load.release(f"r{n}", hold, at + late_ms + took_ms, at + late_ms + took_ms + 1)


def at_rate(load: Load) -> Block:
    return step_of(
        load.history(),
        BEGIN_MS * MS,
        END_MS * MS,
        unknown_after_s=1.0,
        share=0.5,
        offered_per_s=200.0,
    )


def test_the_response_runs_from_the_intended_start() -> None:
    load = Load()
    arriving(load, 100, took_ms=2, late_ms=3)
    step = at_rate(load).step
    assert (step.due, step.granted, step.granted_per_s) == (100, 100, 10.0)
    assert (step.response_ms.p50, step.service_ms.p50, step.release_ms.p50) == (5, 2, 1)
    assert step.response_ms.above == ()
    assert not_granted(step) is None


@pytest.mark.parametrize("at_ms", [BEGIN_MS - 1, END_MS])
def test_what_was_due_outside_of_the_measured_time_is_in_no_figure(at_ms: float) -> None:
    load = Load()
    arriving(load, 100)
    load.grant("r1000", at_ms, at_ms + 900, intended=at_ms)
    assert at_rate(load).step.response_ms.max == 2


def test_other_keys_are_in_no_figure() -> None:
    load = Load()
    arriving(load, 100)
    for key in ("a0", "k0", "m0"):
        load.grant(key, BEGIN_MS + 1, BEGIN_MS + 900, intended=BEGIN_MS + 1)
    step = at_rate(load).step
    assert (step.due, step.response_ms.max) == (100, 2)


@pytest.mark.parametrize(
    ("complete_ms", "kind", "bound_ms"),
    [(800.0, Type.FAIL, 800), (None, Type.INFO, 1000)],  # refused; without an answer
)
def test_what_was_not_granted_took_longer_than_until_it_was_given_up(
    complete_ms: float | None, kind: Type, bound_ms: float
) -> None:
    load = Load()
    arriving(load, 1980)
    for n in range(30):
        at = BEGIN_MS + n
        complete = None if complete_ms is None else at + complete_ms
        load.op(F.ACQUIRE, f"r{9000 + n}", at, complete, type_=kind, intended=at, hold=10_000 + n)
    found = at_rate(load).step
    assert (found.due, found.granted) == (2010, 1980)
    assert found.response_ms.p50 == 2
    # 30 of 2,010 are beyond the rank of the p99, so it is one of theirs: a lower bound.
    assert found.response_ms.p99 == bound_ms
    assert found.response_ms.above == ("p99", "max")
    assert found.service_ms.count == 1980


def test_a_quantile_below_what_was_given_up_is_no_bound() -> None:
    load = Load()
    arriving(load, 1990)
    at = float(BEGIN_MS)
    load.op(F.ACQUIRE, "r9000", at, at + 700, type_=Type.FAIL, intended=at, hold=10_000)
    found = at_rate(load).step.response_ms
    assert (found.p99, found.max, found.above) == (2, 700, ("max",))


def test_a_step_that_was_not_granted_what_was_due_is_not_at_that_rate() -> None:
    load = Load()
    arriving(load, 94)
    for n in range(6):
        at = BEGIN_MS + n
        load.op(F.ACQUIRE, f"r{9000 + n}", at, at + 1, type_=Type.FAIL, intended=at, hold=500 + n)
    step = at_rate(load).step
    assert not_granted(step) == "94 of 100 acquires that were due were granted"
    assert not_granted(replace(step, granted=95)) is None
    assert not_granted(replace(step, offered_per_s=None)) is None


def test_a_saturated_step_counts_what_was_granted_in_it() -> None:
    load = Load()
    for n in range(50):
        load.grant(f"r{n}", BEGIN_MS - 5 + 10 * n, BEGIN_MS + 5 + 10 * n)
    step = step_of(load.history(), BEGIN_MS * MS, END_MS * MS, unknown_after_s=1.0).step
    # The first was asked for before, and is granted in it.
    assert (step.due, step.granted_per_s) == (49, 5.0)
    assert step.offered_per_s is None


def test_a_stored_step_is_what_its_history_gives() -> None:
    load = Load()
    arriving(load, 100)
    step = replace(at_rate(load).step, why=("the machine was busy",))
    assert again(load.history(), step, 1.0).step == step
    forged = replace(step, granted_per_s=11.0)
    assert again(load.history(), forged, 1.0).step != forged


def block(
    took_ms: Sequence[float], *, share: float | None = 0.5, per_s: float = 100.0, why: str = ""
) -> Block:
    took = (np.array(took_ms, np.float64) * MS).astype(np.int64)
    samples = Samples(took, np.zeros(len(took), np.bool_), took)
    step = RateStep(
        begin_ns=0,
        end_ns=10**9,
        due=len(took),
        granted=len(took),
        granted_per_s=per_s,
        response_ms=samples.quantiles(),
        service_ms=samples.quantiles(),
        release_ms=samples.quantiles(),
        share=share,
        offered_per_s=None if share is None else 200 * share,
        why=(why,) if why else (),
    )
    return Block(step, samples)


def figure(found: LockRates) -> tuple[object, ...]:
    (one,) = found.rates
    return one.response_ms.p50, one.blocks, one.void_blocks, one.why


def bounds(found: LockRates) -> tuple[float, float]:
    (one,) = found.rates
    assert one.p50_ms_range is not None
    return one.p50_ms_range.min, one.p50_ms_range.max


def test_blocks_make_one_figure_of_all() -> None:
    found = pooled(OF, [block([1.0] * 20), block([2.0] * 21), block([3.0] * 20)])
    assert figure(found) == (2.0, 3, 0, ())


def test_a_range_is_where_a_repeated_run_is_expected_and_holds_every_block() -> None:
    """Blocks of one run share its minute: that they agree does not say that another run would."""
    alike = [block([2.0] * 20, share=0.1) for _ in range(3)]
    saturated = [block([9.0] * 20, share=None, per_s=200.0)] * 3
    low, high = bounds(pooled(OF, [*alike, *saturated]))
    assert low < 2.0 < high
    assert low * high == pytest.approx(2.0**2), "as many times more as less"
    near = [block([2.0] * 20, share=0.75) for _ in range(3)]
    wide_low, wide_high = bounds(pooled(OF, [*near, *saturated]))
    assert wide_low < low < high < wide_high, "queues make it less sure"
    far = [*alike[:2], block([90.0] * 19, share=0.1)]
    assert bounds(pooled(OF, [*far, *saturated])) == (low, 90.0)
    unknown = bounds(pooled(OF, alike))
    assert unknown == (wide_low, wide_high), "nobody knows how near it was to what is carried"


def test_a_void_block_is_left_out_where_three_others_are_valid() -> None:
    good = [block([1.0] * 20), block([2.0] * 21), block([3.0] * 20)]
    void = block([900.0] * 20, why="the hypervisor took it")
    assert figure(pooled(OF, [*good, void])) == (2.0, 3, 1, ())


def test_fewer_than_three_valid_blocks_make_a_void_figure_of_all() -> None:
    blocks = [block([1.0] * 20), block([2.0] * 21), block([3.0] * 20, why="a hog")]
    assert figure(pooled(OF, blocks)) == (2.0, 3, 1, ("a hog",))
    *_, why = figure(pooled(OF, blocks[:2]))
    assert why == ("2 rounds, and a figure needs 3",)


def test_rates_are_told_apart_and_what_was_carried_is_a_spread() -> None:
    blocks = [block([1.0] * 20, share=share) for share in (0.5, 0.1, 0.5, 0.1, 0.5, 0.1)]
    saturated = [block([9.0] * 20, share=None, per_s=rate) for rate in (180.0, 200.0, 230.0)]
    found = pooled(OF, [*blocks, *saturated])
    assert [one.share for one in found.rates] == [0.1, 0.5]
    carried = found.carried_per_s
    assert (carried.count, carried.median, carried.min, carried.max) == (3, 200.0, 180.0, 230.0)
    between = found.carried_range_per_s
    assert between is not None
    assert between.min < 180.0
    assert between.max > 230.0
    assert between.min * between.max == pytest.approx(200.0**2)


def a_round(per_s: Sequence[float], medians_ms: Sequence[float], lost: int = 0) -> list[Block]:
    """A saturated step, then rates with their medians; of the last so many are not granted."""
    found = [block([1.0] * 20, share=None)]
    for rate, ms in zip(per_s, medians_ms, strict=True):
        one = block([ms] * 20, share=0.1)
        found.append(Block(replace(one.step, offered_per_s=rate), one.samples))
    last = found[-1]
    found[-1] = Block(replace(last.step, granted=last.step.due - lost), last.samples)
    return found


def where(*rounds: Sequence[Block]) -> tuple[float, float | None]:
    found = knee((one.step, one.samples.took_ns) for blocks in rounds for one in blocks)
    assert found is not None
    return found.low_per_s, found.high_per_s


def test_the_knee_lies_before_the_rate_at_which_latency_has_doubled() -> None:
    assert where(a_round([50, 10, 100, 75], [1.1, 1.0, 9.0, 1.9])) == (75, 100)
    # What is quicker again further up does not count.
    assert where(a_round([10, 50, 75, 100], [1.0, 2.1, 1.0, 9.0])) == (10, 50)


def test_what_is_not_granted_is_beyond_the_knee() -> None:
    assert where(a_round([10, 50, 100], [1.0, 1.0, 1.0], lost=2)) == (50, 100)
    assert where(a_round([10, 50, 100], [1.0, 1.0, 1.0], lost=1)) == (50 + 50, None)


def test_rounds_that_differ_make_the_knee_less_certain() -> None:
    early = a_round([10, 50, 100], [1.0, 9.0, 9.0])
    late = a_round([10, 50, 100], [1.0, 1.0, 9.0])
    never = a_round([10, 50, 100], [1.0, 1.0, 1.0])
    assert where(early, late) == (10, 100)
    assert where(early, never) == (10, None)
    assert knee([]) is None


def busy(one: Block, ours: float, others: float = 1.0, **parts: float) -> Block:
    """The block, on processors that were used so much."""
    used = {part: Processed(percent, 0.0) for part, percent in parts.items()}
    found = Processors(others, ours, 0.0, 0.0, parts=used)
    return Block(replace(one.step, processors=found), one.samples)


@pytest.mark.parametrize(("ours", "limited"), [(83.0, False), (84.0, True), (99.0, True)])
def test_what_fills_the_machine_may_carry_more_on_another(ours: float, limited: bool) -> None:
    saturated = [busy(block([1.0] * 20, share=None), ours, links=60.0, servers=9.5)] * 3
    found = pooled(OF, saturated)
    assert any("the machine was the limit" in why for why in found.why) is limited
    assert found.carried_processors == {"links": 60.0, "servers": 9.5, "others": 1.0}


@pytest.mark.parametrize(("ours", "void"), [(96.0, False), (97.0, True)])
def test_where_nothing_is_left_of_the_machine_a_round_is_void(ours: float, void: bool) -> None:
    rounds = [busy(block([1.0] * 20), ours)] * 3
    (one,) = pooled(OF, rounds).rates
    assert (one.void_blocks, bool(one.why)) == ((3, True) if void else (0, False))


@pytest.mark.parametrize(
    ("per_s", "hold_s", "limited"),
    # A cycle of 2 ms: 32 clients ask for 16,000 per second; of 34 ms, for 941.
    [(12_000.0, 0.0, False), (13_000.0, 0.0, True), (500.0, 0.032, False), (800.0, 0.032, True)],
)
def test_clients_that_cannot_ask_for_more_are_the_limit(
    per_s: float, hold_s: float, limited: bool
) -> None:
    alone = [block([1.0] * 20, share=0.1)] * 3
    queueing = [block([9.0] * 20, share=0.75)] * 3
    saturated = [block([9.0] * 20, share=None, per_s=per_s)] * 3
    found = pooled(replace(OF, hold_s=hold_s), [*alone, *queueing, *saturated])
    assert any("32 clients were the limit" in why for why in found.why) is limited
    shared = pooled(replace(OF, hold_s=hold_s, keys=1), [*alone, *queueing, *saturated])
    assert shared.why == ()


def short(one: Block, granted: int) -> Block:
    step = replace(one.step, granted=granted)
    return Block(replace(step, why=(str(not_granted(step)),)), one.samples)


def test_a_round_in_which_the_lock_fell_short_is_not_left_out() -> None:
    good, slow = [block([1.0] * 20)] * 3, [short(block([900.0] * 20), 10)] * 3
    (one,) = pooled(OF, [*good, *slow]).rates
    assert (one.blocks, one.void_blocks, one.due, one.granted) == (6, 0, 120, 90)
    assert one.why == ("90 of 120 acquires that were due were granted",)
    assert one.p50_ms_range is not None
    assert one.p50_ms_range.max >= 900.0
    (one,) = pooled(OF, [*good, *good, *good, short(block([2.0] * 20), 18)]).rates
    assert (one.blocks, one.why) == (10, ()), "198 of 200 are at that rate"


def test_service_time_stands_beside_response_time() -> None:
    (one,) = pooled(OF, [block([1.0] * 90), block([2.0] * 20), block([4.0] * 20)]).rates
    assert one.service_p50_ms == Spread(3, 1.0, 1.0, 4.0)
    assert one.response_ms.p50 == 1.0, "both are of all acquires together"
