"""``linearizable`` against the exhaustive reference, for every combination of what may be recorded.

Every history must be decided, by both; a disagreement is shown as the smallest history that keeps
it, in the interchange format.
"""

from __future__ import annotations

import json
import random
from itertools import islice

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.history.jsonl import to_lines
from lockbench.history.op import F, Type
from tests.budget import tries
from tests.checker.combinations import sketches
from tests.checker.random_histories import SHAPES, random_history
from tests.checker.reference import explainable
from tests.checker.sketch import COMBINATIONS, KINDS, Combination, Sketch, smallest

EACH = tries(12)  # histories of each of 224 combinations
LEAST = 0.15  # of either verdict: a generator of one sort would test half of the rule


def product(history: History) -> str:
    verdict = check(history, only=("linearizable",)).verdicts.get("linearizable")
    if verdict is None and not np.any((history.type == Type.OK) & (history.f <= F.EXTEND)):
        return "valid"  # of which nothing is shown: a verdict is left out
    return "absent" if verdict is None else verdict.result


def reference(history: History) -> str:
    return "valid" if explainable(history) else "invalid"


def agree(sketch: Sketch) -> bool:
    """Whether the history is valid; fails where the two say different things."""
    history = sketch.history()
    expected = reference(history)
    assert expected == "valid" or not sketch.correct, told(sketch)
    if product(history) != expected:
        pytest.fail(
            told(smallest(sketch, lambda less: product(less) not in ("absent", reference(less))))
        )
    return expected == "valid"


def told(sketch: Sketch) -> str:
    history = sketch.history()
    lines = "\n".join(json.dumps(line) for line in to_lines(history))
    both = f"the checker says {product(history)}, the reference {reference(history)}"
    return f"{sketch.combination}: {both}\n{lines}"


def agree_on(seed: str, combination: Combination, count: int) -> int:
    """The number of valid ones."""
    return sum(agree(sketch) for sketch in islice(sketches(seed, combination), count))


@pytest.mark.random
@pytest.mark.parametrize("kind", KINDS)
def test_agrees_with_the_reference(kind: str) -> None:
    some = [combination for combination in COMBINATIONS if combination.kind == kind]
    valid = sum(agree_on("short", combination, EACH) for combination in some)
    assert LEAST < valid / (EACH * len(some)) < 1 - LEAST


@pytest.mark.random
@pytest.mark.parametrize("shape", [name for name in SHAPES if SHAPES[name].background])
def test_agrees_where_holds_are_extended_in_the_background(shape: str) -> None:
    """Also before their acquire was answered, as watchdogs do on a busy machine."""
    dice, count = random.Random(shape), tries(400)
    valid = 0
    for _ in range(count):
        history = random_history(dice, SHAPES[shape])
        expected = reference(history)
        assert product(history) == expected, list(to_lines(history))
        valid += expected == "valid"
    assert LEAST < valid / count < 1 - LEAST
