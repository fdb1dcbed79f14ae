"""A fault of links or of processes is proven by the word of what does it *and* by what a write then
suffers: each alone, planted here, is no proof."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import pytest

from clusters.base import Cut, Edge, Shape
from nemesis import slow
from nemesis.base import Arena, Fault, Injection
from nemesis.registry import faults
from tests.nemesis.fakes import FakeClients

NODES = 1, 2, 3
CUTS = "partition-drop", "partition-stall", "partition-reject", "reply-lost"
SLOWS = "latency", "jitter", "bandwidth", "slicer"


@dataclass
class Servers:
    """Independent servers whose links and processes do, or only claim to do, what they are told."""

    says: bool = True
    silent: bool = True
    touched: list[str] = field(default_factory=list)
    nodes: Sequence[int] = NODES
    frozen_nodes: set[int] = field(default_factory=set)

    def node_name(self, node: int) -> str:
        return f"node-{node}"

    def serves(self, node: int, timeout_s: float, group: int = 0) -> bool:
        return not (self.silent and (self.touched or self.frozen_nodes))

    def edges(self) -> Sequence[Edge]:
        return [Edge(-1, node) for node in NODES]

    def cut(self, edges: Iterable[Edge], how: Cut) -> None:
        self.touched = [str(edge) for edge in edges]

    def cut_one_way(self, edges: Iterable[Edge], how: Cut) -> None:
        self.cut(edges, how)

    def shape(self, edges: Iterable[Edge], shape: Shape) -> None:
        self.touched = [str(edge) for edge in edges]

    def reset(self, edges: Iterable[Edge]) -> None: ...

    def broken_links(self) -> Sequence[str]:
        return self.touched if self.says else []

    def heal(self) -> None:
        self.touched = []

    def pause(self, nodes: Iterable[int]) -> None:
        self.frozen_nodes = set(nodes)

    def unpause(self, nodes: Iterable[int]) -> None:
        self.frozen_nodes = set()

    def frozen(self, node: int) -> bool:
        return self.says and node in self.frozen_nodes


def took_effect(name: str, servers: Servers) -> bool:
    fault: Fault = faults()[name]
    injection = Injection(name, 0.0, 5.0, seed=5, parameters=tuple(fault.defaults().items()))
    arena = Arena(servers, FakeClients(), injection, 3.0)  # type: ignore[arg-type]
    fault.aim(arena)
    fault.begin(arena)
    arena.begun_ns = time.monotonic_ns()
    return fault.took_effect(arena)


@pytest.mark.parametrize("name", [*CUTS, "pause"])
def test_a_cut_takes_the_word_and_the_silence(name: str) -> None:
    assert took_effect(name, Servers())
    assert not took_effect(name, Servers(says=False))
    assert not took_effect(name, Servers(silent=False))


@pytest.mark.parametrize("name", SLOWS)
def test_a_slow_link_takes_the_word_and_the_stopwatch(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def takes(before_s: float, during_s: float, *, says: bool) -> bool:
        servers = Servers(says=says, silent=False)
        monkeypatch.setattr(slow, "_took_s", lambda _: during_s if servers.touched else before_s)
        return took_effect(name, servers)

    assert takes(0.001, 2.0, says=True)
    assert not takes(0.001, 2.0, says=False)
    assert not takes(0.001, 0.002, says=True)
    assert not takes(2.0, 2.0, says=True)
