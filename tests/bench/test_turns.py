"""What is run while images are built, what waits, and what becomes of a build that failed."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from lockbench.bench import suite as running
from lockbench.bench.plan import Case, built_for, make_case, resolve
from lockbench.bench.run import Outcome
from lockbench.bench.suites import suite
from lockbench.bench.turns import BUILT_MEANWHILE, Turn, Turns, image_order, spare
from lockbench.clusters.builds import Build, Builds
from lockbench.report import write
from lockbench.results import machine
from lockbench.results.baseline import CASES_MIN
from lockbench.results.documents import CaseResult, Image, Machine, Versions
from lockbench.results.errors import BadInput
from lockbench.results.store import open_run


class Building:
    """Builds of one image each that end when they are told to."""

    def __init__(self, *names: str) -> None:
        self._go_on = {name: threading.Event() for name in names}
        self.failures: set[str] = set()
        self.builds = Builds([Build(name, None, 60) for name in names], self._make, lambda _: None)

    def _make(self, name: str) -> None:
        assert self._go_on[name].wait(60)
        if name in self.failures:
            raise OSError(f"cannot build {name}\nthe mirror is gone")

    def end(self, *names: str, failed: bool = False) -> None:
        self.failures |= set(names) if failed else set()
        for name in names:
            self._go_on[name].set()
        self.builds.wait(names)


@pytest.fixture
def etcd() -> Iterator[Building]:
    building = Building("etcd")
    yield building
    building.end("etcd")


def quick() -> dict[int, Case]:
    return dict(enumerate(suite("quick", 0).cases, 1))


def test_the_case_that_can_begin_first_has_its_images_first() -> None:
    order = image_order(suite("quick", 0).cases)
    assert set(order[:2]) == {"redis", "toxiproxy"}
    assert order[-1] == "go-sidecar"


def test_a_case_has_its_own_images_built_and_no_others() -> None:
    assert built_for(make_case("redis-token", "none", seed=0)) == ["redis", "toxiproxy"]
    assert built_for(make_case("redis-py", "none", seed=0)) == ["redis", "toxiproxy"]
    client = built_for(make_case("bsm-redislock", "none", seed=0))
    assert client == ["redis", "toxiproxy", "go-sidecar"]


def test_enough_cases_of_each_lock_wait_for_its_figures() -> None:
    cases = quick()
    beside = spare(cases)
    assert beside
    assert all(cases[number].injections for number in beside)
    assert not any(cases[number].rates.steps for number in beside)
    for lock in ("redis-token", "redlock", "etcd", "zookeeper"):
        same = {n for n, c in cases.items() if c.lock == lock and c.workload == "mutex"}
        assert len(same - beside) == CASES_MIN
    alone = {n for n, case in cases.items() if case.lock == "redis-no-owner"}
    assert alone <= beside


def test_only_what_has_its_images_runs_beside_builds(etcd: Building) -> None:
    cases = quick()
    turns = Turns(cases, etcd.builds, suite=True)
    beside: list[Turn] = []
    waiting = len([n for n in spare(cases) if "etcd" not in built_for(cases[n])])
    for turn in turns:
        if etcd.builds.over:
            assert turn.beside is None
            break
        assert turn.beside == BUILT_MEANWHILE
        assert turn.case.injections
        assert "etcd" not in built_for(turn.case)
        assert turn.rest_s >= etcd.builds.left_s() - 1
        beside.append(turn)
        if len(beside) == waiting:
            etcd.end("etcd")
    assert len(beside) == waiting > 3
    assert turn.number == 1


def test_a_case_of_which_nothing_is_missing_waits_for_nothing() -> None:
    turns = [*Turns(quick(), Builds([], lambda _: None, lambda _: None), suite=True)]
    assert [turn.number for turn in turns] == [*quick()]
    assert {turn.beside for turn in turns} == {None}


def test_outside_of_a_suite_every_case_waits(etcd: Building) -> None:
    pause = resolve(make_case("redis-token", "client-pause", seed=0))
    turns = Turns({1: pause, 2: replace(pause, seed=1)}, etcd.builds, suite=False)
    threading.Timer(0.1, etcd.end, ("etcd",)).start()
    assert next(iter(turns)).beside is None
    assert etcd.builds.over


def test_a_case_that_is_run_again_waits_until_nothing_is_built(etcd: Building) -> None:
    turns = Turns(quick(), etcd.builds, suite=True)
    each = iter(turns)
    first = next(each)
    turns.again(first)
    assert next(each).number != first.number
    etcd.end("etcd")
    rest = [turn for turn in each if turn.number == first.number]
    assert [turn.beside for turn in rest] == [None]


def test_a_build_that_failed_is_named_by_its_cases_and_leaves_the_others() -> None:
    building = Building("etcd")
    building.end("etcd", failed=True)
    turns = Turns(quick(), building.builds, suite=True)
    turns.await_first()
    for turn in turns:
        needs = "etcd" in built_for(turn.case)
        assert turn.unable == ("cannot build etcd" if needs else None)


def test_where_nothing_can_be_run_nothing_begins() -> None:
    building = Building("toxiproxy")
    building.end("toxiproxy", failed=True)
    with pytest.raises(BadInput, match="the mirror is gone"):
        Turns(quick(), building.builds, suite=True).await_first()


# --- the run -------------------------------------------------------------------------------------


def test_a_run_beside_builds_is_stored_in_the_order_of_its_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, etcd: Building
) -> None:
    """And a case that ended badly beside a build is run again: here because of that alone."""
    played: list[tuple[str, str | None]] = []

    def run_case(case: Case, _folder: Path, *, beside: str | None, **_: Any) -> Outcome:
        played.append((case.name, beside))
        bad = beside is not None and case.fault == "kill"
        if "kill" in case.name and beside is not None:
            etcd.end("etcd")
        return Outcome(
            CaseResult(
                lock=case.lock,
                fault=case.fault,
                judgement="disturbed" if bad else "as expected",
                why="a worker stood still" if bad else "every promise was kept",
                ending="bench" if bad else "ok",
                numbers="void",
            ),
            {},
        )

    def versions_of(*_: object) -> Versions:
        built = ["redis", *(["etcd"] if etcd.builds.over else [])]
        return Versions(images={name: Image(ref=name, id="1") for name in built})

    engine = SimpleNamespace(version=lambda: "1")
    monkeypatch.setattr(running, "begun", lambda *_: (etcd.builds, engine))
    monkeypatch.setattr(running, "versions_of", versions_of)
    monkeypatch.setattr(running, "ForkServer", lambda _: nullcontext())
    monkeypatch.setattr(running, "remove_run", lambda _: [])
    monkeypatch.setattr(running, "run_case", run_case)
    monkeypatch.setattr(machine, "facts", lambda *_, **__: Machine())
    monkeypatch.setattr(write, "files", lambda *_: {})
    wanted = [("etcd", "none"), ("redis-token", "client-pause"), ("redis-token", "kill")]
    cases = [resolve(make_case(lock, fault, seed=0)) for lock, fault in wanted]
    cases = [replace(case, workload="payment") if case.injections else case for case in cases]
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123
        finished = running.run_cases(
            cases,
            "quick",
            Console(file=nowhere),
            command="lockbench suite quick",
            runs=tmp_path,
        )
    assert [beside for _, beside in played] == [BUILT_MEANWHILE, BUILT_MEANWHILE, None, None]
    assert [name.partition("-payment")[0] for name, _ in played] == [
        "redis-token-client-pause",
        "redis-token-kill",
        "etcd-none",
        "redis-token-kill",
    ]
    assert finished.ending.word == "ok"
    assert [case.fault for case in finished.results.cases] == ["none", "client-pause", "kill"]
    run = open_run(finished.folder)
    assert sorted(run.versions().images or {}) == ["etcd", "redis"]
    assert [folder.number for folder in run.cases()] == [1, 2, 3]
    assert len(list((finished.folder / "cut").iterdir())) == 1
