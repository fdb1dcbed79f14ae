"""The ramp finds the rate at which a lock stops to keep the bound, whatever stopped it."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import plan, ramp
from bench.plan import Case
from bench.suite import Finished
from results import documents
from results.documents import Results, made
from results.errors import BadInput, Ending
from workloads.registry import find


def played(capacity: float, *, generator: float = 1e9) -> ramp.Runner:
    """A lock whose p99 is 10 ms up to its capacity, and a generator with a capacity of its own."""

    def run(cases: list[Case], name: str) -> Finished:
        (case,) = cases
        rate = float(find(case.workload).options["rate"])
        numbers: dict[str, Any] = {"count": 2000, "p99": 10.0 if rate <= capacity else 900.0}
        document = {
            "lock": "redis-token",
            "fault": "none",
            "judgement": "as expected",
            "why": "",
            "run": name,
            "numbers": "valid" if rate <= generator else "void",
            "generator": {"why": [] if rate <= generator else ["worker-1 used 95 % of a core"]},
            "response_ms": {"wait": {"before": numbers}},
        }
        return Finished(Ending.OK, Path(name), made(Results, {"cases": [document]}))

    return run


def ignored(_: ramp.Step) -> None:
    """Nobody looks on."""


def case(workload: str = "mutex") -> Case:
    return plan.make_case("redis-token", "none", seed=0, workload=workload)


@pytest.mark.parametrize("capacity", [15, 99, 100, 730, 3000])
def test_the_highest_rate_is_found_within_a_tenth(capacity: float) -> None:
    told: list[ramp.Step] = []
    found, done = ramp.ramp(case(), 50, played(capacity), told.append)
    assert found.rate is not None
    assert capacity / ramp.CLOSE <= found.rate <= capacity
    assert found.p99_ms == 10
    assert found.limit == "p99 900 ms"
    assert found.limit_rate is not None
    assert capacity < found.limit_rate <= ramp.CLOSE * found.rate
    assert len(done) == len(found.steps) <= 12
    assert tuple(told) == found.steps


def test_what_the_machine_cannot_produce_is_said_and_not_taken_for_the_lock() -> None:
    found, _ = ramp.ramp(case(), 50, played(1e9, generator=500), ignored)
    assert found.rate is not None
    assert 400 < found.rate <= 500
    assert found.limit == "worker-1 used 95 % of a core"


def test_a_rate_that_could_not_be_served_is_what_a_ramp_looks_for() -> None:
    def finished(judgement: str, ending: Ending) -> Finished:
        case = documents.CaseResult(lock="redis-token", fault="none", judgement=judgement)
        return Finished(ending, Path(), Results(cases=(case,)))

    kept = finished("as expected", Ending.OK)
    beyond = finished("not as asked", Ending.INCONCLUSIVE)
    assert ramp.ending_of([kept, beyond]) is Ending.OK
    assert ramp.ending_of([kept, beyond, finished("failed", Ending.BENCH)]) is Ending.BENCH
    assert ramp.ending_of([kept, finished("undecided", Ending.INCONCLUSIVE)]) is Ending.INCONCLUSIVE
    assert ramp.ending_of([beyond]) is Ending.INCONCLUSIVE


def test_no_rate_at_all() -> None:
    found, _ = ramp.ramp(case(), 50, played(1), ignored)
    assert found.rate is None
    assert found.limit == "p99 900 ms"


def test_every_step_is_long_enough_for_its_quantile() -> None:
    for rate in (12.5, 100, 800):
        step = ramp.at_rate(case(), rate)
        assert rate * step.phases.contended_s > 1100
        assert find(step.workload).options["rate"] == rate


@pytest.mark.parametrize(
    ("workload", "fault", "said"),
    [
        ("herd", "none", "has no rate"),
        ("mutex:rate=50", "none", "leave it out"),
        ("mutex", "kill", "leave --fault out"),
    ],
)
def test_what_cannot_be_ramped(workload: str, fault: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        ramp.refuse_impossible(plan.make_case("redis-token", fault, seed=0, workload=workload))


def test_a_stranger_reads_what_was_kept_and_what_stopped_it() -> None:
    said = Console(file=StringIO(), width=120)
    found, _ = ramp.ramp(
        case(), 50, played(1e9, generator=500), lambda step: ramp.say_step(case(), step, said)
    )
    ramp.say([found], said)
    assert isinstance(said.file, StringIO)
    text = said.file.getvalue()
    assert "redis-token at 400/s: kept, p99 10 ms" in text
    assert "redis-token at 800/s: not kept: worker-1 used 95 % of a core" in text
    table = text.partition("highest rate")[2]
    (row,) = (line for line in table.splitlines() if line.startswith("redis-token "))
    assert f"32 clients share {case().keys} keys, each held for 5 ms" in " ".join(text.split())
    assert row.count("/s") == 2, "the highest that was kept, and the first that was not"
