"""The shapes of a partition do what the field means by their names, for every size and draw."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from lockbench.clusters.base import Edge
from lockbench.nemesis import shapes
from lockbench.nemesis.shapes import Sides, client_side, server_side
from lockbench.nemesis.targets import majority

SIZES = (3, 4, 5, 7)
SEEDS = range(20)


def drawn(shape: str, size: int, seed: int, leader: int | None = 2) -> Sides:
    return server_side(shape, range(1, size + 1), leader, random.Random(seed))


def hears(sides: Sides, size: int, node: int) -> set[int]:
    """Whom a node still hears, itself included."""
    cut = {a for a, b in ((e.source, e.target) for e in sides.pairs) if b == node}
    return set(range(1, size + 1)) - cut


def every(shape: str) -> Iterator[tuple[int, Sides]]:
    """What is drawn of every size that has this shape."""
    for size, seed in itertools.product(SIZES, SEEDS):
        if size >= shapes.NODES_MIN[shape]:
            yield size, drawn(shape, size, seed)


@pytest.mark.parametrize("shape", shapes.BETWEEN_SERVERS)
def test_who_is_cut_from_whom_is_so_in_both_directions(shape: str) -> None:
    for _, sides in every(shape):
        assert sides.pairs
        assert {Edge(e.target, e.source) for e in sides.pairs} == sides.pairs
        assert all(e.source != e.target for e in sides.pairs)


def test_the_leader_is_alone() -> None:
    for size, sides in every(shapes.LEADER):
        assert sides.targets == (2,)
        assert hears(sides, size, 2) == {2}
        assert len(hears(sides, size, 1)) == size - 1


def test_a_minority_leaves_the_leader_with_a_majority() -> None:
    for size, sides in every(shapes.MINORITY):
        assert 2 not in sides.targets
        assert 0 < len(sides.targets) < size / 2
        assert len(hears(sides, size, 2)) > size / 2


def test_a_majority_leaves_the_leader_without_one() -> None:
    for size, sides in every(shapes.MAJORITY):
        assert 2 in sides.targets
        assert len(hears(sides, size, 2)) < majority(range(size))
        others = next(n for n in range(1, size + 1) if n not in sides.targets)
        assert len(hears(sides, size, others)) >= majority(range(size))


def test_a_bridge_is_one_node_that_hears_both_halves() -> None:
    for size, sides in every(shapes.BRIDGE):
        (middle,) = sides.targets
        assert middle != 2
        assert hears(sides, size, middle) == set(range(1, size + 1))
        for node in set(range(1, size + 1)) - {middle}:
            assert middle in hears(sides, size, node)
            assert len(hears(sides, size, node)) < size


def test_in_a_ring_all_hear_a_majority_and_no_two_the_same() -> None:
    for size, sides in every(shapes.RING):
        heard = [frozenset(hears(sides, size, node)) for node in range(1, size + 1)]
        assert all(majority(range(size)) <= len(h) < size for h in heard)
        assert len(set(heard)) == size


def test_client_groups_are_cut_from_nodes_only() -> None:
    pairs = client_side([1, 3], [2])
    assert pairs == {Edge(-2, 1), Edge(1, -2), Edge(-2, 3), Edge(3, -2)}


def test_the_same_seed_draws_the_same_sides() -> None:
    assert drawn(shapes.BRIDGE, 7, 5) == drawn(shapes.BRIDGE, 7, 5)
    assert len({drawn(shapes.MINORITY, 7, seed).targets for seed in SEEDS}) > 1
