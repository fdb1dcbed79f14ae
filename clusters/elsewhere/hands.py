"""What a cluster can do by the commands of its file: each is a capability."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Final

from lockbench.clusters.base import HARNESS, ClusterError, ClusterPlan, Cut, Edge
from lockbench.clusters.elsewhere.cluster import Elsewhere
from lockbench.clusters.elsewhere.site import Site
from lockbench.clusters.pods.linked import PROBE_LIMIT_S

RESTART_LIMIT_S: Final = 20.0
APART_PAUSE_S: Final = 0.5  # between two looks at whom servers hear


class PausedByHand(Elsewhere):
    """``Pausable``, by the commands ``pause`` and ``resume``."""

    def pause(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._hand("pause", chosen)
        self._handled.update(chosen)

    def unpause(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._hand("resume", chosen)
        self._handled.difference_update(chosen)

    def frozen(self, node: int) -> bool:
        """The command's word."""
        return node in self._handled


class KilledByHand(Elsewhere):
    """``Killable``, by the commands ``kill`` and ``start``."""

    def kill(self, nodes: Iterable[int]) -> None:
        self._hand("kill", nodes)

    def restart(self, nodes: Iterable[int]) -> None:
        chosen = list(nodes)
        self._hand("start", chosen)
        self._poll_nodes(
            chosen,
            lambda node: self.check_answer(self.address(HARNESS, node), PROBE_LIMIT_S),
            RESTART_LIMIT_S,
            "does not answer after its restart",
        )


class CutByHand(Elsewhere):
    """``CutByCommand``, by the commands ``cut`` and ``join``. Links of clients are cut as ever."""

    def __init__(self, plan: ClusterPlan, site: Site) -> None:
        super().__init__(plan, site)
        self._severed: set[Edge] = set()
        self._apart: set[frozenset[int]] = set()
        self._looked_at = 0.0

    def edges(self) -> Sequence[Edge]:
        between = [Edge(one, other) for one, other in permutations(self.nodes, 2)]
        return [*between, *super().edges()]

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        between, near = _parted(edges)
        self._check(between, how)
        super().cut(near, how)
        self._sever([*between, *(Edge(edge.target, edge.source) for edge in between)])

    def cut_one_way(self, edges: Iterable[Edge], how: Cut) -> None:
        between, near = _parted(edges)
        self._check(between, how)
        super().cut_one_way(near, how)
        self._sever(between)

    def broken_links(self) -> Sequence[str]:
        """By the commands' word where they are between servers."""
        said = [
            f"{self.node_name(edge.target)} hears nothing of {self.node_name(edge.source)}, as the"
            " command for cut says"
            for edge in sorted(self._severed, key=lambda edge: (edge.target, edge.source))
        ]
        return [*said, *super().broken_links()]

    def heal(self) -> None:
        try:
            super().heal()
        finally:
            if self._severed:
                self._hand("join", self._ends(self._severed))
            self._severed, self._apart = set(), set()

    def apart(self, pairs: Iterable[frozenset[int]]) -> bool:
        wanted = set(pairs)
        time.sleep(max(0.0, self._looked_at + APART_PAUSE_S - time.monotonic()))
        self._looked_at = time.monotonic()
        self._apart |= self.deaf(wanted - self._apart)
        return wanted <= self._apart

    def _sever(self, edges: Iterable[Edge]) -> None:
        new = set(edges)
        self._apart -= {frozenset((edge.source, edge.target)) for edge in new}
        self._severed |= new  # before: half done must be undone too
        self._hand("cut", self._ends(new))

    @staticmethod
    def _ends(edges: Iterable[Edge]) -> Sequence[tuple[int, int]]:
        """Who no longer hears, and of whom."""
        return sorted((edge.target, edge.source) for edge in edges)

    @staticmethod
    def _check(between: Sequence[Edge], how: Cut) -> None:
        if between and how != "drop":
            raise ClusterError(f"commands cut servers from each other as drop does, and not {how}")


def _parted(edges: Iterable[Edge]) -> tuple[list[Edge], list[Edge]]:
    """The links between servers, and those of clients."""
    every = list(edges)
    between = [edge for edge in every if min(edge.source, edge.target) > 0]
    return between, [edge for edge in every if edge not in between]


BY_HAND: Final = {"pause": PausedByHand, "kill": KilledByHand, "cut": CutByHand}
