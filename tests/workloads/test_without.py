"""Ways to do without a lock: what is done twice or lost is caught, what is done well is not."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from lockbench.bench import plan
from lockbench.checker.check import check
from lockbench.checker.exposure import exposure
from lockbench.history.op import F, Fault, Type
from lockbench.locks.registry import systems, without
from lockbench.locks.without.base import Way
from lockbench.results.errors import Unfit
from lockbench.results.numbers import measure
from lockbench.workloads.fleet import Fleet, free_port
from lockbench.workloads.load import VICTIM, Pace
from tests.eventually import one_of
from tests.workloads import stored, unsafe
from tests.workloads.playing import Played, S, all_played, play

PACE = Pace(aimed_hold_s=0.05)


def play_way(folder: Path, workload: str, way: str) -> Played:
    return play(
        folder,
        workload,
        lock=f"{unsafe.__file__}:{way}",
        address=(str(folder), 0),  # where the way keeps its file
        contended_s=4,  # rare things are to happen to it
        pace=PACE,
    )


WRONG = {
    ("inventory", "BLIND"): "oversold",
    ("payment", "BLIND"): "charged-twice",
    ("payment", "FORGETFUL"): "lost-charge",
}
RIGHT = {
    "inventory": {"oversold"},
    "payment": {"charged-twice", "lost-charge"},
}


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """``workload way`` → its load."""
    asked = [*((workload, "CAREFUL") for workload in RIGHT), *WRONG]
    return all_played(
        tmp_path_factory.mktemp("ways"),
        {f"{w} {way}": partial(play_way, workload=w, way=way) for w, way in asked},
    )


@pytest.mark.slow
@pytest.mark.parametrize("workload", RIGHT)
def test_a_careful_way_breaks_nothing(played: dict[str, Played], workload: str) -> None:
    done = played[f"{workload} CAREFUL"]
    report = check(done.history)
    assert {v: r.result for v, r in report.verdicts.items() if r.result != "valid"} == {}
    assert set(report.verdicts) == RIGHT[workload]
    assert exposure(done.history).exposed
    jobs = report.measurements["jobs"]
    assert isinstance(jobs, dict)
    assert jobs[workload]["done"] > 20
    assert jobs[workload]["conflicts"] > 0, "four clients at one key meet"
    numbers = measure(done.history, done.spans)
    assert numbers.latency_ms["job"]["before"].count > 0
    assert numbers.cycles_per_second
    unknown = (done.history.f == F.EFFECT) & (done.history.type == Type.INFO)
    assert np.count_nonzero(unknown) > 0, "lost answers were tried again"


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "verdict"), WRONG.items())
def test_what_a_way_does_wrong_is_caught(
    played: dict[str, Played], asked: tuple[str, str], verdict: str
) -> None:
    found = check(played[" ".join(asked)].history)
    assert found.verdicts[verdict].result == "invalid"


def play_stored(
    folder: Path, way: str, meanwhile: Callable[[Fleet, int], Sequence[Fault]] | None
) -> Played:
    return play(
        folder,
        "payment",
        lock=f"{stored.__file__}:{way}",
        address=(str(folder), free_port()),  # owners are called after it
        pace=PACE,
        contended_s=4,
        meanwhile=meanwhile,
    )


def freeze_the_owner(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
    return strike(fleet, begin_ns, lambda: fleet.freeze([VICTIM]), lambda: fleet.thaw([VICTIM]))


def kill_the_owner(fleet: Fleet, begin_ns: int) -> Sequence[Fault]:
    return strike(fleet, begin_ns, lambda: fleet.kill([VICTIM]), lambda: None)


def strike(
    fleet: Fleet, begin_ns: int, begin: Callable[[], None], end: Callable[[], None]
) -> Sequence[Fault]:
    while time.monotonic_ns() < begin_ns + S:
        time.sleep(0.01)
    began = time.monotonic_ns()
    begin()
    time.sleep(1)
    end()
    healed = time.monotonic_ns()
    return [Fault("strike", (), (began, began), (healed, healed), facts={"proven": True})]


HAPPENS = {"calm": None, "frozen": freeze_the_owner, "killed": kill_the_owner}
# An event log has no owner.
OWNED = [
    ("EVENT_LOG", "calm"),
    *((way, what) for way in ("ACTOR", "SINGLE_OWNER") for what in ("calm", "frozen", "killed")),
]


@pytest.fixture(scope="module")
def owned(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Played]:
    """``way what happened`` → its load."""
    return all_played(
        tmp_path_factory.mktemp("owned"),
        {f"{w} {what}": partial(play_stored, way=w, meanwhile=HAPPENS[what]) for w, what in OWNED},
    )


@pytest.mark.slow
@pytest.mark.parametrize(("way", "what"), OWNED)
def test_whatever_happens_to_the_owner_all_is_done_once(
    owned: dict[str, Played], way: str, what: str, tmp_path: Path
) -> None:
    def once(number: int) -> Played:
        first = owned[f"{way} {what}"]
        return play_stored(tmp_path / str(number), way, HAPPENS[what]) if number else first

    # A machine that stands still may leave no grants around the strike.
    done = one_of(once, lambda played: exposure(played.history).exposed)
    report = check(done.history)
    assert {v: r.result for v, r in report.verdicts.items()} == {
        "charged-twice": "valid",
        "lost-charge": "valid",
    }
    assert exposure(done.history).exposed, exposure(done.history).reasons
    if what == "frozen":
        slowest = measure(done.history, done.spans).latency_ms["job"]["during"].max
        assert slowest is not None
        assert slowest > 500, "nothing moved without its owner"


def test_ways_are_named_like_locks_and_are_none() -> None:
    assert set(without()) == {
        "postgres-optimistic",
        "without-compare-and-set",
        "without-idempotency-key",
        "without-event-log",
        "without-single-owner",
        "without-actor",
    }
    assert not set(without()) & set(systems())
    for name, system in without().items():
        assert system.kind == "none"
        assert issubclass(system.connect, Way)  # type: ignore[arg-type]
        plan.refuse_impossible(plan.make_case(name, "none", seed=0, workload="payment"))
        with pytest.raises(Unfit, match="mutex is not a workload for"):
            plan.make_case(name, "none", seed=0)
