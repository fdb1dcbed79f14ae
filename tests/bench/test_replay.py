"""A schedule is played again k of n times, and made smaller only while it still breaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as evolved
from rich.console import Console

from lockbench.bench import plan, replay
from lockbench.bench.plan import Case
from lockbench.bench.suite import Finished
from lockbench.cli import adr, alerts
from lockbench.evidence import bugreport, compare, observations, track
from lockbench.report import commands
from lockbench.results import stored as evidence
from lockbench.results.documents import Entry, Machine, Results, Try, Verdict, Versions, made
from lockbench.results.errors import BadInput, Ending
from lockbench.results.store import NotARun, RunFolder, open_run
from tests.results.plain import write_case, write_machine, write_plan, write_results, write_versions

QUIET = Console(quiet=True)


def stored(tmp_path: Path, cases: Sequence[Case], *broken: str) -> Path:
    run = RunFolder.create(tmp_path / "runs", "stored")
    write_plan(run, {"name": "stored", "cases": [asdict(case) for case in cases]})
    observed = dict.fromkeys(broken, "invalid") | {"late-grant": "valid"}
    verdicts = {name: {"result": result} for name, result in observed.items()}
    found = {"lock": "etcd", "fault": "none", "observed": observed, "verdicts": verdicts}
    write_results(run, {"name": "stored", "cases": [found for _ in cases]})
    run.finish("ok")
    return run.path


def three_faults() -> Case:
    return plan.resolve(
        plan.with_time_for_faults(plan.make_case("etcd", "pause then kill then pause", seed=2))
    )


def runner(
    breaks: Callable[[Case], bool], seen: list[Case], base: Path, try_of: str | None = None
) -> replay.Runner:
    """Stands for real runs: a case breaks ``double-grant`` when the test says so."""

    def run(cases: list[Case], name: str) -> Finished:
        seen.extend(cases)
        folder_of = RunFolder.create(base, name, try_of=try_of)
        mark = {} if try_of is None else {"try_of": try_of}
        documents: list[dict[str, Any]] = []
        for number, case in enumerate(cases, 1):
            folder = folder_of.case(number, case.system.name, case.fault)
            result = "invalid" if breaks(case) else "valid"
            documents.append(
                {
                    "lock": case.system.name,
                    "fault": case.fault,
                    "observed": {"double-grant": result},
                    "verdicts": {"double-grant": {"result": result}},
                    "exposed": True,
                    "folder": folder.path.name,
                    "run": str(folder_of.path),
                    "history_sha256": {},
                }
            )
            write_case(folder, documents[-1])
        results = {"name": name, **mark, "cases": documents, "ending": "safety"}
        write_plan(folder_of, {"name": name, **mark, "cases": [asdict(case) for case in cases]})
        write_machine(folder_of, {})
        write_versions(folder_of, {})
        write_results(folder_of, results)
        folder_of.finish("safety")
        return Finished(Ending.SAFETY, folder_of.path, made(Results, results))

    return run


def test_the_same_schedule_is_played_as_often_as_asked(tmp_path: Path) -> None:
    case, seen = three_faults(), list[Case]()
    turns = iter([True, False, True])
    folder = stored(tmp_path, [case], "double-grant")
    finished = replay.replay(folder, 3, runner(lambda _: next(turns), seen, tmp_path / "new"))
    assert seen == [case] * 3
    told = finished.results.replay
    assert told is not None
    assert (told.times, told.cases[0].shown) == (3, {"double-grant": 2})
    assert open_run(finished.folder).results() == finished.results


UNSEEN = {"exposed": False, "judgement": "not exposed"}
FELL_OVER = {"judgement": "failed", "ending": "bench"}


@pytest.mark.parametrize(
    ("broke", "amiss", "said"),
    [
        ("-----", {}, "nothing broke in 5"),
        ("xx---", {}, "double-grant 2 of 5"),
        ("-----", dict.fromkeys(range(5), UNSEEN), "nothing was shown, not counted: 5 of 5"),
        ("-----", dict.fromkeys(range(5), FELL_OVER), "nothing was shown, not counted: 5 of 5"),
        ("-----", {1: UNSEEN, 3: FELL_OVER}, "nothing broke in 3, not counted: 2 of 5"),
        # What broke counts, whatever else there was.
        ("xx---", {0: FELL_OVER, 2: UNSEEN}, "double-grant 2 of 4, not counted: 1 of 5"),
    ],
)
def test_n_are_the_times_that_say_anything(
    tmp_path: Path, broke: str, amiss: dict[int, dict[str, Any]], said: str
) -> None:
    case, turns = three_faults(), iter(broke)
    play = runner(lambda _: next(turns) == "x", [], tmp_path / "new")

    def run(cases: list[Case], name: str) -> Finished:
        finished = play(cases, name)
        found = finished.results.cases
        held = {"late-grant": Verdict("valid")}
        found = tuple(
            evolved(one, verdicts={**one.verdicts, **held}, **amiss.get(n, {}))
            for n, one in enumerate(found)
        )
        return replace(finished, results=evolved(finished.results, cases=found))

    told = replay.replay(stored(tmp_path, [case]), 5, run).results.replay
    assert told is not None
    console = Console(file=StringIO(), width=200)
    replay.say(told, console)
    assert isinstance(console.file, StringIO)
    assert console.file.getvalue().splitlines()[0] == f"{case.name}: {said}"


def test_earlier_tries_count_and_what_is_refuted_is_no_break(tmp_path: Path) -> None:
    """As in every other k of n."""
    case, turns = three_faults(), iter([True, False, True])
    play = runner(lambda _: next(turns), [], tmp_path / "new")
    earlier = Try(observed={"double-grant": "invalid"}, exposed=True)
    refuted = Verdict("invalid", evidence=(Entry("grant", "a grant", says="contradicted"),))

    def run(cases: list[Case], name: str) -> Finished:
        finished = play(cases, name)
        broke, held, contradicted = finished.results.cases
        held = evolved(held, earlier_tries=(earlier,))
        contradicted = evolved(contradicted, verdicts={"double-grant": refuted})
        found = evolved(finished.results, cases=(broke, held, contradicted))
        return replace(finished, results=found)

    told = replay.replay(stored(tmp_path, [case]), 3, run).results.replay
    assert told is not None
    (one,) = told.cases
    assert (one.shown, one.counted, one.played) == ({"double-grant": 2}, 3, 4)
    console = Console(file=StringIO(), width=200)
    replay.say(told, console)
    assert isinstance(console.file, StringIO)
    assert "double-grant 2 of 3, not counted: 1 of 4" in console.file.getvalue()


def test_only_what_the_violation_needs_is_left(tmp_path: Path) -> None:
    """The kill is what breaks it, in this test's world."""
    case, seen = three_faults(), list[Case]()
    folder = stored(tmp_path, [case], "double-grant")

    def kill_breaks(tried: Case) -> bool:
        return any(injection.fault == "kill" for injection in tried.injections)

    tries = runner(kill_breaks, seen, folder.parent, str(folder))
    _, left = replay.shrink(folder, tries, QUIET)
    assert [injection.fault for injection in left.injections] == ["kill"]
    # The fault that is left begins when it did before.
    assert left.injections[0] == case.injections[1]
    # What is written for --fault is the same schedule again.
    words = replay.schedule_words(left)
    again = plan.resolve(plan.with_time_for_faults(plan.make_case("etcd", words, seed=2)))
    assert [(i.fault, i.begin_s, i.duration_s, i.parameters) for i in again.injections] == [
        (i.fault, i.begin_s, i.duration_s, i.parameters) for i in left.injections
    ]


def test_the_run_that_still_breaks_is_kept_and_its_tries_show_nothing(tmp_path: Path) -> None:
    case = three_faults()
    folder = stored(tmp_path, [case], "double-grant")
    tries = runner(lambda one: any(i.fault == "kill" for i in one.injections), [], folder.parent,
                   "runs/stored")  # fmt: skip
    finished, left = replay.shrink(folder, tries, QUIET)
    latest = open_run(folder.parent / "latest")
    assert latest.path == finished.folder.resolve()
    assert latest.path.name.endswith(f"shrunk-{folder.name}")
    # What was kept says what it played and whence it comes, everywhere.
    assert latest.results() == finished.results
    assert finished.results.shrunk_from == latest.plan().shrunk_from == "runs/stored"
    (document,) = finished.results.cases
    assert document.fault == left.fault == replay.schedule_words(left)
    assert document.fault.startswith("kill:at=")
    assert document.run == str(finished.folder)
    assert latest.cases()[0].read_case() == document
    assert replay.stored_cases(latest.path) == [left]
    assert evidence.left_out([folder.parent]) is not None
    others = [p for p in folder.parent.iterdir() if p.name.endswith("shrink-try")]
    assert others
    for path in others:
        assert open_run(path).plan().try_of == open_run(path).results().try_of == "runs/stored"


def test_a_try_is_evidence_for_nothing_and_what_was_kept_is_not_counted(tmp_path: Path) -> None:
    folder = stored(tmp_path, [three_faults()], "double-grant")
    tries = runner(lambda one: len(one.injections) > 1, [], folder.parent, "runs/stored")
    replay.shrink(folder, tries, QUIET)
    a_try = next(p for p in folder.parent.iterdir() if p.name.endswith("shrink-try"))
    kept = open_run(folder.parent / "latest")
    asked, quiet = adr.answers(None, None, None, None), Console(quiet=True)

    def record(path: Path) -> object:
        return adr.adr([path], asked, anyway=False, output=None, as_json=True, out=quiet)

    uses: list[Callable[[Path], object]] = [
        record,
        lambda path: compare.compare(path, path, anyway=True, as_json=True, junit=None, out=quiet),
        lambda path: observations.add(observations.Observations(), [path], tmp_path),
        lambda path: alerts.alerts([path], as_json=True, out=quiet),
        bugreport.bugreport,
        commands.report,
        lambda path: commands.export(path, "csv", tmp_path / "out"),
        lambda path: track.cut(path, "double-grant"),
    ]
    for use in uses:
        with pytest.raises((BadInput, NotARun), match="is a try of `--shrink` on runs/stored"):
            use(a_try)
    # The run that was kept can be shown and drawn, but nobody may count it.
    with pytest.raises(NotARun, match="does, and not how often"):
        evidence.countable([evidence.Stored(kept, kept.evidence(), Machine(), Versions())])


def test_what_was_made_with_another_version_is_not_played_with_this(tmp_path: Path) -> None:
    folder = stored(tmp_path, [three_faults()])
    write_versions(open_run(folder), {"sides": {"with": {"ref": "redis==8.0.1"}}})
    with pytest.raises(BadInput, match=r"was made with redis==8\.0\.1"):
        replay.stored_cases(folder)
    # Both sides of a change are plain cases of this tree where they are played again.
    write_versions(open_run(folder), {"sides": {"base": {"ref": "current"}}})
    assert replay.stored_cases(folder) == [three_faults()]


def test_a_stored_try_of_an_older_kind_is_called_after_what_it_played(tmp_path: Path) -> None:
    """Its plan holds no fault, or fewer, under the words of them all."""
    case = three_faults()
    for injections, fault in (((), "none"), (case.injections[1:2], "kill:at=")):
        folder = stored(tmp_path / fault[:4], [replace(case, injections=injections)])
        (found,) = replay.stored_cases(folder)
        assert found.fault.startswith(fault)
        assert found.injections == injections
    (whole,) = replay.stored_cases(stored(tmp_path / "whole", [case]))
    assert whole == case


def test_a_race_gets_three_tries_before_it_counts_as_gone(tmp_path: Path) -> None:
    case, seen = three_faults(), list[Case]()
    folder = stored(tmp_path, [case], "double-grant")
    tries: dict[int, int] = {}

    def third_time(tried: Case) -> bool:
        count = tries[len(tried.injections)] = tries.get(len(tried.injections), 0) + 1
        return count % 3 == 0

    finished, left = replay.shrink(folder, runner(third_time, seen, folder.parent, "stored"), QUIET)
    # What still shows without any fault is called so.
    assert (left.injections, left.fault) == ((), "none")
    assert finished.results.cases[0].fault == "none"
    assert {case.fault for case in seen if not case.injections} == {"none"}


def test_what_does_not_show_again_is_said(tmp_path: Path) -> None:
    folder = stored(tmp_path, [three_faults()], "double-grant")
    with pytest.raises(BadInput, match="did not show again in 3 tries"):
        replay.shrink(folder, runner(lambda _: False, [], folder.parent, "it"), QUIET)
    assert (folder.parent / "latest").resolve() == folder.resolve()


def test_what_cannot_be_played_again_is_said(tmp_path: Path) -> None:
    case = three_faults()
    never = runner(lambda _: True, [], tmp_path / "never")
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
