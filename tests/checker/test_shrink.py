"""The explanation of a failed search is small, and it is still impossible."""

from __future__ import annotations

import random
from dataclasses import replace

from bench.perf_histories import register_history
from checker.check import check
from checker.models import Operation, model_of, register
from checker.search import Call, search
from checker.shrink import smallest
from tests.checker.random_histories import SHAPES, random_history
from tests.checker.reference import linearizable
from tests.checker.test_search import calls, random_register


def test_a_stale_read_far_in_is_explained_by_two_operations() -> None:
    made = [Call(Operation("write", value=i % 5), 10 * i, 10 * i + 5) for i in range(100)]
    made.append(Call(Operation("read", value=3), 1002, 1003))
    few = smallest(register(), made, search(register(), made)).numbers
    assert [made[i].operation.f for i in few] == ["write", "read"]
    assert [made[i].operation.value for i in few] == [4, 3]


def test_explanations_of_random_registers_are_impossible_by_themselves() -> None:
    dice = random.Random(3)
    explained = 0
    for _ in range(600):
        model, made = calls(random_register(dice))
        found = search(model, made)
        if found.result != "invalid":
            continue
        explained += 1
        few = smallest(model, made, found)
        assert found.failed in few.numbers
        for state in few.initials:
            rest = [few.calls[i] for i in few.numbers]
            assert not linearizable(replace(model, initial=state), rest)
    assert explained > 100


def test_a_long_register_history_has_a_short_explanation() -> None:
    short = 0
    for seed in range(0, 30, 2):
        history = register_history(operations=150, seed=seed, wrong=True, unknown=0.0)
        verdict = check(history).verdicts["linearizable"]
        if verdict.result == "invalid":
            assert len(verdict.evidence) <= 16
            short += len(verdict.evidence) <= 8
    assert short >= 3


def test_lock_explanations_too() -> None:
    dice = random.Random(4)
    for _ in range(300):
        history = random_history(dice, SHAPES["reused"])
        verdict = check(history).verdicts.get("linearizable")
        if verdict is not None and verdict.result == "invalid":
            assert 1 <= len(verdict.evidence) <= len(history)
    assert model_of("mutex", None, None).initial is None
