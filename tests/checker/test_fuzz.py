"""The fast ways against the exhaustive reference, on random small histories of every shape."""

from __future__ import annotations

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from checker.calls import calls_of
from checker.linearizable import linearizable
from checker.models import model_of
from checker.promises import link, promises
from checker.search import search
from checker.words import Case
from history.columns import History
from history.jsonl import to_lines
from tests.checker.random_histories import SHAPES, Shape, random_history, wild_history
from tests.checker.reference import linearizable as exhaustively


def verdicts(history: History) -> tuple[str, str, str]:
    """What the checker says, what the search alone says, what the reference says."""
    links = link(history)
    case = Case(history, promises(history, links))
    fast = linearizable(case, links)
    given_object = history.object_of("k")
    calls, _ = calls_of(case, links, 0, given_object.kind)
    model = model_of(given_object.kind, given_object.permits, given_object.initial)
    slow = "valid" if exhaustively(model, calls) else "invalid"
    return ("absent" if fast is None else fast.result), search(model, calls).result, slow


def agree(history: History) -> str:
    fast, searched, slow = verdicts(history)
    if "absent" not in fast:
        assert fast == slow, list(to_lines(history))
    assert searched == slow, list(to_lines(history))
    return slow


class Drawn:
    """Hypothesis' choices in the clothes of ``random.Random``, so that failures shrink."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def randint(self, a: int, b: int, /) -> int:
        return self._draw(st.integers(a, b))


@st.composite
def histories(draw: st.DrawFn, shape: Shape) -> History:
    return random_history(Drawn(draw), shape)


@pytest.mark.parametrize("shape", SHAPES)
@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_agrees_with_the_exhaustive_reference(shape: str, data: st.DataObject) -> None:
    agree(data.draw(histories(SHAPES[shape])))


@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_on_seeded_histories_of_both_verdicts(shape: str) -> None:
    dice = random.Random(shape)
    found = [agree(random_history(dice, SHAPES[shape])) for _ in range(300)]
    # A generator that makes only one sort of history would test half of the rule.
    assert 15 <= found.count("invalid") <= 285


def agree_on_wild_ones(seed: str, count: int) -> tuple[int, int]:
    """Numbers of valid and invalid histories."""
    dice = random.Random(seed)
    valid = judged = 0
    for _ in range(count):
        history = wild_history(dice)
        links = link(history)
        case = Case(history, promises(history, links))
        fast = linearizable(case, links)
        if fast is None:
            continue
        judged += 1
        slow = True
        for key, name in enumerate(history.keys):
            given_object = history.object_of(name)
            model = model_of(given_object.kind, given_object.permits, given_object.initial)
            slow &= exhaustively(model, calls_of(case, links, key, given_object.kind)[0])
        valid += slow
        assert fast.result == ("valid" if slow else "invalid"), list(to_lines(history))
    return valid, judged - valid


def test_agrees_on_histories_that_nobody_records() -> None:
    valid, invalid = agree_on_wild_ones("wild", 1500)
    assert valid > 300
    assert invalid > 300


@pytest.mark.long
@pytest.mark.timeout(1200)
def test_agrees_on_fifteen_thousand_histories_that_nobody_records() -> None:
    agree_on_wild_ones("slow wild", 15_000)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("shape", SHAPES)
def test_agrees_on_fifteen_thousand_histories(shape: str) -> None:
    dice = random.Random(f"slow {shape}")
    for _ in range(15_000):
        agree(random_history(dice, SHAPES[shape]))
