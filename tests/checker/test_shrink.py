"""The explanation of a failed search is small, and it is still impossible."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from lockbench.checker.analysis import Analysis
from lockbench.checker.check import check
from lockbench.checker.contradictions import unpaired
from lockbench.checker.models import Operation, model_of, register
from lockbench.checker.search import Call, search
from lockbench.checker.shrink import smallest
from lockbench.checker.verdict import Verdict
from lockbench.history.columns import History
from lockbench.history.jsonl import to_lines
from lockbench.history.op import F
from perf.histories import Load, lock_history, register_history
from tests.budget import tries
from tests.checker.every_order import linearizable
from tests.checker.random_histories import SHAPES, random_history
from tests.checker.scenes import Scene
from tests.checker.test_search import calls, random_register


def test_a_stale_read_far_in_is_explained_by_two_operations() -> None:
    made = [Call(Operation("write", value=i % 5), 10 * i, 10 * i + 5) for i in range(100)]
    made.append(Call(Operation("read", value=3), 1002, 1003))
    few = smallest(register(), made, search(register(), made)).numbers
    assert [made[i].operation.f for i in few] == ["write", "read"]
    assert [made[i].operation.value for i in few] == [4, 3]


@pytest.mark.random
def test_explanations_of_random_registers_are_impossible_by_themselves() -> None:
    dice = random.Random(3)
    explained = 0
    for _ in range(tries(150)):
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
    assert explained > tries(25)


def test_a_long_register_history_has_a_short_explanation() -> None:
    short = 0
    for seed in range(0, 30, 2):
        history = register_history(operations=150, seed=seed, wrong=True, unknown=0.0)
        verdict = check(history).verdicts["linearizable"]
        if verdict.result == "invalid":
            assert len(verdict.evidence) <= 16
            short += len(verdict.evidence) <= 8
    assert short >= 3


@pytest.mark.random
def test_lock_explanations_too() -> None:
    dice = random.Random(4)
    for _ in range(tries(75)):
        history = random_history(dice, SHAPES["reused"])
        verdict = check(history).verdicts.get("linearizable")
        if verdict is not None and verdict.result == "invalid":
            assert 1 <= len(verdict.evidence) <= len(history)
    assert model_of("mutex", None, None).initial is None


def without_others(history: History, verdict: Verdict) -> History:
    """The operations of the evidence alone."""
    rows = sorted({int(str(e["row"])) for e in verdict.evidence if "row" in e})
    return history.only(np.array(rows))


@pytest.mark.random
@pytest.mark.parametrize("shape", ["plain", "holds", "lease", "semaphore", "read-write-lease"])
def test_the_evidence_of_the_smallest_holds_is_invalid_by_itself(shape: str) -> None:
    dice = random.Random(f"evidence {shape}")
    looked = 0
    for _ in range(tries(100)):
        history = random_history(dice, SHAPES[shape])
        if len(unpaired(Analysis.of(history))):
            continue
        verdict = check(history).verdicts.get("linearizable")
        if verdict is None or verdict.result != "invalid":
            continue
        looked += 1
        again = check(without_others(history, verdict)).verdicts["linearizable"]
        assert again.result == "invalid", (verdict.reason, list(to_lines(history)))
    assert looked > tries(10)


def test_a_double_grant_among_thousands_is_explained_by_its_two_sections() -> None:
    history = lock_history(Load(20_000, double_grants=1))
    verdict = check(history).verdicts["linearizable"]
    assert [e["f"] for e in verdict.evidence] == ["acquire", "acquire", "release", "release"]
    assert len({e["process"] for e in verdict.evidence}) == 2


def test_values_that_clash_far_in_are_explained_by_a_few_operations() -> None:
    """Unique values: two values read in turns, each by many."""
    scene = Scene(key="r").kind("register")
    for i in range(100):
        scene.op(F.WRITE, 1, 10 * i, 10 * i + 1, value=i, named=False)
        for reader in range(5):
            scene.op(F.READ, 2 + reader, 10 * i + 2, 10 * i + 3, value=i, named=False)
    scene.op(F.READ, 9, 995.5, 996, value=98, named=False)
    history = scene.history()
    verdict = check(history).verdicts["linearizable"]
    assert verdict.result == "invalid"
    assert len(verdict.evidence) <= 6
    assert check(without_others(history, verdict)).verdicts["linearizable"].result == "invalid"


def test_a_long_search_is_explained_by_its_end() -> None:
    scene = Scene(key="r").kind("cas-register", initial=0)
    for i in range(2000):
        scene.op(F.CAS, i % 5, 10 * i, 10 * i + 5, old=i % 7, value=(i + 1) % 7, named=False)
    scene.op(F.READ, 9, 20_020, 20_021, value=3, named=False)
    verdict = check(scene.history()).verdicts["linearizable"]
    assert verdict.result == "invalid"
    assert [e["f"] for e in verdict.evidence] == ["cas", "read"]


def test_bystanders_of_a_search_are_left_out() -> None:
    """Held by somebody else while a process number is used twice; fifty others came before."""
    scene = Scene()
    for client in range(10, 60):
        t = 2 * (client - 10)
        scene.acquire(client, t, t + 0.5, named=False).release(client, t + 1, t + 1.5, named=False)
    scene.acquire(1, 100, None, "info", named=False).acquire(1, 101, 102, named=False)
    scene.acquire(2, 101, 103, named=False).release(2, 104, 105, named=False)
    scene.release(1, 104, 105, named=False)
    verdict = check(scene.history()).verdicts["linearizable"]
    assert verdict.result == "invalid"
    assert {e["process"] for e in verdict.evidence} <= {"1", "2"}
