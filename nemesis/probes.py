"""Probes that several faults share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from time import monotonic_ns
from typing import Final

from lockbench.clusters.base import HARNESS
from lockbench.nemesis.base import Arena

PROBE_S: Final = 0.4
ROUNDS: Final = 3
SLOWER: Final = 1.5


def silent(arena: Arena, nodes: Iterable[int], group: int = HARNESS) -> bool:
    """Whether none of these nodes completes a write sent over the group's link while the fault is
    on. Where ``note_usual`` was called before, an answer that came only after the heal was due, and
    later than usual, was kept back: what a fault does that is shorter than the probe's patience."""
    usual_s = arena.facts.usual_s

    def keeps_still(node: int) -> bool:
        asked_ns = monotonic_ns()
        served = arena.cluster.serves(node, PROBE_S, group)
        done_ns = monotonic_ns()
        if not served:
            return True
        if usual_s is None:
            return False
        # Asked in the first half: a probe that only straddles the end may just have been slow.
        half_ns = (arena.begun_ns + arena.heal_due_ns) // 2
        across = asked_ns < half_ns and done_ns >= arena.heal_due_ns
        return across and (done_ns - asked_ns) / 1e9 > SLOWER * usual_s

    return at_once(keeps_still, nodes)


def silent_while(
    word: Callable[[], bool], arena: Arena, nodes: Iterable[int], group: int = HARNESS
) -> bool:
    """``silent``, and the word of what keeps them so (engine, proxies): either has other causes
    alone. Asked for at the same time, since a short fault leaves none for one after the other."""
    with ThreadPoolExecutor(1) as pool:
        said = pool.submit(word)
        return silent(arena, nodes, group) and said.result()


def note_usual(arena: Arena, nodes: Iterable[int]) -> None:
    """Before a fault that is too short for a probe to run out of patience, and after which what was
    sent is answered: how long the slowest of a few probes takes while nothing is wrong."""
    if arena.injection.duration_s > 2 * PROBE_S:
        return
    slowest = 0.0
    for node in [*nodes] * ROUNDS:
        asked_ns = monotonic_ns()
        arena.cluster.serves(node, PROBE_S)
        slowest = max(slowest, (monotonic_ns() - asked_ns) / 1e9)
    arena.facts.usual_s = slowest


def serving(arena: Arena, nodes: Iterable[int], group: int = HARNESS) -> bool:
    """Whether each of these nodes completes a write sent over the group's link."""
    return at_once(lambda node: arena.cluster.serves(node, PROBE_S, group), nodes)


def at_once(ask: Callable[[int], bool], nodes: Iterable[int]) -> bool:
    """Whether the answer is yes for each of these nodes, which are asked at the same time."""
    chosen = list(nodes)
    if not chosen:
        return True
    with ThreadPoolExecutor(len(chosen)) as pool:
        return all(list(pool.map(ask, chosen)))
