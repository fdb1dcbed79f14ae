"""The conductor proves, records and heals, whatever the fault does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from lockbench.clusters.base import Edge
from lockbench.nemesis import conductor, staging
from lockbench.nemesis.base import Arena, Fault, Injection, NemesisError
from lockbench.nemesis.conductor import Played, TargetClaims, play
from lockbench.nemesis.registry import faults
from tests.nemesis.fakes import FakeClients


@dataclass
class Script(Fault):
    """A fault that does what the test tells it to and keeps a diary."""

    effect: bool = True
    recovers: bool = True
    breaks_at: str = ""
    diary: list[str] = field(default_factory=list)
    name: ClassVar[str] = "script"
    summary: ClassVar[str] = "does as told"
    rules: ClassVar[tuple[str, ...]] = ("proven",)
    touches: ClassVar[frozenset[str]] = frozenset()

    def _note(self, step: str) -> None:
        self.diary.append(step)
        if step == self.breaks_at:
            raise RuntimeError(f"{step} went wrong")

    def aim(self, arena: Arena) -> None:
        self._note("aim")

    def begin(self, arena: Arena) -> None:
        self._note("begin")

    def took_effect(self, arena: Arena) -> bool:
        return self.effect

    def heal(self, arena: Arena) -> None:
        self._note("heal")

    def recovered(self, arena: Arena) -> bool:
        return self.recovers


class Nothing:
    """Stands for a cluster where none is needed."""

    def node_name(self, node: int) -> str:
        return f"node-{node}"


@pytest.fixture(autouse=True)
def short_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("AIM_S", "PROOF_S", "RECOVERY_S"):
        monkeypatch.setattr(conductor, limit, 0.1)


def played(
    fault: Script,
    clients: FakeClients | None = None,
    *,
    stop: bool = False,
    duration_s: float = 0.05,
) -> Played:
    injection = Injection("script", begin_s=0.01, duration_s=duration_s)
    victims = clients or FakeClients()
    arena = Arena(Nothing(), victims, injection, 3.0)  # type: ignore[arg-type]
    stopped = threading.Event()
    if stop:
        stopped.set()
    return play(
        fault,
        arena,
        start_ns=time.monotonic_ns(),
        on_change=lambda _: None,
        stop=stopped,
        claims=TargetClaims(victims),
    )


def test_a_fault_is_an_interval_at_both_ends_and_proven() -> None:
    result = played(Script())
    assert result.failure is None
    assert result.fault is not None
    begin, heal = result.fault.begin_ns, result.fault.heal_ns
    assert heal is not None
    assert begin[0] <= begin[1] < heal[0] <= heal[1]
    assert heal[0] - begin[1] >= 0.05e9
    assert result.fault.facts["proven"] is True


def test_a_fault_without_effect_is_not_proven() -> None:
    result = played(Script(effect=False))
    assert result.failure is None
    assert result.fault is not None
    assert result.fault.facts["proven"] is False


class Late(Script):
    """A fault whose probe fails only when everything is healed, as on a machine that stutters."""

    def took_effect(self, arena: Arena) -> bool:
        return time.monotonic_ns() > arena.heal_due_ns


def test_what_is_seen_after_the_heal_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conductor, "PROOF_S", 10.0)
    result = played(Late(), duration_s=1.0)
    assert result.fault is not None
    assert result.fault.facts["proven"] is False


@pytest.mark.parametrize("step", ["aim", "begin"])
def test_it_heals_when_injecting_fails(step: str) -> None:
    script, clients = Script(breaks_at=step), FakeClients()
    result = played(script, clients)
    assert script.diary[-1] == "heal"
    assert f"{step} went wrong" in (result.failure or "")
    assert clients.let_go_calls


def test_a_failed_heal_voids_the_case() -> None:
    assert "did not heal" in (played(Script(recovers=False)).failure or "")
    assert "heal went wrong" in (played(Script(breaks_at="heal")).failure or "")


class Outlived(Script):
    """A fault after which the victim holds on."""

    outlived: ClassVar[bool] = True


class Holding(FakeClients):
    """Its promise ends a while after the fault was healed."""

    ends_at: float = 0.0

    def hold(self, timeout_s: float) -> int | None:
        self.ends_at = time.monotonic() + 2.9
        return super().hold(timeout_s)

    def promise_left_s(self) -> float:
        return max(0.0, self.ends_at - time.monotonic())


def test_the_hold_outlives_the_heal_where_it_has_to() -> None:
    clients = Holding()
    result = played(Outlived(), clients)
    assert result.fault is not None
    assert time.monotonic() >= clients.ends_at
    assert clients.let_go_calls == 1


def test_without_a_hold_to_aim_at_nothing_is_injected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "STAGE_S", 0.1)
    script = Script()
    result = played(script, FakeClients(grants=False))
    assert "begin" not in script.diary
    assert "was not granted" in (result.failure or "")
    stale = Script()
    assert "begin" not in (played(stale, FakeClients(left_s=0.5)), stale)[1].diary


def test_a_stop_before_the_fault_injects_nothing() -> None:
    script = Script()
    result = played(script, stop=True)
    assert script.diary == []
    assert result.fault is None
    assert "stopped" in (result.failure or "")


class Unseated(Script):
    """Its target has no role at first, as after another fault."""

    missing: int = 2

    def aim(self, arena: Arena) -> None:
        self.diary.append("aim")
        if self.diary.count("aim") <= self.missing:
            raise NemesisError("no leader to aim at")


def test_a_role_that_is_vacant_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    script = Unseated()
    script.missing = 10**9
    assert "no leader to aim at" in (played(script).failure or "")
    monkeypatch.setattr(conductor, "AIM_S", 60.0)
    script = Unseated()
    assert played(script).failure is None
    assert script.diary.count("aim") == 3


class Linked(Script):
    """Takes hold of the links."""

    touches: ClassVar[frozenset[str]] = frozenset({"links"})


def test_what_takes_hold_of_the_same_waits_for_the_one_before() -> None:
    clients = FakeClients()
    claims, stop = TargetClaims(clients), threading.Event()
    over: list[Played] = []

    def conduct(begin_s: float) -> None:
        arena = Arena(Nothing(), clients, Injection("linked", begin_s, 0.1), 3.0)  # type: ignore[arg-type]
        over.append(
            play(
                Linked(),
                arena,
                start_ns=time.monotonic_ns(),
                on_change=lambda _: None,
                stop=stop,
                claims=claims,
            )
        )

    threads = [threading.Thread(target=conduct, args=(at,)) for at in (0.0, 0.05)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, second = (p.fault for p in over)
    assert first is not None
    assert second is not None
    assert first.heal_ns is not None
    assert second.begin_ns[0] > first.heal_ns[1]
    assert clients.let_go_calls >= 1


def test_what_still_waits_when_the_load_ends_strikes_nothing() -> None:
    """And leaves the target to the fault that has it."""
    clients = FakeClients()
    claims, stop = TargetClaims(clients), threading.Event()
    links = frozenset({"links"})
    with claims.on(links, stop) as first:
        waiting = Linked()
        arena = Arena(Nothing(), clients, Injection("linked", 0.0, 0.1), 3.0)  # type: ignore[arg-type]
        threading.Timer(0.05, stop.set).start()
        second = play(
            waiting,
            arena,
            start_ns=time.monotonic_ns(),
            on_change=lambda _: None,
            stop=stop,
            claims=claims,
        )
        assert claims._taken == links
    assert first
    assert second.fault is None
    assert second.failure is not None
    assert second.failure.startswith("stopped before the fault began")
    assert waiting.diary == []


class Pair(Nothing):
    """A primary and its replica. Notes when their links were cut."""

    nodes = (1, 2)
    elects = False

    def __init__(self) -> None:
        self.cut_ns = 0
        self.leads = 1

    def primary(self) -> int | None:
        return self.leads

    def replicas(self) -> Sequence[int]:
        return [3 - self.leads]

    def promotes_nobody(self) -> str | None:
        return None

    def promote(self, node: int, limit_s: float) -> None:
        self.leads = node

    def edges(self) -> Sequence[Edge]:
        return [Edge(1, 2), Edge(2, 1)]

    def cut(self, edges: Iterable[Edge], how: str) -> None:
        self.cut_ns = time.monotonic_ns()

    def cut_one_way(self, edges: Iterable[Edge], how: str) -> None: ...
    def broken_links(self) -> Sequence[str]:
        return []

    def heal(self) -> None: ...
    def kill(self, nodes: Iterable[int]) -> None: ...
    def restart(self, nodes: Iterable[int]) -> None: ...
    def serves(self, node: int, timeout_s: float, group: int = 0) -> bool:
        return True


def test_a_failover_says_when_replication_was_cut_for_it() -> None:
    """Whoever waits for the replica waits from then on."""
    cluster, clients = Pair(), FakeClients()
    arena = Arena(cluster, clients, Injection("failover", 0.01, 0.05), 0.2)  # type: ignore[arg-type]
    failover = faults()["failover"]
    failover.aim(arena)
    failover.stage(arena)
    staged_ns = arena.facts.staged_ns
    assert staged_ns is not None
    assert staged_ns <= cluster.cut_ns < time.monotonic_ns() - 0.2e9
