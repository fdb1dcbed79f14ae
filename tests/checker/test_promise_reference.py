"""The verdicts on promises against a restatement that looks at every pair, and correct locks."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from checker.check import check
from history.columns import History
from history.jsonl import to_lines
from tests.checker.combinations import sketches
from tests.checker.promise_reference import double_grant, fence_order, is_plain, late_grant
from tests.checker.sketch import COMBINATIONS, Combination

PLAIN = [c for c in COMBINATIONS if c.holds and c.kind not in {"reentrant", "ownerless"}]
COMPARED = ("double-grant", "late-grant", "fence-order")
# A late grant is late whoever is to blame; the others accuse the lock.
ACCUSING = ("double-grant", "wrong-release", "false-release", "wrong-extend", "fence-order")


def told(history: History) -> str:
    return "\n".join(json.dumps(line) for line in to_lines(history))


def agree_on(seed: str, combination: Combination, count: int) -> int:
    """The number of histories that were compared."""
    compared = 0
    for sketch in islice(sketches(seed, combination), count):
        history = sketch.history()
        if not is_plain(history):
            continue
        compared += 1
        wrong = {
            "double-grant": double_grant(history, combination.kind, sketch.permits),
            "late-grant": late_grant(history),
            "fence-order": fence_order(history),
        }
        verdicts = check(history, only=COMPARED).verdicts
        found = {name: verdicts[name].result == "invalid" for name in wrong if name in verdicts}
        assert all(wrong[name] == found.get(name, False) for name in wrong), (
            f"{combination}: the checker {found}, the reference {wrong}\n{told(history)}"
        )
    return compared


def never_accuses(seed: str, combination: Combination, count: int) -> None:
    for sketch in islice(sketches(seed, combination), count):
        if sketch.correct:
            history = sketch.history()
            for name, verdict in check(history, only=ACCUSING).verdicts.items():
                assert verdict.result == "valid", f"{name}: {verdict.reason}\n{told(history)}"


@pytest.mark.parametrize("kind", sorted({c.kind for c in PLAIN}))
def test_agrees_with_every_pair(kind: str) -> None:
    assert sum(agree_on("short", c, 24) for c in PLAIN if c.kind == kind) > 100


@pytest.mark.long
@pytest.mark.parametrize("combination", PLAIN, ids=str)
def test_agrees_with_every_pair_on_many(combination: Combination) -> None:
    assert agree_on("long", combination, 1000) > 300


@pytest.mark.parametrize("kind", sorted({c.kind for c in COMBINATIONS}))
def test_a_correct_lock_breaks_no_promise(kind: str) -> None:
    for combination in COMBINATIONS:
        if combination.kind == kind:
            never_accuses("correct", combination, 24)


@pytest.mark.long
@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
def test_a_correct_lock_breaks_no_promise_in_many(combination: Combination) -> None:
    never_accuses("correct and long", combination, 1000)
