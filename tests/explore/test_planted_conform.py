"""The planted locks keep every duty without a fault: what is wrong with them is not seen there."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from lockbench.bench.duties import DUTIES, LEASE_S, Desk, Duty, Running
from lockbench.locks import registry
from lockbench.locks.base import System
from tests.explore.planted import HERE, PLANTED, spec
from tests.locks.conftest import running

__all__ = ["running"]  # the fixture

NAMES = [*PLANTED, *{known.right: None for known in PLANTED.values()}]
BY_TOPOLOGY = sorted(NAMES, key=lambda name: registry.find(spec(name)).topologies)

AT_ONCE = 5  # duties of one lock
# Duties that end the sidecars of this process, or freeze the servers.
ALONE = {
    "a_server_that_is_not_there_has_no_effect",
    "paused_servers_make_a_release_unknown",
}
# Duties in which a holder or the servers are frozen: a wrong step may show there.
WITH_A_FAULT = {
    "a_frozen_holder_loses_it_after_its_promise_and_not_before",
    "paused_servers_make_a_release_unknown",
}


def test_those_that_are_played_alone_are_duties() -> None:
    assert {duty.name for duty in DUTIES} >= ALONE | WITH_A_FAULT


def test_every_planted_lock_is_in_the_table() -> None:
    declared = {
        system.name
        for file in HERE.glob("[!_]*.py")
        for system in map(registry.find, registry.each(str(file)))
    }
    assert declared == {*NAMES}


@pytest.mark.parametrize("wrong", PLANTED)
def test_a_neighbour_differs_in_nothing_but_how_it_is_driven(wrong: str) -> None:
    left, right = (registry.find(spec(name)) for name in (wrong, PLANTED[wrong].right))
    assert left.connect is not right.connect
    same = left.derived(
        name=right.name,
        connect=right.connect,
        not_owed=right.not_owed,
        entry=right.entry,
        expectations=right.expectations,
    )
    assert same == right
    assert left.not_owed.keys() - right.not_owed.keys() <= WITH_A_FAULT


@pytest.mark.docker
@pytest.mark.long
@pytest.mark.parametrize("name", BY_TOPOLOGY)
def test_it_conforms(name: str, running: Callable[[str], Running]) -> None:
    system: System = registry.find(spec(name))
    cluster = running(system.topologies[0])
    # A shorter lease suits a server that elects nobody, where no majority has to be reached.
    lease_s = LEASE_S / 2 if "redis" in system.topologies else LEASE_S

    def hold_to(duty: Duty) -> None:
        desk = Desk(system, spec(name), cluster, lease_s, lease_s / 2)
        with desk.open:
            duty.hold_to(desk)

    owed = [duty for duty in DUTIES if duty.name not in system.not_owed]
    # They mostly wait, each for keys and clients of its own.
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for _ in pool.map(hold_to, (duty for duty in owed if duty.name not in ALONE)):
            pass
    for duty in owed:
        if duty.name in ALONE:
            hold_to(duty)
