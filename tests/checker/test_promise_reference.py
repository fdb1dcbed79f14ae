"""The verdicts on promises against a restatement that looks at every pair, and correct locks."""

from __future__ import annotations

import json
from itertools import islice

import pytest

from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.jsonl import to_lines
from tests.budget import tries
from tests.checker.combinations import sketches
from tests.checker.promise_reference import double_grant, fence_order, is_plain, late_grant
from tests.checker.sketch import COMBINATIONS, Combination

EACH = tries(12)  # histories of a combination
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


@pytest.mark.random
@pytest.mark.parametrize("kind", sorted({c.kind for c in PLAIN}))
def test_agrees_with_every_pair(kind: str) -> None:
    some = [combination for combination in PLAIN if combination.kind == kind]
    assert sum(agree_on("short", c, EACH) for c in some) > 0.3 * EACH * len(some)


@pytest.mark.random
@pytest.mark.parametrize("kind", sorted({c.kind for c in COMBINATIONS}))
def test_a_correct_lock_breaks_no_promise(kind: str) -> None:
    for combination in COMBINATIONS:
        if combination.kind == kind:
            never_accuses("correct", combination, EACH)
