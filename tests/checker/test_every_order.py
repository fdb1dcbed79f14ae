"""The search against every order of the same calls, on random small histories of every shape.

Whether calls and models are what a lock may do is the affair of ``test_fuzz.py``.
"""

from __future__ import annotations

import random
from itertools import islice

import pytest

from lockbench.checker.analysis import Analysis
from lockbench.checker.calls import calls_of
from lockbench.checker.models import model_of
from lockbench.checker.search import search
from lockbench.history.columns import History
from lockbench.history.jsonl import to_lines
from tests.budget import tries
from tests.checker.combinations import sketches
from tests.checker.every_order import linearizable as exhaustively
from tests.checker.random_histories import SHAPES, random_history
from tests.checker.sketch import COMBINATIONS

EACH = tries(6)  # histories of each of 224 combinations


def verdicts(history: History) -> tuple[str, str]:
    """What the search says, and what every order says."""
    given_object = history.object_of("k")
    calls, _ = calls_of(Analysis.of(history), 0, given_object.kind)
    model = model_of(given_object.kind, given_object.permits, given_object.initial)
    slow = "valid" if exhaustively(model, calls) else "invalid"
    return search(model, calls).result, slow


def agree(history: History) -> str:
    searched, slow = verdicts(history)
    assert searched == slow, list(to_lines(history))
    return slow


@pytest.mark.random
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_on_seeded_histories_of_both_verdicts(shape: str) -> None:
    dice, count = random.Random(shape), tries(75)
    found = [agree(random_history(dice, SHAPES[shape])) for _ in range(count)]
    # A generator that makes only one sort of history would test half of the rule.
    assert 0.05 * count <= found.count("invalid") <= 0.95 * count


@pytest.mark.random
def test_agrees_on_every_combination_of_what_may_be_recorded() -> None:
    found = [
        agree(sketch.history())
        for combination in COMBINATIONS
        for sketch in islice(sketches("orders", combination), EACH)
    ]
    assert 0.15 < found.count("invalid") / len(found) < 0.85
