"""A night without clusters: its endings, its retry, its streak, and that each failure names the
command that repeats it."""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace as evolved
from rich.console import Console

from lockbench.bench import plan
from lockbench.bench.run import EXTRAS
from lockbench.bench.suite import Finished
from lockbench.bench.suites import sampled, suite
from lockbench.clusters.recipes import CLIENTS
from lockbench.evidence import baseline, nightly, planted
from lockbench.evidence.baseline import Pinned
from lockbench.evidence.nightly import NIGHTS, Night, code_of, finish, read_nights, run_night
from lockbench.evidence.regress_plan import Order
from lockbench.locks.redis import token
from lockbench.locks.redis.recipe import Taken
from lockbench.locks.registry import systems
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.library import library_of
from lockbench.report.trends import figures_of, page, versions_in
from lockbench.results import documents
from lockbench.results.comparison import Comparison
from lockbench.results.documents import CaseResult, Results, Try
from lockbench.results.errors import BadInput, Ending
from lockbench.results.gate import Cell
from lockbench.results.quantiles import P99, needed
from lockbench.results.store import RunFolder, StoreError
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
        ("regression inconclusive", [], 3),
        ("regression bench inconclusive", ["ok"], 3),
        ("bench inconclusive", ["ok"], 0),
    ],
)
def test_red_for_safety_regression_and_three_nights_without_an_answer(
    ending: str, earlier: Sequence[str], code: int
) -> None:
    assert code_of(ending.split(), FAIL_ON, earlier) == code


def test_fail_on_names_what_fails() -> None:
    assert code_of(["bench"], ["bench"], []) == 255
    assert code_of(["regression"], ["safety"], []) == 0


def document(lock: str, fault: str, ending: str, why: str = "") -> CaseResult:
    case = case_of(1.0, 3.0, 200.0)
    return evolved(case, lock=lock, fault=fault, workload="mutex", seed=5, ending=ending, why=why)


def compared(ending: str, *cells: Cell, again: str = "again with this") -> Comparison:
    said = {ending: f"head of {ending}"}
    return Comparison("regress", "a", "b", [ending], said, [], cells, [], again)


def cell(word: Any, *, metric: str = "acquire-p50", **values: Any) -> Cell:
    return Cell("redis-token", "none", metric, word, 20, 1.0, 1.25, 0.25, 0.1, 0.4, **values)


PINNED = Pinned(commit="a" * 40, lock_sha256="b" * 64, images={"redis": "sha256:" + "c" * 64})
Play = Callable[[plan.Case, int], str]
Told = Callable[..., Night]


@pytest.fixture
def night(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Told:
    """A night whose cases end as ``play(case, try)`` says and whose comparisons end as told."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(baseline, "read", lambda *_: PINNED)
    monkeypatch.setattr(nightly, "install", lambda *_: {})
    monkeypatch.setattr(nightly, "known_locks", lambda _: set(systems()))
    monkeypatch.setattr(nightly, "checked_out", lambda: "d" * 40)

    def go(
        play: Play,
        comparison: Comparison | None = None,
        *,
        same: Comparison | None = None,
        slower: Comparison | None = None,
    ) -> Night:
        rounds: list[list[plan.Case]] = []

        def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
            rounds.append(list(cases))
            made = [
                document(c.lock, c.fault, play(c, len(rounds)), f"why in try {len(rounds)}")
                for c in cases
            ]
            return Finished(Ending.OK, Path("runs") / name, Results(cases=tuple(made)))

        def regress(asked: Order, _: Console) -> tuple[Finished, Comparison]:
            base, new = asked.sides
            if new.lock is not None:
                made = slower or compared("regression", cell("worse"))
            elif base.pinned is None:
                made = same or compared("ok")
            else:
                whole = ("redis-token", "none") in asked.cases
                made = comparison if whole and comparison is not None else compared("ok")
            return Finished(Ending.OK, Path("runs/regress"), Results(cases=())), made

        monkeypatch.setattr(nightly, "run_cases", run_cases)
        monkeypatch.setattr(nightly, "regress", regress)
        made = Night(time.monotonic())
        run_night(
            made,
            base="baseline",
            new="current",
            locks=["redis-token"],
            seed=5,
            console=Console(quiet=True),
        )
        made.notes.append(f"{len(rounds)} rounds")
        return made

    return go


def ending_of(night: Night, folder: Path) -> tuple[str, int, str]:
    """As a CI job sees it."""
    run, code = finish(night, FAIL_ON, folder / "kept", read_nights(folder / "kept"))
    latest = (folder / "runs" / "latest" / "ending").read_text().strip()
    assert latest == night.ending
    return latest, code, (run.path / "report.md").read_text()


def test_a_quiet_night(night: Any, tmp_path: Path) -> None:
    ending, code, report = ending_of(night(lambda *_: "ok"), tmp_path)
    assert (ending, code) == ("ok", 0)
    assert report.startswith("# ok: ")
    assert "Control: 25% planted" in report


def test_by_default_everything_is_compared_with_the_pinned_baseline(
    night: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every lock without a fault, one of them in long runs, and how long one takes to serve
    again."""
    given = nightly._arguments([])
    assert (given.base, given.new) == ("baseline", "current")
    monkeypatch.setattr(baseline, "read", lambda *_: PINNED)
    quick, under, long = nightly._orders("baseline", "current", ["redis-token", "etcd"], 5)
    plain = {**quick.cases, **long.cases}
    assert set(plain) == {("redis-token", "none"), ("etcd", "none")}
    assert [len(order.cases) for order in (quick, under, long)] == [1, 1, 1]
    base, new = plain["redis-token", "none"]
    assert (base.images, new.images) == ((("redis", PINNED.images["redis"]),), ())
    assert plain["etcd", "none"][0].images == ()
    assert all("--base baseline --new current" in order.repeat for order in (quick, under, long))


def test_every_lock_and_fault_to_recover_from_has_its_night_and_the_report_says_which(
    night: Any, tmp_path: Path
) -> None:
    locks = ["redis-token", "etcd", "zookeeper"]
    nights = [nightly._orders("current", "current", locks, seed) for seed in range(100)]
    under = {key for _, order, _ in nights for key in order.cases}
    assert under == {(lock, fault) for lock in locks for fault in nightly.RECOVERS_FROM}
    assert {lock for *_, order in nights for lock, _ in order.cases} == set(locks)
    again = nightly._orders("current", "current", locks, 7)
    assert [order.repeat for order in again] == [order.repeat for order in nights[7]]
    _, _, report = ending_of(night(lambda *_: "ok"), tmp_path)
    assert re.search(r"compared: redis-token under (kill|pause|partition-drop), 10 pairs", report)
    assert "compared: redis-token under none, 7 pairs of 78 s" in report


def test_long_runs_have_the_samples_of_a_p99() -> None:
    *_, long = nightly._orders("current", "current", ["redis-token"], 0)
    (case,) = {case for both in long.cases.values() for case in both}
    acquires = (case.clients + EXTRAS) * case.phases.own_s / case.pace.own_period_s
    assert 1.03 * needed(P99) <= acquires <= 1.06 * needed(P99)
    assert long.pairs >= long.needed


def test_every_night_fits_into_its_time() -> None:
    for seed in range(60):
        locks, _ = nightly.usual(seed, set(systems()))
        orders = nightly._orders("current", "current", locks, seed)
        same, slower = nightly._controls(seed)
        apart_s = sum(order.expected_s for order in (*orders, same, slower, slower))
        minutes = (suite("nightly", seed).expected_s + apart_s) / 60
        assert minutes <= nightly.MINUTES_MAX, (seed, locks)


def test_a_lock_that_the_baseline_does_not_have_is_left_out_and_named(
    night: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """One more library must not end the night in which it is drawn."""
    known = set(systems()) - {"etcd3gw-safe", "redlock"}
    nights = [nightly.usual(seed, known) for seed in range(100)]
    assert not {"etcd3gw-safe", "redlock"} & {name for locks, _ in nights for name in locks}
    assert {tuple(left) for _, left in nights} == {("redlock", "etcd3gw-safe")}
    night(lambda *_: "ok")
    monkeypatch.setattr(
        nightly, "known_locks", lambda side: known if side.pinned else set(systems())
    )
    assert nightly.main([]) == 0
    report = (tmp_path / "runs" / "latest" / "report.md").read_text()
    assert "not compared, unknown to base: redlock, etcd3gw-safe." in report


def test_every_adapted_library_has_its_night() -> None:
    nights = [nightly.usual(seed, set(systems()))[0] for seed in range(100)]
    assert all(locks[:-1] == list(sampled()) for locks in nights)
    libraries = [library_of(systems()[locks[-1]]) for locks in nights]
    assert {type(one).__name__ for one in libraries} == {"Library", "ContainerLibrary"}
    assert {one.image for one in libraries if isinstance(one, ContainerLibrary)} == set(CLIENTS)
    week = {locks[-1] for locks in nights[:7]}
    assert len(week) == 7


@pytest.mark.parametrize(("granted", "times"), [(True, 1.25), (False, 1.0)])
def test_what_is_planted_is_a_quarter_of_a_grant(
    monkeypatch: pytest.MonkeyPatch, granted: bool, times: float
) -> None:
    clock = itertools.count(0, 1000)
    try_ns = 4_000_000

    def take(*__: Any) -> Taken | None:
        for _ in range(try_ns // 1000):
            next(clock)
        return Taken(0) if granted else None

    monkeypatch.setattr(token.RedisToken, "take", take)
    monkeypatch.setattr(time, "monotonic_ns", lambda: next(clock))
    began_ns = next(clock)
    assert (planted.Slower.__new__(planted.Slower).take("k", "t", 1) is not None) is granted
    assert (next(clock) - began_ns) / try_ns == pytest.approx(times, rel=0.01)


def test_a_night_without_a_baseline_is_refused_and_makes_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    nowhere = tmp_path / "baseline.json"
    real = baseline.read
    monkeypatch.setattr(baseline, "read", lambda: real(nowhere))
    assert nightly.main([]) == 254
    assert "there is no baseline" in capsys.readouterr().err
    assert not nowhere.exists()
    (line,) = read_nights(tmp_path / "runs")
    assert line.endings == ("bench",), "and no gap in the history"
    assert line.void[0].startswith("refused: there is no baseline")
    assert "there is no baseline" in (tmp_path / "runs" / "trends.html").read_text()


@pytest.mark.parametrize("word", ["no difference shown", "too noisy", "too few pairs"])
def test_a_night_that_misses_what_was_planted_is_void(
    night: Any, tmp_path: Path, word: Any
) -> None:
    slow = compared("regression", cell("worse", p_worse=0.001))
    missed = night(lambda *_: "ok", slow, slower=compared("ok", cell(word), again="this control"))
    ending, code, report = ending_of(missed, tmp_path)
    assert (ending, code) == ("bench", 255)
    assert "the planted slowdown of 25% was not found" in report
    assert "    this control" in report
    assert "regression" not in missed.endings, "no number of a void night counts"
    assert "head of regression" in report, "and none is hidden"
    assert read_nights(tmp_path / "kept")[0].figures == {}


def test_a_night_in_which_a_lock_differs_from_itself_is_void(night: Any, tmp_path: Path) -> None:
    for word in ("worse", "improved"):
        made = night(lambda *_: "ok", same=compared("regression", cell(word)))
        assert ending_of(made, tmp_path)[:2] == ("bench", 255)
        assert "a lock differs from itself: redis-token uncontended acquire" in made.headline
    innocent = night(lambda *_: "ok", same=compared("ok", cell("no difference shown")))
    assert innocent.endings == ("ok",)
    unknown = night(lambda *_: "ok", same=compared("inconclusive", cell("too noisy")))
    assert unknown.endings == ("inconclusive",), "and never green"


def test_a_promise_that_breaks_in_a_control_is_told(night: Any, tmp_path: Path) -> None:
    made = night(lambda *_: "ok", same=compared("safety"))
    assert ending_of(made, tmp_path)[:2] == ("safety", 1)


def test_a_slowdown_is_corrected_for_the_whole_night(night: Any) -> None:
    """Forty numbers, of which one alone would have been worse."""
    others = [cell("no difference shown", metric="handover-p50", p_worse=0.9)] * 39
    barely, surely = (
        night(lambda *_: "ok", compared("regression", cell("worse", p_worse=p), *others))
        for p in (0.01, 0.0001)
    )
    assert barely.endings == ("inconclusive",)
    assert surely.endings == ("regression",)


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
    cells = [cell("worse", p_worse=0.001)] if comparison == "regression" else []
    told = compared(comparison, *cells)
    ending, code, report = ending_of(night(lambda *_: "ok", told), tmp_path)
    assert ending == comparison
    assert code == (3 if comparison == "regression" else 0)
    assert report.startswith(f"# {comparison}: ")
    assert "    again with this" in report


def test_an_undecided_case_hides_no_slowdown(night: Any, tmp_path: Path) -> None:
    def play(case: plan.Case, _: int) -> str:
        return "inconclusive" if (case.lock, case.fault) == ("etcd", "kill") else "ok"

    slow = compared("regression", cell("worse", p_worse=0.001))
    latest, code, report = ending_of(night(play, slow), tmp_path)
    assert (latest, code) == ("regression", 3)
    assert report.startswith("# regression: head of regression. inconclusive: nothing is proven")
    assert "etcd under kill" in report
    latest, code, report = ending_of(night(play), tmp_path)
    assert (latest, code) == ("inconclusive", 0)
    assert "regression" not in report.partition("## Control")[0]


def test_what_there_was_no_time_for_is_not_green(
    night: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Night, "minutes_left", lambda _: 0.5)
    ending, code, report = ending_of(night(lambda *_: "ok"), tmp_path)
    assert (ending, code) == ("inconclusive", 0)
    assert "no time was left to compare" in report
    assert "    lockbench regress --base baseline --new current" in report


def test_without_its_controls_nothing_is_compared(
    night: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter([60.0, 0.5, 60.0, 60.0])
    monkeypatch.setattr(Night, "minutes_left", lambda _: next(left))
    made = night(lambda *_: "ok", compared("regression", cell("worse", p_worse=0.0001)))
    assert made.slower is None
    assert made.endings == ("inconclusive",)
    assert made.comparisons == []


def test_three_nights_without_an_answer_are_red(night: Any, tmp_path: Path) -> None:
    codes = [ending_of(night(lambda *_: "inconclusive"), tmp_path)[1] for _ in range(3)]
    assert codes == [0, 0, 2]
    lines = (tmp_path / "kept" / NIGHTS).read_text().splitlines()
    assert [json.loads(line)["endings"] for line in lines] == [["inconclusive"]] * 3


def test_a_line_of_the_history_says_what_was_compared_and_measured(
    night: Any, tmp_path: Path
) -> None:
    ending_of(night(lambda *_: "ok"), tmp_path)
    (line,) = read_nights(tmp_path / "kept")
    assert (line.commit, line.baseline) == ("d" * 40, PINNED.commit)
    assert line.figures["redis-token"]["none"]["acquire-p50"] == 1.0


@pytest.mark.parametrize(
    "line",
    [
        "{",
        f'{{"format": {documents.FORMAT}, "date": "x", "endings": ["ok"], "numbers": {{}}}}',
        '{"date": "x"}',
    ],
)
def test_a_history_that_cannot_be_read_is_refused_and_kept(
    tmp_path: Path, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / NIGHTS).write_text(line + "\n")
    assert nightly.main(["--history", str(tmp_path)]) == 254
    assert "nights.jsonl, line 1" in capsys.readouterr().err
    assert (tmp_path / NIGHTS).read_text() == line + "\n"


def test_trends_are_a_page_that_loads_nothing(night: Any, tmp_path: Path) -> None:
    for _ in range(2):
        ending_of(night(lambda *_: "ok"), tmp_path)
    page = (tmp_path / "kept" / "trends.html").read_text()
    assert "uncontended acquire, service time, p50" in page
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")
    assert "<script" not in page
    assert len(re.findall(r"<path transform=\"translate", page)) >= 2, "a point a night"


def one_night(date: str, value: float | None = None, **changes: Any) -> documents.Night:
    figures = {"<b>.py:Lock": {"none": {"acquire-p50": value}}}
    return documents.Night(date=date, **({"endings": ("ok",), "figures": figures} | changes))


def test_one_workload_s_figures_are_not_another_s() -> None:
    mutex = document("redis-token", "none", "ok")
    numbers = mutex.cycles_per_second
    assert numbers is not None
    payment = evolved(mutex, workload="payment", cycles_per_second=numbers * 2)
    found = figures_of([mutex, payment])["redis-token"]
    assert {under: values["throughput"] for under, values in found.items()} == {
        "none": numbers,
        "none, payment": numbers * 2,
    }


def test_a_new_client_of_an_adapted_library_is_new_that_night() -> None:
    def versions(redisson: str) -> dict[str, str | None]:
        client = documents.Client(versions={"org.redisson:redisson": redisson})
        return versions_in(documents.Versions(libraries={}, clients={"jvm-sidecar": client}))

    nights = [
        one_night("1", 1.0, versions=versions("4.6.1")),
        one_night("2", 1.0, versions=versions("4.7.0")),
    ]
    assert "jvm-sidecar: org.redisson:redisson 4.6.1 → 4.7.0" in page(nights)


def test_trends_show_a_gap_and_leave_names_as_text() -> None:
    nights = [one_night(str(n), value) for n, value in enumerate((1.0, 3.0, None, 2.0))]
    made = page([*nights, one_night("5", endings=("bench",), figures={})])
    assert "<b>" not in made
    figures = re.findall(r'<td class="num">([^<]+)</td>', made)
    assert figures == ["3", "1.00", "2.00", "3.00", "2.00"]
    line = re.search(r'<path d="(M[^"]+)" stroke=', made)
    assert line is not None
    assert line[1].count("M") == 2, "the pen is lifted over the night without a number"


def test_trends_show_a_change_of_level_and_what_was_new_that_night() -> None:
    old, new = {"redis: redis-server": "8.0.2"}, {"redis: redis-server": "8.2.0"}
    nights = [
        one_night(f"day {n}", 1.0 + n % 3 / 10 + (n >= 8), versions=new if n >= 8 else old)
        for n in range(16)
    ]
    made = page(nights)
    assert "<td>day 8</td></tr>" in made, "the level has changed"
    assert made.count("redis: redis-server 8.0.2 → 8.2.0") == 1
    steady = page([one_night(f"day {n}", 1.0 + n % 3 / 10) for n in range(16)])
    assert "<td></td></tr>" in steady


def test_a_night_without_an_answer_warns(night: Any, tmp_path: Path) -> None:
    ending_of(night(lambda *_: "inconclusive"), tmp_path)
    assert "⚠ inconclusive" in (tmp_path / "kept" / "trends.html").read_text()
    assert "⚠ " not in page([one_night("1", 1.0)])


def test_no_night_is_longer_than_it_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nightly, "MINUTES_MAX", 5.0)
    with pytest.raises(BadInput, match="this night would take"):
        run_night(
            Night(time.monotonic()),
            base="current",
            new="redis=x:1",
            locks=["redis-token"],
            seed=0,
            console=Console(quiet=True),
        )


def crash(*_: Any, **__: Any) -> Any:
    raise RuntimeError("of our own")


def test_a_crash_is_no_good_night_and_is_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nightly, "run_night", crash)
    assert nightly.main([]) == 255
    assert (tmp_path / "runs" / "latest" / "ending").read_text() == "bench\n"
    assert "of our own" in capsys.readouterr().err
    (line,) = read_nights(tmp_path / "runs")
    assert line.endings == ("bench", "inconclusive")
    assert "of our own" in line.void[0]


@pytest.mark.parametrize("cut", [RuntimeError("of our own"), KeyboardInterrupt()])
def test_what_was_found_before_a_night_was_cut_short_is_told(
    night: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cut: BaseException,
) -> None:
    night(lambda *_: "ok")  # as its fixture says from here on

    def regress(asked: Order, _: Console) -> tuple[Finished, Comparison]:
        base, new = asked.sides
        if new.lock is None and base.pinned is not None:
            raise cut
        found = compared("ok") if new.lock is None else compared("regression", cell("worse"))
        return Finished(Ending.OK, Path("runs/regress"), Results(cases=())), found

    def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        made = [document(c.lock, c.fault, "safety", "two held it") for c in cases]
        return Finished(Ending.OK, Path("runs") / name, Results(cases=tuple(made)))

    monkeypatch.setattr(nightly, "regress", regress)
    monkeypatch.setattr(nightly, "run_cases", run_cases)
    assert nightly.main([]) == Ending.SAFETY.code
    (line,) = read_nights(Path("runs"))
    assert line.endings == ("safety", "bench")
    assert "two held it" in capsys.readouterr().out


def write_run(name: str, *cases: CaseResult) -> RunFolder:
    """A run as a bench leaves it."""
    run = RunFolder.create(Path("runs"), name)
    run.write_results(Results(cases=cases))
    run.finish("safety")
    return run


@pytest.mark.parametrize("cut", [RuntimeError("of our own"), KeyboardInterrupt()])
def test_what_a_suite_had_found_when_it_was_cut_short_is_told(
    night: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cut: BaseException,
) -> None:
    """The second case was done, the first was not."""
    night(lambda *_: "ok")
    done: list[plan.Case] = []

    def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        done.append(cases[1])
        found = document(cases[1].lock, cases[1].fault, "safety", "two held it")
        write_run(name, evolved(found, folder="02-it"))
        raise cut

    monkeypatch.setattr(nightly, "run_cases", run_cases)
    assert nightly.main([]) == Ending.SAFETY.code
    (line,) = read_nights(Path("runs"))
    assert line.endings == ("safety", "bench")
    said = capsys.readouterr().out
    assert f"safety: {done[0].lock} under {done[0].fault}: two held it" in said
    assert "nightly-suite" in Path("runs/latest/report.md").read_text()


def test_a_night_that_is_cut_short_takes_nobody_else_s_findings(
    night: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither an older run's nor that of a bench that began meanwhile."""
    night(lambda *_: "ok")
    found = document("etcd", "kill", "safety", "two held it")
    write_run("nightly-suite", found)

    def run_cases(_cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        (write_run(name, found).path / "owner").write_text("1\n")
        raise RuntimeError

    monkeypatch.setattr(nightly, "run_cases", run_cases)
    assert nightly.main([]) == Ending.BENCH.code
    (line,) = read_nights(Path("runs"))
    assert line.endings == ("bench", "inconclusive")


@pytest.mark.parametrize(("side", "code"), [("new", 1), ("base", 255)])
def test_a_violation_of_a_comparison_that_is_cut_short_is_told(
    night: Any, monkeypatch: pytest.MonkeyPatch, side: str, code: int
) -> None:
    night(lambda *_: "ok")

    def regress(asked: Order, _: Console) -> tuple[Finished, Comparison]:
        (lock, fault), *_rest = asked.cases
        write_run("regress-x", evolved(document(lock, fault, "safety", "two"), side=side))
        raise RuntimeError("of our own")

    monkeypatch.setattr(nightly, "regress", regress)
    assert nightly.main([]) == code
    (line,) = read_nights(Path("runs"))
    assert line.endings == (("safety", "bench") if side == "new" else ("bench",))
    repeat = "    lockbench regress --base current --new current"
    assert (repeat in Path("runs/latest/report.md").read_text()) is (side == "new")


def test_a_night_that_cannot_repeat_a_case_keeps_what_it_found(
    night: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(lambda *_: "ok")

    def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        if name != "nightly-suite":
            raise BadInput("1.0 GiB of memory are available")
        ends = itertools.chain(["safety", "inconclusive"], itertools.repeat("ok"))
        made = [document(c.lock, c.fault, end) for c, end in zip(cases, ends, strict=False)]
        return Finished(Ending.SAFETY, Path("runs") / name, Results(cases=tuple(made)))

    monkeypatch.setattr(nightly, "run_cases", run_cases)
    assert nightly.main([]) == Ending.SAFETY.code
    (line,) = read_nights(Path("runs"))
    assert line.endings == ("safety", "bench", "inconclusive")
    assert line.void == ("1.0 GiB of memory are available",)


@pytest.mark.parametrize(("before", "ending"), [("unknown", "inconclusive"), ("valid", "ok")])
def test_a_case_that_was_undecided_in_an_earlier_try_stays_so(
    night: Any, monkeypatch: pytest.MonkeyPatch, before: Any, ending: str
) -> None:
    night(lambda *_: "ok")
    tries: list[str] = []

    def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        tries.append(name)
        earlier = (Try(observed={"double-grant": before}),)
        made = [evolved(document(c.lock, c.fault, "ok"), earlier_tries=earlier) for c in cases]
        return Finished(Ending.OK, Path("runs") / name, Results(cases=tuple(made)))

    monkeypatch.setattr(nightly, "run_cases", run_cases)
    assert nightly.main([]) == 0
    (line,) = read_nights(Path("runs"))
    assert line.endings == (ending,)
    assert tries == ["nightly-suite", "nightly-retry"][: 2 if ending == "inconclusive" else 1]
    said = "double-grant: undecided in an earlier try"
    assert (said in Path("runs/latest/report.md").read_text()) is (ending == "inconclusive")


@pytest.mark.parametrize("of_a_case", [False, True])
def test_a_suite_that_could_not_clear_away_is_told_once(
    night: Any, monkeypatch: pytest.MonkeyPatch, of_a_case: bool
) -> None:
    night(lambda *_: "ok")

    def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        ends = itertools.chain(["bench" if of_a_case else "ok"], itertools.repeat("ok"))
        made = [document(c.lock, c.fault, end, "it") for c, end in zip(cases, ends, strict=False)]
        return Finished(Ending.BENCH, Path("runs") / name, Results(cases=tuple(made)))

    monkeypatch.setattr(nightly, "run_cases", run_cases)
    assert nightly.main(["--fail-on", "bench"]) == Ending.BENCH.code
    report = Path("runs/latest/report.md").read_text()
    assert report.count("**bench**") == 1
    assert ("could not be removed" in report) is not of_a_case


def test_a_night_loses_no_line_that_another_wrote_meanwhile(
    night: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(lambda *_: "ok")

    def meanwhile(*_: Any) -> dict[str, str]:
        nightly._remember(one_night("another", 1.0), Path("runs"))
        return {}

    nightly._remember(one_night("before", 1.0), Path("runs"))
    monkeypatch.setattr(nightly, "install", meanwhile)
    assert nightly.main([]) == 0
    dates = [line.date for line in read_nights(Path("runs"))]
    assert dates[0] == "before"
    assert set(dates[1:-1]) == {"another"}
    assert len(dates) >= 3
    assert "another" in Path("runs/trends.html").read_text()


def test_two_nights_do_not_write_the_history_at_once(tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(folder, fcntl.LOCK_EX)
    other = threading.Thread(target=nightly._remember, args=(one_night("1", 1.0), tmp_path))
    other.start()
    try:
        other.join(0.5)
        assert other.is_alive()
        assert not (tmp_path / NIGHTS).exists()
    finally:
        os.close(folder)
        other.join(60)
    assert [line.date for line in read_nights(tmp_path)] == ["1"]
    assert {path.name for path in tmp_path.iterdir()} == {NIGHTS, "trends.html"}


@pytest.mark.parametrize("error", [ValueError("no such cell"), KeyboardInterrupt()])
def test_a_crash_while_a_night_is_kept_is_no_broken_promise(
    night: Any,
    error: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    night(lambda *_: "ok")

    def page(*_: Any, **__: Any) -> str:
        raise error

    monkeypatch.setattr(nightly, "finish", page)
    assert nightly.main([]) == Ending.BENCH.code
    assert "the night cannot be kept" in capsys.readouterr().err


@pytest.mark.parametrize(("ending", "code"), [("ok", 255), ("safety", 1)])
def test_a_night_without_room_for_its_folder_has_its_line_and_its_code(
    night: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ending: str,
    code: int,
) -> None:
    night(lambda *_: "ok")

    def run_cases(cases: Sequence[plan.Case], name: str, _: Console) -> Finished:
        made = [document(c.lock, c.fault, ending, "two held it") for c in cases]
        return Finished(Ending[ending.upper()], Path("runs") / name, Results(cases=tuple(made)))

    def create(*_: Any, **__: Any) -> RunFolder:
        raise StoreError("no run folder could be made in runs: No space left on device")

    monkeypatch.setattr(nightly, "run_cases", run_cases)
    monkeypatch.setattr(RunFolder, "create", create)
    assert nightly.main([]) == code
    said = capsys.readouterr()
    assert "the night cannot be kept: no run folder could be made in runs" in said.err
    assert ("two held it" in said.out) is (ending == "safety")
    (line,) = read_nights(Path("runs"))
    assert line.endings == (ending,)


def test_a_night_without_room_for_its_line_has_its_folder(
    night: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    night(lambda *_: "ok")

    def remember(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(nightly, "_remember", remember)
    assert nightly.main([]) == Ending.BENCH.code
    assert "the night cannot be kept" in capsys.readouterr().err
    assert Path("runs/latest/report.md").read_text().startswith("# ok")


def test_every_lock_of_a_night_is_made_ready_before_its_suite(
    night: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready: list[set[str]] = []

    def install(_side: Any, _folder: Path, cases: Sequence[plan.Case]) -> dict[str, str]:
        ready.append({case.lock for case in cases})
        return {}

    night(lambda *_: "ok")
    monkeypatch.setattr(nightly, "install", install)
    assert nightly.main(["--lock", "redis-token,etcd"]) == 0
    assert ready == [{"redis-token", "etcd"}] * 2


def test_a_baseline_that_cannot_run_here_is_a_night_that_failed(
    night: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before the suite spends its time, and in the history."""
    night(lambda *_: "ok")

    def install(*_: Any) -> dict[str, str]:
        raise BadInput("the image is gone")

    monkeypatch.setattr(nightly, "install", install)
    monkeypatch.setattr(nightly, "run_cases", crash)
    assert nightly.main([]) == 255
    assert "the image is gone" in capsys.readouterr().err
    assert [line.void for line in read_nights(Path("runs"))] == [("the image is gone",)]


@pytest.mark.parametrize(
    "words", [["--fail-on", "slow"], ["--base", "nothing"], ["--nonsense"], ["--seed", "x"]]
)
def test_bad_words_are_254(
    words: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert nightly.main(words) == 254
    assert "nightly: " in capsys.readouterr().err
