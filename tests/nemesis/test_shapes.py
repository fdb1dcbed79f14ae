"""The shapes of a partition do what the field means by their names, for every size and draw."""

from __future__ import annotations

import itertools
import random

import pytest

from clusters.base import Edge
from nemesis import shapes
from nemesis.shapes import Sides, client_side, server_side
from nemesis.targets import majority

SIZES = (3, 4, 5, 7)
SEEDS = range(20)


def drawn(shape: str, size: int, seed: int, leader: int | None = 2) -> Sides:
    return server_side(shape, range(1, size + 1), leader, random.Random(seed))


def hears(sides: Sides, size: int, node: int) -> set[int]:
    """Whom a node still hears, itself included."""
    cut = {a for a, b in ((e.source, e.target) for e in sides.pairs) if b == node}
    return set(range(1, size + 1)) - cut


@pytest.mark.parametrize(
    ("shape", "size", "seed"), list(itertools.product(shapes.BETWEEN_SERVERS, SIZES, SEEDS))
)
def test_who_is_cut_from_whom_is_so_in_both_directions(shape: str, size: int, seed: int) -> None:
    if size < shapes.NODES_MIN[shape]:
        return
    pairs = drawn(shape, size, seed).pairs
    assert pairs
    assert {Edge(e.target, e.source) for e in pairs} == pairs
    assert all(e.source != e.target for e in pairs)


@pytest.mark.parametrize(("size", "seed"), list(itertools.product(SIZES, SEEDS)))
def test_the_leader_is_alone(size: int, seed: int) -> None:
    sides = drawn(shapes.LEADER, size, seed)
    assert sides.targets == (2,)
    assert hears(sides, size, 2) == {2}
    assert len(hears(sides, size, 1)) == size - 1


@pytest.mark.parametrize(("size", "seed"), list(itertools.product(SIZES, SEEDS)))
def test_a_minority_leaves_the_leader_with_a_majority(size: int, seed: int) -> None:
    sides = drawn(shapes.MINORITY, size, seed)
    assert 2 not in sides.targets
    assert 0 < len(sides.targets) < size / 2
    assert len(hears(sides, size, 2)) > size / 2


@pytest.mark.parametrize(("size", "seed"), list(itertools.product(SIZES, SEEDS)))
def test_a_majority_leaves_the_leader_without_one(size: int, seed: int) -> None:
    sides = drawn(shapes.MAJORITY, size, seed)
    assert 2 in sides.targets
    assert len(hears(sides, size, 2)) < majority(range(size))
    others = next(n for n in range(1, size + 1) if n not in sides.targets)
    assert len(hears(sides, size, others)) >= majority(range(size))


@pytest.mark.parametrize(("size", "seed"), list(itertools.product(SIZES, SEEDS)))
def test_a_bridge_is_one_node_that_hears_both_halves(size: int, seed: int) -> None:
    sides = drawn(shapes.BRIDGE, size, seed)
    (middle,) = sides.targets
    assert middle != 2
    assert hears(sides, size, middle) == set(range(1, size + 1))
    for node in set(range(1, size + 1)) - {middle}:
        assert middle in hears(sides, size, node)
        assert len(hears(sides, size, node)) < size


@pytest.mark.parametrize(("size", "seed"), list(itertools.product((4, 5, 7), SEEDS)))
def test_in_a_ring_all_hear_a_majority_and_no_two_the_same(size: int, seed: int) -> None:
    sides = drawn(shapes.RING, size, seed)
    heard = [frozenset(hears(sides, size, node)) for node in range(1, size + 1)]
    assert all(majority(range(size)) <= len(h) < size for h in heard)
    assert len(set(heard)) == size


def test_client_groups_are_cut_from_nodes_only() -> None:
    pairs = client_side([1, 3], [2])
    assert pairs == {Edge(-2, 1), Edge(1, -2), Edge(-2, 3), Edge(3, -2)}


def test_the_same_seed_draws_the_same_sides() -> None:
    assert drawn(shapes.BRIDGE, 7, 5) == drawn(shapes.BRIDGE, 7, 5)
    assert len({drawn(shapes.MINORITY, 7, seed).targets for seed in SEEDS}) > 1
