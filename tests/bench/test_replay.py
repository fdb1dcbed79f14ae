"""A schedule is played again k of n times, and made smaller only while it still breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from bench import plan, replay
from bench.errors import BadInput, Ending
from bench.plan import Case
from bench.suite import Finished
from results.store import RunFolder

QUIET = Console(quiet=True)


def stored(tmp_path: Path, cases: Sequence[Case], *broken: str) -> Path:
    run = RunFolder.create(tmp_path / "runs", "stored")
    run.write_plan({"name": "stored", "cases": [asdict(case) for case in cases]})
    observed = dict.fromkeys(broken, "invalid") | {"late-grant": "valid"}
    run.write_results({"name": "stored", "cases": [{"observed": observed} for _ in cases]})
    run.finish("ok")
    return run.path


def three_faults() -> Case:
    return plan.resolve(plan.roomy(plan.make_case("etcd", "pause then kill then pause", seed=2)))


def runner(breaks: Callable[[Case], bool], seen: list[Case]) -> replay.Runner:
    """Stands for real runs: a case breaks ``double-grant`` when the test says so."""

    def run(cases: list[Case], name: str) -> Finished:
        seen.extend(cases)
        documents: list[dict[str, Any]] = [
            {"observed": {"double-grant": "invalid" if breaks(case) else "valid"}} for case in cases
        ]
        return Finished(Ending.SAFETY, Path(name), {"cases": documents})

    return run


def test_the_same_schedule_is_played_as_often_as_asked(tmp_path: Path) -> None:
    case, seen = three_faults(), list[Case]()
    turns = iter([True, False, True])
    folder = stored(tmp_path, [case], "double-grant")
    finished = replay.replay(folder, 3, runner(lambda _: next(turns), seen))
    assert seen == [case] * 3
    told = finished.results["replay"]
    assert (told["times"], told["cases"][0]["shown"]) == (3, {"double-grant": 2})


def test_only_what_the_violation_needs_is_left(tmp_path: Path) -> None:
    """The kill is what breaks it, in this test's world."""
    case, seen = three_faults(), list[Case]()
    folder = stored(tmp_path, [case], "double-grant")

    def kill_breaks(tried: Case) -> bool:
        return any(injection.fault == "kill" for injection in tried.injections)

    _, left = replay.shrink(folder, runner(kill_breaks, seen), QUIET)
    assert [injection.fault for injection in left.injections] == ["kill"]
    # The fault that is left begins when it did before.
    assert left.injections[0] == case.injections[1]
    # What is written for --fault is the same schedule again.
    words = replay.schedule_words(left)
    again = plan.resolve(plan.roomy(plan.make_case("etcd", words, seed=2)))
    assert [(i.fault, i.begin_s, i.duration_s, i.parameters) for i in again.injections] == [
        (i.fault, i.begin_s, i.duration_s, i.parameters) for i in left.injections
    ]


def test_a_race_gets_three_tries_before_it_counts_as_gone(tmp_path: Path) -> None:
    case, seen = three_faults(), list[Case]()
    folder = stored(tmp_path, [case], "double-grant")
    tries: dict[int, int] = {}

    def third_time(tried: Case) -> bool:
        count = tries[len(tried.injections)] = tries.get(len(tried.injections), 0) + 1
        return count % 3 == 0

    _, left = replay.shrink(folder, runner(third_time, seen), QUIET)
    assert left.injections == ()


def test_what_does_not_show_again_is_said(tmp_path: Path) -> None:
    folder = stored(tmp_path, [three_faults()], "double-grant")
    with pytest.raises(BadInput, match="did not show again in 3 tries"):
        replay.shrink(folder, runner(lambda _: False, []), QUIET)


def test_what_cannot_be_played_again_is_said(tmp_path: Path) -> None:
    case = three_faults()
    never = runner(lambda _: True, [])
    with pytest.raises(BadInput, match="nowhere"):
        replay.replay(tmp_path / "nowhere", 1, never)
    with pytest.raises(BadInput, match="nothing broke"):
        replay.shrink(stored(tmp_path / "a", [case]), never, QUIET)
    with pytest.raises(BadInput, match="holds 2 cases"):
        replay.shrink(stored(tmp_path / "b", [case, case], "double-grant"), never, QUIET)
    with pytest.raises(BadInput, match="--times is 0"):
        replay.replay(stored(tmp_path / "c", [case]), 0, never)
    broken = stored(tmp_path / "d", [case])
    (broken / "plan.json").write_text('{"cases": [{"lock": "etcd"}]}')
    with pytest.raises(BadInput, match="no plan that can be played again"):
        replay.replay(broken, 1, never)
