"""The catalogue has every verdict, and no other file restates what it says."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

import pytest

import lockbench.checker.check
from lockbench.checker.catalogue import CATALOGUE, OF_JOBS, Entry
from lockbench.checker.jobs import VERDICTS_OF
from lockbench.checker.service import ASKED
from lockbench.locks.base import LockKind
from lockbench.report.headline import headline
from lockbench.report.jobs import WRONG
from lockbench.results import alert_replay
from tests.results.plain import typed

ROOT = Path(__file__).parents[2]
# They map a verdict to the code that decides it or counts what it cost, or say what is reached.
MAY_NAME_VERDICTS = {"checker/service.py", "report/jobs.py", "workloads/jobs/payment.py"}
PRODUCT = sorted(
    path
    for folder in ("bench", "checker", "cli", "evidence", "nemesis", "perf", "report", "results")
    for path in (ROOT / folder).rglob("*.py")
)
OF = {
    "read-write": "read-write locks",
    "semaphore": "semaphores",
}


def test_the_catalogue_has_every_verdict_that_the_checker_answers() -> None:
    source = Path(lockbench.checker.check.__file__).read_text()
    answered = set(re.findall(r'answer\("([a-z-]+)"', source))
    assert len(answered) > 5
    of_jobs = {verdict: job for job, verdicts in VERDICTS_OF.items() for verdict in verdicts}
    assert {*answered, *of_jobs} == set(CATALOGUE)
    assert {name: CATALOGUE[name].job for name in OF_JOBS} == of_jobs


def test_codes_are_told_apart_and_kinds_of_lock_exist() -> None:
    codes = [entry.code for entry in CATALOGUE.values() if entry.code]
    assert len(set(codes)) == len(codes) == len(CATALOGUE) - len(OF_JOBS)
    assert {kind for entry in CATALOGUE.values() for kind in entry.not_of} <= set(
        get_args(LockKind)
    )


def test_what_takes_code_for_each_verdict_knows_only_verdicts_of_the_catalogue() -> None:
    assert set(WRONG) == set(OF_JOBS)
    assert set(ASKED) < set(CATALOGUE)


@pytest.mark.parametrize("name", CATALOGUE)
def test_each_verdict_is_told_everywhere_in_the_words_of_the_catalogue(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"result": "invalid", "reason": "it broke", "evidence": []}
    case = {"lock": "some", "fault": "kill", "exposed": True, "verdicts": {name: found}}
    assert CATALOGUE[name].did in headline(typed([case])).by_lock[0].lower()
    grants = [{"what": "grant", "key": "k", "granted_ns": at} for at in (5, 9, 7)]
    acts = [{"what": "operation", "key": "k", "complete_ns": at} for at in (20, 30)]
    moment = {"first grant": 5, "last grant": 9, "first operation": 20, "last operation": 30}
    assert alert_replay._moment(name, [*grants, *acts]) == ("k", moment[CATALOGUE[name].act])


def test_a_bug_report_says_what_the_catalogue_says() -> None:
    template = (ROOT / "evidence" / "bugreport.md.j2").read_text()
    assert "is broken when {{ md(entry.means) }}" in template


def _named(node: ast.AST) -> set[str]:
    """The verdicts that one literal names: as a dictionary's keys or a collection's members."""
    parts: list[ast.expr | None] = []
    if isinstance(node, ast.Dict):
        parts = list(node.keys)
    elif isinstance(node, ast.Tuple | ast.List | ast.Set):
        parts = list(node.elts)
    said = {part.value for part in parts if isinstance(part, ast.Constant)}
    return {name for name in CATALOGUE if name in said}


def _tables(source: str) -> list[set[str]]:
    return [named for node in ast.walk(ast.parse(source)) if len(named := _named(node)) >= 3]


def test_a_second_table_of_verdicts_would_be_found() -> None:
    assert _tables('X = {"double-grant": 1, "late-grant": 2, "lost-update": 3}')
    assert _tables('X = frozenset({"double-grant", "late-grant", "fence-order"})')
    assert not _tables('X = ("holds", "breaks", "double-grant", "late-grant")')


def test_no_other_file_has_a_table_of_verdicts() -> None:
    second = {
        path.relative_to(ROOT).as_posix()
        for path in PRODUCT
        if path.name != "catalogue.py" and _tables(path.read_text())
    }
    assert second <= MAY_NAME_VERDICTS


def _row(entry: Entry) -> str:
    """Its row in docs/checker.md, without the last column of what locks have."""
    if entry.job:
        return f"| `{entry.job}` | `{entry.name}` | {entry.means} |"
    # Below the table: what takes no lock is judged by its jobs alone.
    assert "none" in entry.not_of
    excepted = ", ".join(OF[kind] for kind in entry.not_of if kind != "none")
    where = f"locks with {entry.needs}" if entry.needs else "every lock"
    where += f" but {excepted}" if excepted else ""
    return f"| `{entry.name}` | {entry.code} | {entry.means} | {entry.blames} | {where} |"


@pytest.mark.parametrize("entry", CATALOGUE.values(), ids=CATALOGUE)
def test_the_page_says_what_the_catalogue_says(entry: Entry) -> None:
    assert _row(entry) in (ROOT / "docs" / "checker.md").read_text()


def test_the_page_names_no_verdict_that_is_not_in_the_catalogue() -> None:
    text = (ROOT / "docs" / "checker.md").read_text()
    rows = re.findall(r"^\| `([a-z-]+)` \| [A-Z]{2} \|", text, re.MULTILINE)
    assert sorted(rows) == sorted(set(CATALOGUE) - set(OF_JOBS))
