"""A play of actors that do nothing: in which order they are told what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

from lockbench.explore.actors import Actor
from lockbench.explore.asked import asked
from lockbench.explore.orders import Answer, Open, Order
from lockbench.explore.stage import Stage
from lockbench.explore.trial import Setting, Trial


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


def test_the_victim_connects_when_all_plays_are_ready(tmp_path: Path) -> None:
    """Its first events come at the same time in each play, also where it connects at once."""
    case = asked("redis-token").case
    pace = replace(case.pace, lease_ttl_s=0.1)
    told: list[object] = []
    actors = [cast("Actor", Obedient(told)) for _ in range(4)]
    server: Any = Server(told)
    setting = Setting(case.lock, case.system, pace, (), ())
    stage = Stage(
        setting, Trial("free"), actors, folder=tmp_path / "play", host="", key="k", server=server
    )
    assert not stage.play().unable
    begun = [
        one if isinstance(one, str) else one.number for one in told if isinstance(one, str | Open)
    ]
    assert begun == [1, 2, 3, "ready", 0]
