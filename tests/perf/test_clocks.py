"""The simulated fleets and what is said of methods: the truth is true, and who errs is told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from lockbench.checker import bounds
from lockbench.checker.bounds import Bounds
from lockbench.checker.check import check
from lockbench.checker.clocks import shifted
from lockbench.checker.verdict import Verdict
from lockbench.history.columns import History, Ints
from perf.clocks.delays import round_trip_quantiles
from perf.clocks.experiment import CERTAIN_NS, MIXED, Outcome, Setting, Share, faults, run, settings
from perf.clocks.methods import METHODS, Method, naive
from perf.clocks.world import USES, Told, World, simulated
from perf.machines import MS, US
from tests.budget import tries

LITTLE = World(4, MIXED, 60)


def tiny(*worlds: World, methods: tuple[Method, ...] = METHODS) -> list[Outcome]:
    chosen = [Setting("tiny", "row", world, 2) for world in worlds]
    return list(run(chosen, methods, processes=1).values())


def on_true_clocks(told: Told) -> History:
    """What was recorded, with every clock set right."""
    history = told.history

    def offset(machine: int, times_ns: Ints) -> Ints:
        clock = told.clocks[history.machines[machine]]
        true = times_ns
        for _ in range(6):
            true = np.array(
                [at - (clock.shows(t) - t) for at, t in zip(times_ns, true.tolist(), strict=True)]
            )
        return true - times_ns

    history = shifted(history, offset)
    return history.only(np.argsort(history.invoke_ns, kind="stable"))


@pytest.mark.random
@pytest.mark.parametrize("uses", USES)
def test_the_truth_that_is_told_is_what_true_clocks_show(uses: str) -> None:
    for seed in range(tries(3)):
        for overlap_ns in (0, 10 * US, 100 * MS):
            told = simulated(replace(LITTLE, uses=uses, overlap_ns=overlap_ns), seed)
            assert list(told.overlaps.values()) == ([overlap_ns] if overlap_ns else [])
            assert (told.slower in MIXED) == (overlap_ns > 0)
            history = on_true_clocks(told)
            verdict = check(history, only=("double-grant",)).verdicts["double-grant"]
            assert verdict.result == ("invalid" if overlap_ns else "valid")
            named = {
                history.hold_name(int(history.hold[int(str(e["row"]))])) for e in verdict.evidence
            }
            assert named == {name for pair in told.overlaps for name in pair}


def test_a_seed_gives_one_history_and_another_gives_another() -> None:
    one, same, other = (simulated(LITTLE, seed).history for seed in (1, 1, 2))
    assert np.array_equal(one.invoke_ns, same.invoke_ns)
    assert not np.array_equal(one.invoke_ns[:20], other.invoke_ns[:20])


def test_a_clock_never_goes_back_where_it_jumps() -> None:
    for seed in range(4):
        history = simulated(replace(LITTLE, jump_ns=100 * MS), seed).history
        assert np.all(history.complete_ns >= history.invoke_ns)


def test_delays_are_what_their_sources_say() -> None:
    least, median, late, _ = round_trip_quantiles("zone")
    assert least >= 700 * US
    assert 700 * US < median < 820 * US
    assert late > 1_500 * US
    assert 70 * MS < round_trip_quantiles("region")[1] < 72 * MS


def test_nobody_sound_errs_in_a_tiny_experiment() -> None:
    outcomes = tiny(LITTLE, replace(LITTLE, overlap_ns=CERTAIN_NS))
    assert faults(outcomes) == []
    assert sum(it.right[-1] for it in outcomes) == 2
    assert any(it.wrong(0) for it in outcomes), "merging naively accuses nobody here"


def test_a_method_with_false_accusations_is_told() -> None:
    """Naive merging, called sound."""
    methods = (Method("planted", True, naive), METHODS[-1])
    told = faults(tiny(LITTLE, replace(LITTLE, overlap_ns=CERTAIN_NS), methods=methods), methods)
    assert any(
        it.startswith("planted, ") and "overlap_ns=0," in it and "wrongly" in it for it in told
    )
    assert not any(it.startswith("lockbench") for it in told)


def test_what_lockbench_would_miss_is_told() -> None:
    """In its place something that finds everything valid."""

    def blind(history: History) -> tuple[Verdict, History]:
        return Verdict("valid", ""), history

    methods = (*METHODS[:-1], Method("lockbench", True, blind))
    told = faults(tiny(LITTLE, replace(LITTLE, overlap_ns=CERTAIN_NS), methods=methods), methods)
    assert any("misses what every stamp shows" in it for it in told)
    assert any("bounds, " in it and "lockbench says valid" in it for it in told)


def test_an_experiment_that_shows_nothing_is_told() -> None:
    for worlds in ((LITTLE,), (replace(LITTLE, overlap_ns=CERTAIN_NS),)):
        assert faults(tiny(*worlds)) == ["nothing was tried with an overlap, or nothing without"]


def test_truth_outside_the_bounds_is_told() -> None:
    one, other = tiny(LITTLE, replace(LITTLE, overlap_ns=CERTAIN_NS))[1:3]
    assert one.moments > 0
    told = faults([replace(one, outside=3), other])
    assert [it for it in told if "outside the bounds at 3 moments" in it]


def test_the_whole_experiment_has_every_count_and_its_controls() -> None:
    every = list(settings())
    counts = {it.world.machines for it in every if it.table == "machines"}
    assert counts == {2, 4, 10, 30, 100, 300, 1000}
    rows = {(it.table, it.row) for it in every}
    assert rows == {(it.table, it.row) for it in every if it.world.overlap_ns == 0}


def test_intervals_are_wilsons() -> None:
    low, high = Share(0, 40).interval
    assert (low, round(high, 4)) == (0.0, 0.0876)
    low, high = Share(20, 40).interval
    assert (round(low, 4), round(high, 4)) == (0.3520, 0.6480)
    assert str(Share(0, 0)).startswith("nan")


@pytest.mark.parametrize("defect", ["no drift", "bounds too close"])
def test_a_defect_of_the_checker_is_told(defect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clocks that are taken for constant, and bounds that are a tenth as wide as they should be."""
    if defect == "no drift":
        monkeypatch.setattr(bounds, "PER_DRIFT", 10**12)
        monkeypatch.setattr(bounds, "FAR_NS", 2**20)
        monkeypatch.setattr(bounds, "SPAN_NS", 2**50)
    else:
        low, high = Bounds.low, Bounds.high

        def closer(which: Callable[[Bounds, Ints], Ints], of: Bounds, times_ns: Ints) -> Ints:
            middle = (low(of, times_ns) + high(of, times_ns)) // 2
            narrow: Ints = middle + (which(of, times_ns) - middle) // 10
            return narrow

        monkeypatch.setattr(Bounds, "low", lambda of, at: closer(low, of, at))
        monkeypatch.setattr(Bounds, "high", lambda of, at: closer(high, of, at))
    told = faults(tiny(LITTLE, replace(LITTLE, overlap_ns=CERTAIN_NS)))
    assert any("the truth is outside the bounds" in it for it in told)
