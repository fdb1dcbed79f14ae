"""A fault of links or of processes is proven by the word of what does it *and* by what a write then
suffers: each alone, planted here, is no proof. Nor is a clock off by what its answer took, or a
server restarted that served all along."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import permutations

import pytest

from lockbench.clusters.base import Cut, Edge, Shape
from lockbench.nemesis import schedule, slow
from lockbench.nemesis.base import Arena, Fault, Injection
from lockbench.nemesis.faults import rolling_restart
from lockbench.nemesis.registry import faults
from tests.eventually import one_of
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

    def reset(self, edges: Iterable[Edge]) -> int:
        return 0

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


def begun(
    name: str, servers: Servers, duration_s: float = 5.0, **asked: str
) -> tuple[Fault, Arena]:
    fault: Fault = faults()[name]
    parameters = tuple((fault.defaults() | asked).items())
    injection = Injection(name, 0.0, duration_s, seed=5, parameters=parameters)
    arena = Arena(servers, FakeClients(), injection, 3.0)  # type: ignore[arg-type]
    fault.aim(arena)
    fault.begin(arena)
    arena.begun_ns = time.monotonic_ns()
    return fault, arena


def took_effect(name: str, servers: Servers, duration_s: float = 5.0, **asked: str) -> bool:
    fault, arena = begun(name, servers, duration_s, **asked)
    return fault.took_effect(arena)


@pytest.mark.parametrize("name", [*CUTS, "pause"])
def test_a_cut_takes_the_word_and_the_silence(name: str) -> None:
    assert took_effect(name, Servers())
    assert not took_effect(name, Servers(says=False))
    assert not took_effect(name, Servers(silent=False))


@dataclass
class ByCommand(Servers):
    """Servers that talk to each other, and say, or do not say, who is silent."""

    told: bool = True
    sees_peers: bool = True

    def edges(self) -> Sequence[Edge]:
        return [*(Edge(one, other) for one, other in permutations(NODES, 2)), *super().edges()]

    def apart(self, pairs: Iterable[frozenset[int]]) -> bool:
        cut = [edge for edge in self.edges() if str(edge) in self.touched]
        assert set(pairs) == {frozenset((edge.source, edge.target)) for edge in cut}
        return self.told


@pytest.mark.parametrize("shape", ["minority", "bridge"])
def test_a_cut_by_command_takes_more_than_its_word(shape: str) -> None:
    """A write that fails; or what servers say, where writes go on."""
    writes_go_on = shape == "bridge"
    assert took_effect("partition-drop", ByCommand(silent=not writes_go_on), shape=shape)
    assert not took_effect("partition-drop", ByCommand(says=False), shape=shape)
    assert took_effect("partition-drop", ByCommand(told=False), shape=shape) is not writes_go_on
    assert took_effect("partition-drop", ByCommand(silent=False), shape=shape) is writes_go_on
    too_soon = took_effect("partition-drop", ByCommand(silent=False, told=False), 0.1, shape=shape)
    assert not too_soon


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


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("latency:ms=2", True),
        ("slicer", True),
        ("slicer:bytes=64", False),
        ("slicer:pause_ms=0.1", False),
        ("bandwidth", True),
        ("bandwidth:kb_s=1000", False),
        ("clock-jump:by_s=0.4", False),
        ("clock-strobe:by_s=-0.4", False),
        ("client-clock-jump:by_s=0.9", False),
        ("client-clock-jump:by_s=-1", True),
    ],
)
def test_what_could_not_be_told_from_noise_is_refused(text: str, fit: bool) -> None:
    ((one,),) = schedule.parse(text)
    fault = faults()[one.name]
    reason = fault.unfit(Clocks(), fault.defaults() | dict(one.parameters))  # type: ignore[arg-type]
    assert (reason is None) is fit


@dataclass
class Clocks(Servers):
    """Servers with a clock each, which tell the time of the end of a question."""

    moves: float = 1.0
    answer_s: float = 0.0
    offset_s: float = 0.0

    def shift_clock(self, nodes: Iterable[int], offset_s: float) -> None:
        self.offset_s = self.moves * offset_s

    def clock_offset_s(self, node: int, timeout_s: float) -> float:
        time.sleep(self.answer_s)
        return self.offset_s + self.answer_s / 2


@pytest.mark.parametrize("name", ["clock-jump", "clock-strobe", "clock-drift"])
def test_a_slow_answer_does_not_move_a_clock(name: str) -> None:
    assert took_effect(name, Clocks())
    assert not took_effect(name, Clocks(moves=0.0))
    assert not took_effect(name, Clocks(moves=0.0, answer_s=0.6))
    assert not took_effect(name, Clocks(moves=-1.0))


@pytest.mark.parametrize("name", ["clock-jump", "clock-strobe", "clock-drift"])
def test_every_move_of_a_clock_is_recorded_with_its_time(name: str) -> None:
    """The way back to the truth is one, too."""
    fault, arena = begun(name, Clocks())
    fault.tick(arena)
    fault.heal(arena)
    moves = arena.facts.moves
    assert moves is not None
    assert len(moves) == (2 if name == "clock-jump" else 3)
    assert moves[-1][2] == 0.0
    assert max(offset for _, _, offset in moves) == arena.facts.offset_s
    times = [at for before, after, _ in moves for at in (before, after)]
    assert times == sorted(times)


@dataclass
class Restarting(Servers):
    """Servers that are killed, or go on serving, one of them; and that come back, or stay away."""

    survives: int = 0
    stays_away: int = 0
    down: set[int] = field(default_factory=set)

    def serves(self, node: int, timeout_s: float, group: int = 0) -> bool:
        return node not in self.down

    def kill(self, nodes: Iterable[int]) -> None:
        self.down |= set(nodes) - {self.survives}

    def restart(self, nodes: Iterable[int]) -> None:
        self.down -= set(nodes) - {self.stays_away}


@pytest.mark.parametrize(
    ("servers", "ticks", "all_restarted"),
    [
        (Restarting(), 3, True),
        (Restarting(), 2, False),  # the end came first
        (Restarting(survives=2), 3, False),
        (Restarting(stays_away=2), 3, False),
    ],
)
def test_a_rolling_restart_restarts_every_server(
    servers: Restarting, ticks: int, all_restarted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rolling_restart, "BACK_S", 0.05)
    fault, arena = begun("rolling-restart", servers)
    for _ in range(ticks - 1):
        fault.tick(arena)
    fault.recovered(arena)
    assert fault.took_effect(arena)
    away = arena.facts.away_ns
    assert away is not None
    assert (set(away) == {servers.node_name(node) for node in NODES}) is all_restarted
    assert all(begin < end for begin, end in away.values())


@dataclass
class Delaying(Servers):
    """Servers that keep what they are sent while they are frozen; the engine takes its time."""

    def serves(self, node: int, timeout_s: float, group: int = 0) -> bool:
        end = time.monotonic() + timeout_s
        while self.frozen_nodes and time.monotonic() < end:
            time.sleep(0.001)
        return not self.frozen_nodes

    def frozen(self, node: int) -> bool:
        time.sleep(0.25)
        return super().frozen(node)


def test_the_engine_is_asked_beside_the_write() -> None:
    """One after the other, the write would be sent too late to be kept for long enough."""

    def proven(_: int) -> bool:
        fault, arena = begun("pause", Delaying(), 0.75)
        thaw = threading.Timer(0.75, fault.heal, [arena])
        thaw.start()
        try:
            return fault.took_effect(arena)
        finally:
            thaw.join()

    assert one_of(proven, bool, 8)
