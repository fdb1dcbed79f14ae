"""A play of each planted lock on Redis shows its wrong step; plays of its neighbours show nothing.

``test_planted.py`` explores each whole, which takes an hour; this sees sooner that the bench has
become blind to one.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import pytest

from lockbench.bench import plan
from lockbench.explore import plays as plays_module
from lockbench.explore.actors import Actors
from lockbench.explore.asked import asked
from lockbench.explore.judge import Shown, Undecided, judged
from lockbench.explore.plays import OTHERS_GROUP, Plays
from lockbench.explore.trial import Trial
from lockbench.workloads.fork_server import ForkServer
from tests.explore.planted import PLANTED, spec

PLAYED = [name for name, one in PLANTED.items() if one.play]
TRIES = 3  # what a busy machine spoils is played again
AT_ONCE = 8
HOSTS_FROM = 20

Plant = Callable[[str, str], tuple[Plays, Trial]]


@pytest.fixture
def plant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Plant]:
    """Plays of a lock in the way of a planted one, all on one Redis, some at a time."""
    monkeypatch.setattr(plays_module, "SLOTS", 1)
    run_id = uuid.uuid4().hex[:12]
    numbers, lending = count(), threading.Lock()
    (logs := tmp_path / "logs").mkdir()
    case = asked("redis-token").case
    with ExitStack() as stack:
        fork_server = stack.enter_context(ForkServer(run_id, ["lockbench.explore.actor"]))
        wanted = replace(plan.cluster_plan_of(case, run_id, logs), groups=OTHERS_GROUP)
        cluster = stack.enter_context(plan.topology_of(case).make(wanted))
        victims = stack.enter_context(Actors(fork_server, logs))
        others = stack.enter_context(Actors(fork_server, logs))

        def make(name: str, like: str) -> tuple[Plays, Trial]:
            scenario, *strikes = PLANTED[like].play
            clients = PLANTED[like].clients
            what = asked(spec(name), scenarios=[scenario], strikes=strikes, clients=clients)
            with lending:
                number = next(numbers)
                keys = count(1000 * number)  # of its own
                folder = tmp_path / str(number)
                room = plays_module.room_of(what, 0)
                made = Plays(what, cluster, victims, others, folder, room=room, numbers=keys)
            made._lending = lending
            made._hosts = SimpleQueue()
            made._hosts.put(f"127.0.0.{HOSTS_FROM + number}")
            return made, Trial(scenario, tuple(what.strikes))

        yield make


def shows(plays: Plays, trial: Trial, *, found: tuple[str, ...] = ()) -> list[str]:
    """What is found in a play that is not declared; of ``TRIES``, the first with one of these."""
    verdicts: list[str] = []
    for _ in range(TRIES):
        (play,) = plays.play_all([trial])
        if play.unable or play.missed:
            verdicts = [play.unable or f"missed {play.missed}"]
            continue
        shown = judged(play, plays.setting.system)
        if isinstance(shown, Undecided):  # which acquits nobody
            verdicts = [shown.why]
            continue
        verdicts = []
        if isinstance(shown, Shown) and not shown.declared:
            verdicts = list(shown.verdicts)
        if bool(found) == bool({*found} & {*verdicts}):
            return verdicts
    return verdicts


@pytest.mark.docker
def test_each_is_found_and_its_neighbour_acquitted(plant: Plant) -> None:
    def found(name: str) -> str:
        said = shows(*plant(name, name), found=PLANTED[name].found)
        return "" if {*said} & {*PLANTED[name].found} else f"{name} shows {said}"

    def acquitted(name: str) -> str:
        said = shows(*plant(PLANTED[name].right, name))
        return f"{PLANTED[name].right} shows {said}" if said else ""

    with ThreadPoolExecutor(AT_ONCE) as pool:
        wrong = [*pool.map(found, PLAYED), *pool.map(acquitted, PLAYED)]
    wrong = [one for one in wrong if one]
    assert not wrong, "\n".join(wrong)
