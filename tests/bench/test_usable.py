"""What cannot run is named, and never counted as kept."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lockbench.bench.judge import Expected, judge
from lockbench.bench.plan import find_system, make_case
from lockbench.bench.usable import (
    TEXT_CHARS_MAX,
    error_texts,
    never_succeeded,
    nothing_worked,
    refused_case,
    said_to_idle_clients,
    shown,
    turned_away,
    why_unusable,
)
from lockbench.evidence.compare import compare
from lockbench.history.columns import History
from lockbench.history.op import F, Mode
from lockbench.locks.base import LockUnusableError
from lockbench.locks.registry import find
from lockbench.report import tables
from lockbench.report.facts import CASES
from lockbench.results.documents import Refused
from lockbench.results.errors import BadInput, Ending, Unfit
from tests.checker.scenes import Scene
from tests.results.made_run import make_run
from tests.results.plain import plain

S = 10**9
NO_COMMAND = "acquire: ResponseError: unknown command 'WAIT'"


def told(*operations: tuple[F, str, str | None]) -> History:
    """One operation of one client each second, what came of it and with which words."""
    scene = Scene()
    for second, (f, answer, error) in enumerate(operations, 1):
        scene.op(f, 1, second, second + 0.1, answer, error=error)
    return scene.history()


def test_a_server_without_the_command_is_told_by_its_own_words() -> None:
    said = ("acquire: TimeoutError", NO_COMMAND, NO_COMMAND)
    history = told(*((F.ACQUIRE, "info", error) for error in said))
    found = nothing_worked(history, 10 * S)
    assert found == f"nothing was granted in 3 tries before any fault: {NO_COMMAND}"


def test_the_first_text_of_every_class_of_error_is_kept() -> None:
    integer = "no-effect: ResponseError: ERR value is not an integer or out of range"
    texts = error_texts(
        told(
            (F.ACQUIRE, "fail", "held"),
            (F.ACQUIRE, "info", "server:ResponseError"),
            (F.ACQUIRE, "fail", integer),
            (F.ACQUIRE, "fail", "no-effect: ResponseError: another one"),
            (F.RELEASE, "fail", "not-held"),
            (F.ACQUIRE, "info", "said: \x1b[31mred\n \udcff" + "x" * 1000),
        )
    )
    assert list(texts) == ["server:ResponseError", "no-effect: ResponseError", "said"]
    assert texts["no-effect: ResponseError"] == integer
    assert texts["said"].startswith("said: \\x1b[31mred\\n \\udcffxxx")
    assert len(texts["said"]) < TEXT_CHARS_MAX + 20
    "".join(texts.values()).encode("utf-8")


def test_what_a_server_says_cannot_write_on_the_terminal() -> None:
    history = told((F.ACQUIRE, "info", "E: \x1b]0;title\x07 ü"))
    assert (nothing_worked(history, 10 * S) or "").endswith(r"E: \x1b]0;title\x07 ü")
    assert shown("ordinary: text") == "ordinary: text"


def test_one_grant_and_one_release_are_enough() -> None:
    granted = [(F.ACQUIRE, "ok", None), (F.ACQUIRE, "info", NO_COMMAND)]
    history = told(*granted, (F.RELEASE, "info", "release: unknown command 'EVALSHA'"))
    assert "nothing was released in 1 tries" in (nothing_worked(history, 10 * S) or "")
    assert nothing_worked(told(*granted, (F.RELEASE, "ok", None)), 10 * S) is None


def test_only_the_time_before_the_faults_counts() -> None:
    history = told((F.ACQUIRE, "fail", "held"), (F.ACQUIRE, "ok", None))
    assert nothing_worked(history, 3 * S) is None
    assert "held" in (nothing_worked(history, 2 * S) or "")
    assert nothing_worked(history, S) is None  # nobody had asked for anything yet


def herd(*answers: tuple[int, str | None]) -> History:
    """One acquire each: the client, and its error or None where it was granted."""
    scene = Scene()
    for at, (client, error) in enumerate(answers):
        scene.acquire(client, at, at + 0.1, "fail" if error else "ok", error=error)
    return scene.history()


FULL = "no-effect: 53300 too many clients"


def test_the_idle_are_those_that_were_never_granted() -> None:
    waited = ((1, None), (1, "gave-up: held"), (1, "gave-up: held"))
    assert said_to_idle_clients(herd(*waited, (2, FULL), (3, FULL), (3, "held"))) == FULL


@pytest.mark.parametrize(
    ("said", "away"),
    [(FULL, True), (f"gave-up: {FULL}", True), ("gave-up: held", False), ("held", False)],
)
def test_who_waits_in_a_herd_is_not_turned_away(said: str, away: bool) -> None:
    assert turned_away(herd((1, None), (2, said))) is away


def test_a_lock_is_prepared_once_and_its_sentence_kept() -> None:
    tried = []

    def prepare() -> None:
        tried.append(1)
        raise LockUnusableError("pottery 3.0.1 cannot be imported: no module named redis")

    system = replace(find("redis-token"), prepare=prepare)
    assert "pottery" in (why_unusable(system) or "")
    assert "pottery" in (why_unusable(system) or "")
    assert len(tried) == 1
    assert why_unusable(find("redis-token")) is None


def test_it_is_the_bench_that_failed_and_a_violation_stays_one() -> None:
    expected = Expected(find("redis-token"), ("none",))
    held = dict.fromkeys(("double-grant", "stale-holder"), "valid")

    def judged(observed: dict[str, str]) -> tuple[Ending, str]:
        said = judge(
            expected, observed, exposed=True, exposure="", failure="no victim", unable="no WAIT"
        )
        return said.ending, said.word

    assert judged({}) == (Ending.BENCH, "could not run")
    assert judged(held) == (Ending.BENCH, "could not run")
    assert judged(held | {"double-grant": "invalid"})[0] is Ending.SAFETY


def test_it_is_shown_in_words() -> None:
    document = refused_case(Refused("bad.py:Lock", "kill", "bad.py cannot be imported"))
    made = tables.overview([document])
    assert made.matrix is not None
    assert made.matrix.headings == ("lock", "kill")
    assert [[c.text for c in row] for row in made.matrix.rows] == [
        ["bad.py:Lock", "! could not run"]
    ]
    assert made.headline.lines == ("Proof of nothing: could not run: bad.py:Lock under kill.",)
    assert any("bad.py cannot be imported" in note for note in made.notes.verdicts)
    assert CASES.rows([document])[0].values["judgement"] == "could not run"


def test_a_file_with_an_expectation_without_a_source_is_unfit(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("from lockbench.locks.base import Expectation\nE = Expectation('holds', ' ')\n")
    with pytest.raises(Unfit, match="an expectation without a source"):
        find_system(f"{path}:Lock")
    with pytest.raises(Unfit, match="does not run on etcd"):
        make_case("redis-token", "none", seed=0, topology="etcd")
    with pytest.raises(BadInput) as typo:
        find_system("redis-tokn")
    assert not isinstance(typo.value, Unfit)


def test_junit_counts_it_as_an_error(tmp_path: Path) -> None:
    def lacking(case: dict[str, Any]) -> None:
        case |= plain(refused_case(Refused("etcd", "pause", "unknown command", "etcd")))

    base, new = make_run(tmp_path / "a"), make_run(tmp_path / "b", change=lacking)
    junit = tmp_path / "junit.xml"
    code = compare(
        base.path, new.path, anyway=True, as_json=False, junit=junit, out=Console(quiet=True)
    )
    assert code == Ending.BENCH.code
    (suite,) = ET.parse(junit).iter("testsuite")
    assert (suite.get("errors"), suite.get("failures")) == ("1", "0")
    (error,) = suite.iter("error")
    assert "etcd under pause could not run: unknown command" in error.get("message", "")


def loaded() -> Scene:
    """A load that shares ``k0``: something was granted of it and nothing else happened."""
    scene = Scene().kind("mutex", role="contended").kind("mutex", "own", role="own")
    scene.acquire(9, 0, 0.1, key="own", hold="o").release(9, 0.2, 0.3, key="own", hold="o")
    return scene.acquire(1, 1, 1.1, until=4, hold="a")


def test_what_never_succeeded_on_shared_keys_shows_nothing() -> None:
    silent = Scene().kind("mutex", role="contended")
    assert never_succeeded(silent.history()) == "nothing was granted in 0 tries"
    assert never_succeeded(loaded().history()) == "nothing was released in 0 tries"
    assert never_succeeded(loaded().history(), too_late=True) is None
    failed = loaded().not_held(1, 2, 2.1, hold="a")
    assert never_succeeded(failed.history()) == "nothing was released in 1 tries: not-held"
    quiet = loaded().op(F.QUIET, 9, 5, 5, named=False).release(1, 6, 6.1, hold="a")
    assert never_succeeded(quiet.history()), "released after the load"
    whole = loaded().release(1, 2, 2.1, hold="a")
    assert never_succeeded(whole.history()) is None


def test_extends_and_reads_have_to_succeed_where_they_are_asked_for() -> None:
    def whole() -> Scene:
        return loaded().release(1, 2, 2.1, hold="a").acquire(2, 3, 3.1, until=6, hold="b")

    refused = whole().extend(2, 4, 4.1, "fail", error="not-held", hold="b")
    assert never_succeeded(refused.history()) == "nothing was extended in 1 tries: not-held"
    assert never_succeeded(refused.extend(2, 5, 5.1, until=9, hold="b").history()) is None
    aimed_at = whole().fault("reply-lost", 3.5, 5).extend(2, 4, None, "info", hold="b")
    assert never_succeeded(aimed_at.history()) is None
    reads = whole().acquire(3, 7, 7.1, "fail", error="held", hold="c", mode=Mode.READ)
    assert never_succeeded(reads.history()) == "nothing was granted to read in 1 tries: held"
