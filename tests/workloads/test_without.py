"""Ways to do without a lock: what is done twice or lost is caught, what is done well is not."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
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
from tests.workloads.playing import Played, play
from workloads.fleet import free_port
from workloads.load import Pace

PACE = Pace(aimed_hold_s=0.05)


@pytest.fixture
def port() -> Iterator[int]:
    """Names the file of a way; nobody listens there."""
    number = free_port()
    yield number
    (Path(tempfile.gettempdir()) / f"lockbench-test-way-{number}").unlink(missing_ok=True)


def played(folder: Path, port: int, workload: str, way: str) -> Played:
    lock = f"{unsafe.__file__}:{way}"
    return play(folder, workload, lock=lock, address=("127.0.0.1", port), pace=PACE)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["inventory", "payment"])
def test_a_careful_way_breaks_nothing(tmp_path: Path, port: int, workload: str) -> None:
    done = played(tmp_path, port, workload, "CAREFUL")
    report = check(done.history)
    assert {v: r.result for v, r in report.verdicts.items() if r.result != "valid"} == {}
    assert (
        set(report.verdicts)
        == {
            "inventory": {"oversold"},
            "payment": {"charged-twice", "lost-charge"},
        }[workload]
    )
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
@pytest.mark.parametrize(
    ("workload", "way", "verdict"),
    [
        ("inventory", "BLIND", "oversold"),
        ("payment", "BLIND", "charged-twice"),
        ("payment", "FORGETFUL", "lost-charge"),
    ],
)
def test_what_a_way_does_wrong_is_caught(
    tmp_path: Path, port: int, workload: str, way: str, verdict: str
) -> None:
    assert check(played(tmp_path, port, workload, way).history).verdicts[verdict].result == (
        "invalid"
    )


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
