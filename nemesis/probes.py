"""Probes that several faults share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import Final

from clusters.base import HARNESS
from nemesis.base import Arena

PROBE_S: Final = 0.4


def silent(arena: Arena, nodes: Iterable[int], group: int = HARNESS) -> bool:
    """Whether none of these nodes completes a write sent over the group's link while the fault is
    on. An answer that came only after the heal was due was kept back, too: a fault that is shorter
    than the probe's patience shows so."""

    def keeps_still(node: int) -> bool:
        asked_ns = monotonic_ns()
        served = arena.cluster.serves(node, PROBE_S, group)
        return not served or asked_ns < arena.heal_due_ns <= monotonic_ns()

    return all(_at_once(keeps_still, nodes))


def serving(arena: Arena, nodes: Iterable[int], group: int = HARNESS) -> bool:
    """Whether each of these nodes completes a write sent over the group's link."""
    return all(_at_once(lambda node: arena.cluster.serves(node, PROBE_S, group), nodes))


def _at_once(ask: Callable[[int], bool], nodes: Iterable[int]) -> list[bool]:
    chosen = list(nodes)
    if not chosen:
        return []
    with ThreadPoolExecutor(len(chosen)) as pool:
        return list(pool.map(ask, chosen))
