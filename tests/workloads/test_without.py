"""Ways to do without a lock: what is done twice or lost is caught, what is done well is not."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from bench import plan
from bench.errors import Unfit
from checker.check import check
from checker.exposure import exposure
from history.op import F, Type
from locks.registry import systems, without
from locks.without.base import Way
from results.numbers import measure
from tests.workloads import unsafe
from tests.workloads.playing import Played, all_played, play
from workloads.fleet import free_port
from workloads.load import Pace

PACE = Pace(aimed_hold_s=0.05)


def play_way(folder: Path, workload: str, way: str) -> Played:
    port = free_port()  # names the file of the way; nobody listens there
    try:
        lock = f"{unsafe.__file__}:{way}"
        return play(folder, workload, lock=lock, address=("127.0.0.1", port), pace=PACE)
    finally:
        (Path(tempfile.gettempdir()) / f"lockbench-test-way-{port}").unlink(missing_ok=True)


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
    asked = [*WRONG, *((workload, "CAREFUL") for workload in RIGHT)]
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


def test_ways_are_named_like_locks_and_are_none() -> None:
    assert set(without()) == {
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
        plan.check(plan.make_case(name, "none", seed=0, workload="payment"))
        with pytest.raises(Unfit, match="mutex is not a workload for"):
            plan.make_case(name, "none", seed=0)
