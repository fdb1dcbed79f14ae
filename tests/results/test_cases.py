"""What counts as a try, and what the service's own record refutes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from lockbench.results.cases import (
    AMISS,
    attempts,
    command_of,
    counts_as_try,
    k_of_n,
    proven,
    refuted,
)
from lockbench.results.documents import CaseResult, OnMachine, Quantiles
from tests.results.plain import typed

SAYS = {"what": "service", "text": "it was not so", "says": "contradicted"}


def case(*broke: str, said: str = "", **more: Any) -> CaseResult:
    """A case in which these broke; what the record says of ``said``."""
    verdicts = {
        name: {
            "result": "invalid" if name in broke else "valid",
            "evidence": [SAYS] if name == said else [],
        }
        for name in ("double-grant", "late-grant", "linearizable")
    }
    of = {"lock": "etcd", "fault": "kill", "exposed": True, "verdicts": verdicts} | more
    found: CaseResult = typed(of)
    return found


@pytest.mark.parametrize("judgement", sorted(AMISS))
def test_where_something_was_amiss_only_a_break_counts(judgement: str) -> None:
    found = case("double-grant", judgement=judgement)
    assert counts_as_try(found, "double-grant")
    assert not counts_as_try(found, "late-grant")
    assert counts_as_try(case("double-grant", judgement="as expected"), "late-grant")


def test_what_is_refuted_is_no_try_and_nor_is_that_no_order_explains_it() -> None:
    found = case("double-grant", "late-grant", "linearizable", said="double-grant")
    assert refuted(found) == {"double-grant", "linearizable"}
    assert proven(found) == ["late-grant"]
    assert k_of_n([found, case()], "double-grant") == (0, 1)
    assert proven(case("linearizable")) == ["linearizable"]


def test_a_case_that_ended_amiss_takes_no_earlier_try_with_it() -> None:
    earlier = {"folder": "01-try-1", "observed": {"double-grant": "valid"}}
    found = case(judgement="disturbed", earlier_tries=[earlier])
    last, before = attempts(found)
    assert not counts_as_try(last, "double-grant")
    assert counts_as_try(before, "double-grant")


@pytest.mark.parametrize(
    ("made_with", "said"),
    [
        ({}, ""),
        ({"instead": "redis==8.0.1"}, "--with redis==8.0.1"),
        ({"ref": "go:example.org/lock@v1.2.3"}, "--with go:example.org/lock@v1.2.3"),
        ({"ref": "current"}, ""),
        ({"ref": "topology:etcd"}, ""),
        ({"ref": "etcd"}, ""),
        ({"images": [("etcd", "etcd:old")], "ref": "etcd=etcd:old"}, "--image etcd=etcd:old"),
        ({"resource": "postgres:guard=fence"}, "--resource postgres:guard=fence"),
        ({"machines": (OnMachine("here", 1, 1, Quantiles()),)}, "--machines FILE"),
    ],
)
def test_the_command_says_with_what_a_case_was_made(made_with: dict[str, Any], said: str) -> None:
    given = dict(made_with)
    images, instead = given.pop("images", ()), given.pop("instead", None)
    case = CaseResult(lock="etcd", fault="kill", topology="etcd", **given)
    command = command_of(case, images, instead)
    words = command.split()
    flags = [f"{a} {b}" for a, b in pairwise(words) if a in EXTRA]
    assert flags == ([said] if said else [])


EXTRA = {"--with", "--image", "--resource", "--machines"}
