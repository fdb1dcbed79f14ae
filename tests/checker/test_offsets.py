"""Verdicts on several machines against every vector of offsets."""

from __future__ import annotations

import json
import random
from collections import Counter

import numpy as np
import pytest

from lockbench.checker import machines
from lockbench.checker.check import check
from lockbench.checker.rivals import FAR, Holds, Rivals, swept
from lockbench.history.jsonl import to_lines
from perf.clocks.methods import METHODS
from perf.clocks.world import World, simulated
from perf.machines import MS
from tests.budget import tries
from tests.checker.offsets_reference import Hold, Little, little

EACH = tries(30)


def verdict(it: Little) -> tuple[str, str]:
    found = check(it.history(), only=("double-grant",)).verdicts["double-grant"]
    return found.result, found.reason


def told(it: Little) -> str:
    return "\n".join(json.dumps(line) for line in to_lines(it.history()))


@pytest.mark.random
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("kind", ["mutex", "read-write"])
def test_agrees_with_every_vector_of_offsets(
    kind: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two machines everything is decided; of three a little may stay unknown."""
    monkeypatch.setattr(machines, "SURE", 0.0)
    dice, seen = random.Random(f"{kind} {count}"), Counter[tuple[bool | None, str]]()
    for _ in range(EACH):
        it = little(dice, kind, count)
        explained, (result, reason) = it.explained(), verdict(it)
        seen[explained, result] += 1
        allowed = {True: {"valid"}, False: {"invalid"}, None: {"unknown"}}[explained]
        if count > 2:
            allowed = {*allowed, "unknown"}
        assert result in allowed, f"explained: {explained}, {result}: {reason}\n{told(it)}"
        assert explained is not None or "contradicts itself" in reason
    assert seen[True, "valid"] > EACH / 10
    assert seen[False, "invalid"] > EACH / 10
    assert seen[True, "unknown"] + seen[False, "unknown"] <= EACH / 10


def test_an_overlap_that_one_shift_explains_and_two_that_none_does() -> None:
    """Nothing is left of any promise when it is shrunk by 3, and there are no stamps."""
    early = (Hold(0, 0, 6), Hold(1, 4, 10))  # the second began 2 too soon
    late = (Hold(1, 40, 46), Hold(0, 44, 50))  # here that of the other machine did
    for kind in ("mutex", "read-write"):
        for holds in (early, late):
            it = Little(kind, 2, 3, holds)
            assert it.explained()
            assert "are shorter" in verdict(it)[1]
        both = Little(kind, 2, 3, early + late)
        assert not both.explained()
        result, reason = verdict(both)
        assert result == "invalid"
        assert "no offsets of machine m0 and machine m1 explain the promises of k" in reason
    readers = tuple(Hold(h.machine, h.granted, h.released, (), True) for h in early + late)
    assert verdict(Little("read-write", 2, 3, readers))[0] == "unknown"


@pytest.mark.parametrize(("needed_ns", "possible"), [(1_000_000, True), (1_000_001, False)])
def test_offsets_change_by_what_two_clocks_drift_and_no_more(
    needed_ns: int, possible: bool
) -> None:
    """A second apart, x is at most nothing and then at least this."""
    holds = Holds(
        row=np.arange(4),
        key=np.zeros(4, np.int32),
        machine=np.array([0, 1, 0, 1], np.int32),
        start=np.zeros(4, np.int64),
        end=np.zeros(4, np.int64),
        owner=np.arange(4),
        reads=np.zeros(4, np.bool_),
        together=np.zeros(4, np.bool_),
    )
    found = Rivals(
        p=np.array([0, 2]),
        q=np.array([1, 3]),
        at_ns=np.array([0, 10**9]),
        before=np.array([0, -FAR]),
        after=np.array([FAR, needed_ns]),
        low=np.array([-(10**8)] * 2),
        high=np.array([10**8] * 2),
        base={-1: 0, 0: 0, 1: 0},
    )
    order = swept(holds, found)
    assert (order.conflict is None) == possible
    if possible:
        assert order.p_first.tolist() == [True, False]


@pytest.mark.random
def test_of_what_no_offsets_explain_two_really_were_at_once() -> None:
    """Nothing but holds and a stated bound. The last pair that was looked at is often innocent."""
    found = 0
    for seed in range(tries(12)):
        overlap_ns = (10 * MS, 100 * MS)[seed % 2]
        world = World(4, ("zone",), 200, overlap_ns, uses="none", epsilon_ns=60 * MS)
        told = simulated(world, seed)
        judged = METHODS[-1](told.history)
        if judged.result == "invalid":
            found += "no offsets" in judged.reason
            assert any(judged.accused >= {*pair} for pair in told.overlaps)
    assert found > 0


def test_a_conflict_has_none_too_many() -> None:
    """Pairs a second apart, whose forbidden intervals leave nothing together and something without
    any one of the three that matter."""
    forbidden = [(-40, -30), (-10, 5), (0, 20), (-20, -5), (15, 40)]
    forbidden = [(MS * low, MS * high) for low, high in forbidden]

    def conflict(chosen: list[int]) -> list[int] | None:
        count = len(chosen)
        holds = Holds(
            row=np.arange(2 * count),
            key=np.zeros(2 * count, np.int32),
            machine=np.tile(np.array([0, 1], np.int32), count),
            start=np.zeros(2 * count, np.int64),
            end=np.zeros(2 * count, np.int64),
            owner=np.arange(2 * count),
            reads=np.zeros(2 * count, np.bool_),
            together=np.zeros(2 * count, np.bool_),
        )
        found = Rivals(
            p=np.arange(0, 2 * count, 2),
            q=np.arange(1, 2 * count, 2),
            at_ns=np.arange(count) * 1000,
            before=np.array([forbidden[n][0] for n in chosen]),
            after=np.array([forbidden[n][1] for n in chosen]),
            low=np.full(count, -9 * MS),
            high=np.full(count, 18 * MS),
            base={-1: 0, 0: 0, 1: 0},
        )
        rows = swept(holds, found).conflict
        return None if rows is None else [chosen[row] for row in rows.tolist()]

    assert conflict([0, 1, 2, 3, 4]) == [1, 2]
    assert conflict([0, 1, 3, 4]) is None
