"""The search against every order of the same calls, on random small histories of every shape.

Whether calls and models are what a lock may do is the affair of ``test_fuzz.py``.
"""

from __future__ import annotations

import random

import pytest

from checker.analysis import Analysis
from checker.calls import calls_of
from checker.models import model_of
from checker.promises import link, promises
from checker.search import search
from history.columns import History
from history.jsonl import to_lines
from tests.budget import tries
from tests.checker.every_order import linearizable as exhaustively
from tests.checker.random_histories import SHAPES, random_history, wild_history


def verdicts(history: History) -> tuple[str, str]:
    """What the search says, and what every order says."""
    links = link(history)
    analysis = Analysis(history, promises(history, links))
    given_object = history.object_of("k")
    calls, _ = calls_of(analysis, links, 0, given_object.kind)
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
def test_agrees_on_histories_that_nobody_records() -> None:
    dice, count = random.Random("wild"), tries(250)
    found: list[str] = []
    for _ in range(count):
        history = wild_history(dice)
        links = link(history)
        analysis = Analysis(history, promises(history, links))
        for key, name in enumerate(history.keys):
            given_object = history.object_of(name)
            model = model_of(given_object.kind, given_object.permits, given_object.initial)
            calls, _ = calls_of(analysis, links, key, given_object.kind)
            found.append("valid" if exhaustively(model, calls) else "invalid")
            assert search(model, calls).result == found[-1], list(to_lines(history))
    assert found.count("valid") > 0.3 * count
    assert found.count("invalid") > 0.2 * count
