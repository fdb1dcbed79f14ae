"""Measurements on histories whose numbers are known by hand."""

from __future__ import annotations

from typing import Any

import pytest

from lockbench.checker.check import check
from lockbench.history.recorder import PROCESSES_PER_WORKER
from tests.checker.scenes import Scene

VICTIM = 5 * PROCESSES_PER_WORKER


def measured(scene: Scene) -> Any:
    return check(scene.history()).measurements


def cycles(scene: Scene, *starts: float) -> Scene:
    for i, t in enumerate(starts):
        scene.acquire(i, t, t + 0.2, hold=f"c{t}").release(i, t + 0.3, t + 0.4, hold=f"c{t}")
    return scene


def test_availability_counts_windows_and_the_longest_gap() -> None:
    found = measured(cycles(Scene(), 0, 1, 2, 6.5, 7, 10))["availability"]
    assert found["windows"] == 10
    assert found["windows_with_a_grant"] == 5
    assert found["fraction"] == 0.5
    assert found["longest_gap_s"] == pytest.approx(4.5)


def test_recovery_keeps_servers_and_the_dead_holder_apart() -> None:
    scene = Scene().acquire(VICTIM, 0, 1, until=9).fault("client-pause", 2, 12, worker=5)
    scene.acquire(2, 3, 9.5, until=19).release(2, 10, 10.1)
    scene.acquire(3, 11, 13, until=23)
    (found,) = measured(scene)["recovery"]
    assert found["dead_holder_s"] == pytest.approx(7.5)
    assert found["servers_s"] == pytest.approx(0.99)
    assert found["failover_s"] == pytest.approx(7.49)


def test_a_leaked_lock_is_measured_from_the_death_with_waiters() -> None:
    scene = Scene().acquire(1, 0, 1, until=10).death(1, 4).acquire(2, 3, 11, until=20)
    (found,) = measured(scene)["leaked-lock"]
    assert found["released_s"] == pytest.approx(7)
    assert found["lease_left_s"] == pytest.approx(6)
    assert found["waiters"] == 1
    assert "leaked-lock" not in measured(Scene().acquire(1, 0, 1, until=10).death(1, 4))


def test_fairness() -> None:
    scene = Scene()
    # Client 1 asks first and gets it last.
    scene.acquire(1, 0, 9).acquire(2, 1, 3, hold="a").release(2, 4, 4.5, hold="a")
    scene.acquire(2, 5, 6, hold="b").release(2, 7, 7.5, hold="b")
    for i in range(3):
        scene.acquire(3, 2 + i, 2.5 + i, "fail", error="gave-up", hold=f"d{i}")
    found = measured(scene)["fairness"]
    assert found["overtaken"] == pytest.approx(1 / 3)
    assert found["jain"] == pytest.approx(9 / (3 * 5))
    assert found["starved"] == found["unserved"] == 1
    scene.acquire(4, 2, 2.5, "fail", error="gave-up", hold="e")
    found = measured(scene)["fairness"]
    assert (found["starved"], found["unserved"]) == (1, 2), "once is no starving"
    assert found["overtaken"] == pytest.approx(1 / 3)
    assert found["wait_s"]["max"] == pytest.approx(9)
    assert found["wait_s"]["p99"] is None


def test_only_contended_keys_are_measured_where_roles_are_known() -> None:
    scene = cycles(Scene().kind("mutex", role="contended").kind("mutex", "x", role="own"), 0, 1, 2)
    scene.acquire(9, 50, 51, key="x", hold="x")
    assert measured(scene)["availability"]["windows"] == 2


@pytest.mark.parametrize(("until", "held"), [(4, False), (130, True)])
def test_a_hold_that_lapsed_before_its_holder_died_was_no_hold(until: float, held: bool) -> None:
    scene = Scene().kind("mutex", role="contended").acquire(VICTIM, 0, 1, until=until, hold="v")
    scene.fault("client-kill", 100, None, worker=5, killed=True)
    scene.acquire(2, 120, 140, until=150, hold="b").release(2, 141, 141.1, hold="b")
    found = measured(scene)
    (recovery,) = found["recovery"]
    assert recovery["dead_holder_s"] == (pytest.approx(40) if held else None)
    assert len(found.get("leaked-lock", ())) == held
