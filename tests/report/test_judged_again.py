"""A stored case whose history is judged again: the worse counts, and nothing is made less."""

from __future__ import annotations

from typing import Any

import pytest

from lockbench.checker.verdict import Report, Verdict
from lockbench.report.source import judged_again
from lockbench.results.documents import CaseResult
from tests.results.plain import typed

Results = dict[str, str]
SAYS = {"what": "service", "text": "contradicted: it was not so", "says": "contradicted"}


def stored(results: Results, judgement: str, **expected: str) -> CaseResult:
    verdicts = {name: {"result": result} for name, result in results.items()}
    words = {name.replace("_", "-"): word for name, word in expected.items()}
    of: dict[str, Any] = {"lock": "etcd", "fault": "kill", "exposed": True}
    found: CaseResult = typed(
        of | {"verdicts": verdicts, "judgement": judgement, "expected": words}
    )
    return found


def report(results: Results, contradicted: str = "") -> Report:
    found = {
        name: Verdict(result, "", (SAYS,) if name == contradicted else ())  # type: ignore[arg-type]
        for name, result in results.items()
    }
    return Report(0, 0, found, {})


@pytest.mark.parametrize("more", [{"leaked-lock": "valid"}, {"linearizable": "unknown"}, {}])
def test_a_broken_promise_stays_one(more: Results) -> None:
    """Whatever today's checker says beside it, or cannot decide."""
    was = {"double-grant": "invalid", "linearizable": "valid"}
    case = stored(was, "worse than expected", double_grant="holds", linearizable="holds")
    found, _ = judged_again(case, report(was | more))
    assert found.judgement == "worse than expected"


def test_a_verdict_that_is_new_and_valid_is_no_difference() -> None:
    case = stored({"double-grant": "valid"}, "as expected", double_grant="holds")
    found, notes = judged_again(case, report({"double-grant": "valid", "leaked-lock": "valid"}))
    assert (found, notes) == (case, [])


def test_a_break_that_was_not_seen_before_counts() -> None:
    case = stored({"double-grant": "valid"}, "as expected", double_grant="holds")
    found, notes = judged_again(case, report({"double-grant": "invalid"}))
    assert found.judgement == "worse than expected"
    assert notes


def test_what_the_service_refutes_is_not_held_against_the_lock() -> None:
    was = {"double-grant": "invalid"}
    case = stored(was, "contradicted", double_grant="holds")
    assert judged_again(case, report(was, "double-grant"))[0].judgement == "contradicted"
    assert judged_again(case, report(was))[0].judgement == "worse than expected"
