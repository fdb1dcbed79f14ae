"""A play of actors that do nothing: in which order they are told what to do."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest

from lockbench.explore import link
from lockbench.explore import stage as stage_module
from lockbench.explore.actors import Actor
from lockbench.explore.asked import asked
from lockbench.explore.faults import FAULTS
from lockbench.explore.orders import Acquire, Answer, Claim, Close, Open, Order, Start
from lockbench.explore.stage import Stage
from lockbench.explore.trial import Place, Played, Setting, Strike, Trial
from lockbench.explore.trials import standing
from tests.eventually import eventually

LEASE_S = 0.1


@dataclass
class Obedient:
    """Grants everything at once."""

    told: list[object]
    killed_ns: int | None = None
    busy: bool = False

    def tell(self, order: Order) -> None:
        self.told.append(order)

    def answer(self, timeout_s: float) -> Answer:
        return Answer(granted=True)


@dataclass
class Server:
    told: list[object]

    def ready(self) -> None:
        self.told.append("ready")


@dataclass
class Clientless(Obedient):
    """Cannot make a client."""

    why: str = "LockUnusableError: no"
    mine: list[Order] = field(default_factory=list)

    def tell(self, order: Order) -> None:
        self.mine.append(order)

    def answer(self, timeout_s: float) -> Answer:
        return Answer(failed=self.why if isinstance(self.mine[-1], Open) else "")


@dataclass
class Refused(Obedient):
    """Never gets what it asks for."""

    def answer(self, timeout_s: float) -> Answer:
        return Answer()


def staged(tmp_path: Path, actors: list[Obedient], scenario: str = "free") -> Stage:
    """Without a fault."""
    case = asked("redis-token").case
    pace = replace(case.pace, lease_ttl_s=LEASE_S)
    server: Any = Server(actors[0].told)
    return Stage(
        Setting(case.lock, case.system, pace, (), ()),
        Trial(scenario),
        [cast("Actor", one) for one in actors],
        folder=tmp_path / "play",
        host="",
        key="k",
        server=server,
    )


def play(tmp_path: Path, victim: Obedient, told: list[object], scenario: str = "free") -> Played:
    """Without a fault."""
    actors = [Obedient(told) for _ in range(3)]
    return staged(tmp_path, [victim, *actors], scenario).play()


def test_all_clients_have_the_nodes_in_the_same_order(tmp_path: Path) -> None:
    """Where another server stands in for the one that is to be struck, too."""
    helper = Obedient([])
    stage = staged(tmp_path, [Obedient([]), helper, Obedient([]), Obedient([])])
    each = [("10.0.0.1", port) for port in (1, 2, 3)]
    stage.setting = replace(stage.setting, others=each, interchangeable=(1, 2, 3))
    strike = Strike(Place("request", 1, node=3), "server-frozen")
    stage._standing = standing(Trial("free", (strike,)), (1, 2, 3))
    stage._open(stage.helper)
    (opening,) = [order for order in helper.told if isinstance(order, Open)]
    assert [port for _, port in opening.nodes] == [stage._stands(node) for node in (1, 2, 3)]
    assert opening.nodes[2] == each[0], "the first server is struck"


@pytest.mark.parametrize(
    ("scenario", "order"),
    [("free", [1, 2, 3, "start", "ready", 0]), ("alone", [1, 2, 3, "start", 0, "ready"])],
)
def test_the_first_events_come_at_the_same_time_in_each_play(
    tmp_path: Path, scenario: str, order: list[object]
) -> None:
    """What the victim's library runs in is there when all plays are ready, and the victim is
    connected, unless its connection is struck, too."""
    told: list[object] = []
    assert not play(tmp_path, Obedient(told), told, scenario).unable
    begun = [
        one.number if isinstance(one, Open) else one if one == "ready" else "start"
        for one in told
        if one == "ready" or isinstance(one, Open | Start)
    ]
    assert begun == order


def test_a_victim_that_can_make_no_client_is_a_mistake_of_the_bench(tmp_path: Path) -> None:
    assert play(tmp_path, Clientless([]), []).unable.endswith(
        "could not connect: LockUnusableError: no"
    )


def test_a_fault_may_leave_the_victim_without_a_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Stage, "struck", True)
    told: list[object] = []
    victim = Clientless([])
    assert not play(tmp_path, victim, told).unable
    assert any(isinstance(one, Claim) for one in told), "the others go on"
    assert isinstance(victim.mine[-1], Close)


@pytest.mark.parametrize(
    "why",
    ["TypeError: an argument is missing", "LockUnusableError: the sidecar of kazoo ended"],
)
def test_a_client_that_fails_in_another_way_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.setattr(Stage, "struck", True)
    assert why in play(tmp_path, Clientless([], why=why), []).unable


def test_rivals_ask_until_a_wait_would_be_too_long_and_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_module, "ASKS", 1000.0)
    rival = Refused([])
    stage = staged(tmp_path, [Obedient([]), Obedient([]), rival, Refused([])])
    began = time.monotonic()
    assert not stage.play().unable
    lasted_s = time.monotonic() - began
    waits = [one.wait_s for one in rival.told if isinstance(one, Acquire)]
    assert lasted_s > LEASE_S + stage.setting.slack_s, "a holder's promise may have lasted so long"
    assert waits[0] == pytest.approx(1.5 * LEASE_S)
    assert waits[-1] < LEASE_S, "the last one is as long as what is left"


@pytest.mark.parametrize(("fault", "longer"), [("clock-jumped", True), ("server-killed", False)])
def test_what_was_taken_while_a_clock_was_ahead_has_not_leaked(
    tmp_path: Path, fault: str, *, longer: bool
) -> None:
    helper = Obedient([])
    stage = staged(tmp_path, [Obedient([]), helper, Obedient([]), Obedient([])])
    order, event = link.Order("request", 1, "held"), link.Event("request", 1, 1, 1, 0)
    stage._strikes[order] = Strike(Place("request", 1), fault)
    stage._traffic._met[order] = event
    stage._seen.append(stage_module._Seen(FAULTS[fault], event, order, 0, healed_ns=1))
    assert not stage.play().unable
    (claim,) = [one for one in helper.told if isinstance(one, Claim)]
    assert (claim.slack_s > stage.setting.slack_s) == longer


def test_while_servers_are_struck_nothing_is_over(tmp_path: Path) -> None:
    stage = staged(tmp_path, [Obedient([]) for _ in range(4)])
    event = link.Event("request", 1, 1, 1, 0)
    struck = stage_module._Seen(FAULTS["server-killed"], event, link.Order("request", 1, "held"), 0)
    stage._scripted_ns = 1
    assert stage._calm_s() > 0
    stage._seen.append(struck)
    assert stage._calm_s() == 0
    struck.healed_ns = 1
    assert stage._calm_s() > 0


@dataclass
class Late(Obedient):
    """Answers when the servers are whole again, and not before."""

    whole: threading.Event = field(default_factory=threading.Event)
    waits: int = 0

    def answer(self, timeout_s: float) -> Answer:
        self.waits += 1
        return Answer(granted=True) if self.whole.is_set() else cast("Answer", None)

    def kill(self) -> None: ...


@pytest.mark.parametrize("comes_back", [True, False])
def test_a_call_hangs_only_when_the_fault_is_over(tmp_path: Path, *, comes_back: bool) -> None:
    """A server may need longer to serve again than calls have time."""
    victim = Late([])
    stage = staged(tmp_path, [victim, *(Obedient([]) for _ in range(3))])
    order = link.Order("request", 1, "held", 0.0)
    event = link.Event("request", 1, 1, 1, time_ns=0)
    seen = stage_module._Seen(FAULTS["server-killed"], event, order, time.monotonic_ns())
    stage._seen.append(seen)

    def serve_again() -> None:
        eventually(lambda: victim.waits == 1)
        if comes_back:
            victim.whole.set()
        seen.healed_ns = time.monotonic_ns()

    thread = threading.Thread(target=serve_again)
    thread.start()
    if comes_back:
        assert stage.victim.acquire()
    else:
        with pytest.raises(stage_module._Over):
            stage.victim.acquire()
    thread.join()
    assert bool(stage.played.hangs) is not comes_back
    assert victim.waits == 2
