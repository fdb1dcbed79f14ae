"""A night without clusters: its endings, its retry, its streak, and that each failure names the
command that repeats it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as evolved
from rich.console import Console

from bench import plan
from bench.suite import Finished
from evidence import nightly
from evidence.nightly import NIGHTS, Night, exit_code, finish, run_night
from report.trends import page
from results.comparison import Comparison
from results.documents import CaseResult, Results
from results.errors import BadInput, Ending
from tests.results.measured_noise import case as case_of

FAIL_ON = nightly.FAIL_ON


@pytest.mark.parametrize(
    ("ending", "earlier", "code"),
    [
        ("ok", [], 0),
        ("safety", [], 1),
        ("regression", [], 3),
        ("inconclusive", [], 0),
        ("inconclusive", ["ok", "inconclusive"], 0),
        ("inconclusive", ["inconclusive", "inconclusive"], 2),
        ("inconclusive", ["bench", "inconclusive"], 2),
        ("inconclusive", ["inconclusive", "ok"], 0),
        ("inconclusive", ["inconclusive", "inconclusive", "ok", "inconclusive"], 0),
        ("bench", [], 0),
        ("bench", ["inconclusive", "bench"], 255),
    ],
)
def test_red_for_safety_regression_and_three_nights_without_an_answer(
    ending: str, earlier: Sequence[str], code: int
) -> None:
    assert exit_code(ending, FAIL_ON, earlier) == code


def test_fail_on_names_what_fails() -> None:
    assert exit_code("bench", ["bench"], []) == 255
    assert exit_code("regression", ["safety"], []) == 0


def document(lock: str, fault: str, ending: str, why: str = "") -> CaseResult:
    case = case_of(1.0, 3.0, 200.0)
    return evolved(case, lock=lock, fault=fault, workload="mutex", seed=5, ending=ending, why=why)


def compared(ending: str) -> Comparison:
    return Comparison(
        "regress", "a", "b", ending, f"head of {ending}", [], [], [], "again with this"
    )


Play = Callable[[plan.Case, int], str]


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Night]:
    """A night whose cases end as ``play(case, try)`` says and whose comparison ends as told."""
    monkeypatch.chdir(tmp_path)
    rounds: list[list[plan.Case]] = []

    def go(play: Play, comparison: str | None = None) -> Night:
        def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
            rounds.append(list(cases))
            made = [
                document(c.lock, c.fault, play(c, len(rounds)), f"why in try {len(rounds)}")
                for c in cases
            ]
            return Finished(Ending.OK, Path("runs") / name, Results(cases=tuple(made)))

        monkeypatch.setattr(nightly, "run_cases", run_cases)
        monkeypatch.setattr(nightly, "_baselines", lambda _: [])
        if comparison is not None:
            monkeypatch.setattr(
                nightly, "_baselines", lambda _: [("redis", "x:1", ["redis-token"])]
            )
            answer = (
                Finished(Ending.OK, Path("runs/regress"), Results(cases=())),
                compared(comparison),
            )
            monkeypatch.setattr(nightly, "regress", lambda *_: answer)
        made = run_night(
            base=None, new=None, locks=["redis-token"], seed=5, console=Console(quiet=True)
        )
        made.notes.append(f"{len(rounds)} rounds")
        return made

    return go


def ending_of(night: Night, folder: Path) -> tuple[str, int, str]:
    """As a CI job sees it."""
    run, code = finish(night, FAIL_ON)
    latest = (folder / "runs" / "latest" / "ending").read_text().strip()
    assert latest == night.ending
    return latest, code, (run.path / "report.md").read_text()


def test_a_quiet_night(night: Any, tmp_path: Path) -> None:
    ending, code, report = ending_of(night(lambda *_: "ok"), tmp_path)
    assert (ending, code) == ("ok", 0)
    assert report.startswith("# ok: ")
    assert "nothing to compare" in report


def test_an_inconclusive_case_is_repeated_once_with_another_seed(
    night: Any, tmp_path: Path
) -> None:
    def play(case: plan.Case, tried: int) -> str:
        first = (case.lock, case.fault) == ("etcd", "kill")
        return "inconclusive" if first and tried == 1 else "ok"

    made = night(play)
    assert "2 rounds" in made.notes
    assert made.ending == "ok"
    (case,) = [c for c in made.planned if (c.lock, c.fault) == ("etcd", "kill")]
    assert case.seed == 6
    assert ending_of(made, tmp_path)[1] == 0


def test_a_violation_found_by_the_retry_counts(night: Any, tmp_path: Path) -> None:
    def play(case: plan.Case, tried: int) -> str:
        if (case.lock, case.fault) != ("etcd", "kill"):
            return "ok"
        return "inconclusive" if tried == 1 else "safety"

    ending, code, report = ending_of(night(play), tmp_path)
    assert (ending, code) == ("safety", 1)
    assert report.startswith("# safety: ")
    assert "lockbench run --lock etcd --fault kill" in report


@pytest.mark.parametrize("comparison", ["regression", "inconclusive", "bench"])
def test_the_endings_are_told_apart_and_name_a_command(
    night: Any, tmp_path: Path, comparison: str
) -> None:
    ending, code, report = ending_of(night(lambda *_: "ok", comparison), tmp_path)
    assert ending == comparison
    assert code == (3 if comparison == "regression" else 0)
    assert report.startswith(f"# {comparison}: ")
    assert "    again with this" in report


def test_what_there_was_no_time_for_is_not_green(
    night: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Night, "minutes_left", lambda _: 0.5)
    ending, code, report = ending_of(night(lambda *_: "ok", "ok"), tmp_path)
    assert (ending, code) == ("inconclusive", 0)
    assert "no time was left to compare" in report
    assert "    lockbench regress --base redis=x:1 --new current" in report


def test_three_nights_without_an_answer_are_red(night: Any, tmp_path: Path) -> None:
    codes = [ending_of(night(lambda *_: "inconclusive"), tmp_path)[1] for _ in range(3)]
    assert codes == [0, 0, 2]
    lines = (tmp_path / "runs" / NIGHTS).read_text().splitlines()
    assert [json.loads(line)["ending"] for line in lines] == ["inconclusive"] * 3


def test_trends_are_a_page_that_loads_nothing(night: Any, tmp_path: Path) -> None:
    for _ in range(2):
        ending_of(night(lambda *_: "ok"), tmp_path)
    page = (tmp_path / "runs" / "trends.html").read_text()
    assert "uncontended acquire, service time, p50" in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<script" not in page
    assert len(re.findall(r"<path transform=\"translate", page)) >= 2, "a point a night"


def test_trends_show_a_gap_and_leave_names_as_text() -> None:
    nights = [
        {"date": "1", "ending": "ok", "numbers": {"<b>.py:Lock": {"acquire-p50": value}}}
        for value in (1.0, 3.0, None, 2.0)
    ]
    made = page([*nights, {"date": "5", "ending": "bench"}])
    assert "<b>" not in made
    figures = re.findall(r'<td class="num">([^<]+)</td>', made)
    assert figures == ["3", "1.00", "2.00", "3.00", "2.00"]
    line = re.search(r'<path d="(M[^"]+)" stroke=', made)
    assert line is not None
    assert line[1].count("M") == 2, "the pen is lifted over the night without a number"


def test_no_night_is_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "MINUTES_MAX", 5.0)
    monkeypatch.setattr(nightly, "_baselines", lambda _: [])
    with pytest.raises(BadInput, match="this night would take"):
        run_night(base=None, new=None, locks=[], seed=0, console=Console(quiet=True))


def test_a_crash_after_a_good_part_is_no_good_night(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash(**_: Any) -> Night:
        raise RuntimeError("of our own")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "run_night", crash)
    assert nightly.main([]) == 255
    assert (tmp_path / "runs" / "latest" / "ending").read_text() == "bench\n"
    assert "of our own" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", [["--fail-on", "slow"], ["--base", "current"], ["--nonsense"], ["--seed", "x"]]
)
def test_bad_words_are_254(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert nightly.main(words) == 254
    assert "nightly: " in capsys.readouterr().err
