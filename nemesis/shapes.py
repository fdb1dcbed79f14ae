"""The shapes of a partition: which links are cut. Pure: nothing is contacted.

A shape is a set of ordered pairs of ends that no longer hear each other: ``Edge(a, b)`` says that
what a sends does not reach b. Ends are node numbers, or the negatives of client groups' numbers.
The names are the field's (Jepsen's grudges: one node, halves, bridge, majorities ring).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lockbench.clusters.base import Edge
from lockbench.nemesis.targets import majority, minority

# Between servers.
LEADER, MINORITY, MAJORITY, BRIDGE, RING = "leader", "minority", "majority", "bridge", "ring"
# Between clients and servers.
CLIENTS, GROUP, GROUP_NODE = "clients", "group", "group-node"
BETWEEN_SERVERS: Final = (LEADER, MINORITY, MAJORITY, BRIDGE, RING)
OF_CLIENTS: Final = (CLIENTS, GROUP, GROUP_NODE)
NODES_MIN: Final = {LEADER: 2, MINORITY: 3, MAJORITY: 3, BRIDGE: 3, RING: 4}


@dataclass(frozen=True, slots=True)
class Sides:
    """``targets`` are the nodes that were cut off (of a bridge the one that hears both halves, of a
    ring all), ``pairs`` who no longer hears whom."""

    targets: tuple[int, ...]
    pairs: frozenset[Edge]


def split(left: Iterable[int], right: Iterable[int]) -> frozenset[Edge]:
    """Neither side hears the other."""
    return frozenset(
        edge for a, b in itertools.product(left, right) for edge in (Edge(a, b), Edge(b, a))
    )


def server_side(shape: str, nodes: Sequence[int], leader: int | None, rng: random.Random) -> Sides:
    """A shape between servers. ``leader`` is on the smaller side where there is a choice: the
    dangerous side to be on."""
    if shape == LEADER:
        assert leader is not None
        return Sides((leader,), split((leader,), (n for n in nodes if n != leader)))
    if shape == RING:
        return _ring(nodes, rng)
    others = rng.sample([n for n in nodes if n != leader], len(nodes) - (leader is not None))
    order = ([] if leader is None else [leader]) + others
    if shape == BRIDGE:
        return _bridge(order)
    # A minority that the leader is not in, or the whole majority away from the leader's rest.
    rest = order[: len(nodes) - majority(nodes)]
    away = sorted(others[: minority(nodes)] if shape == MINORITY else rest)
    return Sides(tuple(away), split(away, (n for n in nodes if n not in away)))


def client_side(nodes: Iterable[int], groups: Iterable[int]) -> frozenset[Edge]:
    """These client groups and these nodes do not hear each other."""
    return split((-g for g in groups), nodes)


def _bridge(order: Sequence[int]) -> Sides:
    """Two halves that do not hear each other, and one node, the last, that hears both."""
    middle, rest = order[-1], order[:-1]
    half = len(rest) // 2
    left, right = rest[:half] or rest[:1], rest[half:] or rest[1:]
    return Sides((middle,), split(left, right))


def _ring(nodes: Sequence[int], rng: random.Random) -> Sides:
    """Every node hears a majority, and no two hear the same one."""
    order = rng.sample(list(nodes), len(nodes))
    size = len(order)
    reach = majority(nodes) // 2  # neighbours heard on each side
    pairs = frozenset(
        Edge(order[i], order[j])
        for i in range(size)
        for j in range(size)
        if min((i - j) % size, (j - i) % size) > reach
    )
    return Sides(tuple(sorted(nodes)), pairs)
