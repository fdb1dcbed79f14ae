"""A stopped run goes on where it stopped; what does not fit to what is there is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as evolved

from lockbench.bench import resume, suites
from lockbench.bench.plan import Case, tries_of
from lockbench.checker.check import check
from lockbench.checker.clocks import on_one_clock
from lockbench.history.recording import read_recording
from lockbench.results import documents
from lockbench.results.documents import Image, Machine, Plan, Try, Versions, made
from lockbench.results.errors import BadInput, Ending
from lockbench.results.numbers import measure
from lockbench.results.rates import step_of
from lockbench.results.store import RunFolder
from lockbench.results.stored import blocks_of
from tests.results.made_run import record
from tests.results.plain import plain, write_case, write_machine, write_plan, write_versions

COMMAND = "lockbench suite full --lock 'redis-token' --fault 'none,wipe,kill'"
FACTS = {name: 1 if name in {"cores_usable", "memory_bytes"} else "1" for name in resume.MACHINE}
MACHINE = made(Machine, FACTS)
VERSIONS = Versions(images={"redis": Image(id="a")})


def cases() -> tuple[Case, ...]:
    whole = suites.suite("full", seed=0)
    return suites.sliced(whole, ["redis-token"], ["none", "wipe", "kill"]).cases


def plan() -> Plan:
    return resume.planned("full", cases(), command=COMMAND)


def finish_case(run: RunFolder, number: int, *, fault: str = "none", **changes: object) -> Path:
    again = f"-try{changes['tries']}" if changes.get("tries", 1) != 1 else ""
    folder = run.case(number, "redis-token", fault + again)
    phases = record(folder.history, 400, faulty=False)
    history = read_recording(folder.history)
    document: dict[str, Any] = {
        "lock": "redis-token",
        "fault": fault,
        "folder": folder.path.name,
        "judgement": "as expected",
        "ending": "ok",
        "numbers": "valid",
        "tries": 1,
        "earlier_tries": [],
        **plain(measure(history, phases, unknown_after_s=1.0)),
        **check(history).to_json(),
        "history_sha256": folder.history_sha256(),
        **changes,
    }
    write_case(folder, document)
    return folder.path


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    """One case done, the second cut, the third never begun; its bench is dead."""
    run = RunFolder.create(tmp_path, "full")
    write_plan(run, plan())
    write_machine(run, MACHINE)
    write_versions(run, VERSIONS)
    finish_case(run, 1)
    record(run.case(2, "redis-token", "kill").history, 400, faulty=False)
    run.let_go()
    return run


def test_finished_cases_are_kept_and_the_one_that_was_cut_is_moved_away(run: RunFolder) -> None:
    again = resume.stopped(run.path, plan())
    resume.same_conditions(again, MACHINE, VERSIONS)
    done = resume.finished(again, cases())
    assert list(done) == [1]
    assert done[1].lock == "redis-token"
    resume.take_over(again, done)
    assert again.ending == "running"
    assert [folder.path.name for folder in again.cases()] == ["01-redis-token-none"]
    assert list((run.path / "cut").glob("02-redis-token-kill/history/*.ops"))
    # It is ours now, and its place is free; a second cut of the same case loses nothing.
    with pytest.raises(BadInput, match="still at work"):
        resume.stopped(run.path, plan())
    again.case(2, "redis-token", "kill")
    again.let_go()
    third = resume.stopped(run.path, plan())
    resume.take_over(third, done)
    assert len(list((run.path / "cut").iterdir())) == 2
    third.let_go()


def test_through_the_link_to_the_newest(run: RunFolder) -> None:
    again = resume.stopped(run.path.parent / "latest", plan())
    assert again.path.resolve() == run.path.resolve()
    assert not again.path.is_absolute()


@pytest.mark.parametrize("what", ["seed", "limit", "fewer"])
def test_another_plan_is_refused_and_the_words_of_the_first_are_said(
    run: RunFolder, what: str
) -> None:
    first, *rest = cases()
    other = {
        "seed": [replace(first, seed=1), *rest],
        "limit": [replace(first, time_limit_s=99.0), *rest],
        "fewer": rest,
    }[what]
    with pytest.raises(BadInput, match=r"another plan.*--fault 'none,wipe,kill'"):
        resume.stopped(run.path, resume.planned("full", other, command="x"))


def test_a_run_that_was_no_suite_is_refused(run: RunFolder) -> None:
    write_plan(run, resume.planned("redis-token-none", cases()))
    with pytest.raises(BadInput, match="not the run of a suite"):
        resume.stopped(run.path, plan())
    with pytest.raises(BadInput, match="does not exist"):
        resume.stopped(run.path / "nowhere", plan())


def test_another_machine_and_other_versions_are_refused(run: RunFolder) -> None:
    with pytest.raises(BadInput, match=r"another machine \(cpu differ\)"):
        resume.same_conditions(run, evolved(MACHINE, cpu="other"), VERSIONS)
    with pytest.raises(BadInput, match="other versions"):
        resume.same_conditions(run, MACHINE, Versions(images={"redis": Image(id="b")}))


def test_a_history_that_was_changed_is_refused(run: RunFolder) -> None:
    path = next((run.path / "cases" / "01-redis-token-none" / "history").glob("*.ops"))
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\x07")
    with pytest.raises(BadInput, match=r"not the one that was judged.*remove that case's folder"):
        resume.finished(run, cases())


def test_a_verdict_that_was_edited_is_refused(run: RunFolder) -> None:
    path = run.path / "cases" / "01-redis-token-none" / "case.json"
    document = json.loads(path.read_text())
    document["verdicts"]["double-grant"]["result"] = "invalid"
    path.write_text(json.dumps(document))
    with pytest.raises(BadInput, match="double-grant is stored as invalid"):
        resume.finished(run, cases())


@pytest.mark.parametrize("word", ["could not run", "disturbed", "failed"])
def test_what_came_to_nothing_is_run_anew(run: RunFolder, word: str) -> None:
    """A disk may have been full, and have room now."""
    finish_case(run, 3, fault="wipe", judgement=word, ending="bench")
    assert list(resume.finished(run, cases())) == [1]


@pytest.mark.parametrize(
    ("changes", "blocks"),
    [
        ({}, 1),
        ({"judgement": "failed", "ending": "bench", "numbers": "void"}, 0),
        # A violation is told first; only its numbers say that the load was cut.
        ({"ending": "safety", "numbers": "void", "generator": {"ok": True}}, 0),
        ({"numbers": "void", "generator": {"ok": False, "why": ["it lagged"]}}, 1),
    ],
)
def test_a_case_whose_load_was_cut_brings_no_rates(
    run: RunFolder, changes: dict[str, Any], blocks: int
) -> None:
    """Neither when it ended nor after a resume, although its document keeps what was seen."""
    history = on_one_clock(read_recording(run.cases()[0].history))
    step = step_of(history, 0, 10**9, unknown_after_s=1.0).step
    finish_case(run, 3, fault="wipe", rates=[plain(step)], **changes)
    document = run.cases()[-1].read_case()
    assert document is not None
    assert len(document.rates) == 1
    assert len(blocks_of(run, document)) == blocks


def test_a_break_that_is_due_is_given_all_of_its_tries(run: RunFolder) -> None:
    (wipe,) = (n for n, case in enumerate(cases(), 1) if case.fault == "wipe")
    tries = tries_of(cases()[wipe - 1])
    assert tries > 1
    finish_case(run, wipe, fault="wipe", judgement="did not show", ending="bench")
    assert wipe not in resume.finished(run, cases())
    finish_case(run, wipe, fault="wipe", judgement="did not show", ending="bench", tries=tries)
    assert resume.finished(run, cases())[wipe].tries == tries


def test_a_run_with_nothing_left_is_complete(run: RunFolder) -> None:
    for folder in run.cases()[1:]:
        run.set_aside(folder)
    finish_case(run, 2)
    finish_case(run, 3)
    with pytest.raises(BadInput, match="all of its 3 cases are done"):
        resume.finished(run, cases())


def test_a_try_that_was_undecided_stays_so() -> None:
    again = Try(observed={"double-grant": "unknown"})
    document = documents.CaseResult(lock="etcd", fault="kill", ending="ok", earlier_tries=(again,))
    assert resume.ending_of(document) is Ending.INCONCLUSIVE
    assert resume.ending_of(evolved(document, ending="safety")) is Ending.SAFETY
    assert resume.ending_of(evolved(document, earlier_tries=())) is Ending.OK
