"""Exposure without a fault, of several faults, and without locks. Its rules: see
``test_exposure_pairs``."""

from __future__ import annotations

import pytest

from lockbench.checker.exposure import exposure
from lockbench.history.op import F, Mode
from tests.checker.scenes import Scene


def shared(scene: Scene) -> Scene:
    return scene.kind("mutex", role="contended")


def seen(scene: Scene) -> bool:
    found = exposure(scene.history())
    assert all(reason.strip() for reason in found.reasons)
    return found.exposed


def test_without_a_fault_somebody_must_have_waited() -> None:
    alone = shared(Scene()).acquire(1, 0, 1).release(1, 2, 3).acquire(2, 4, 5).release(2, 6, 7)
    assert not seen(alone)
    contended = shared(Scene()).acquire(1, 0, 1).release(1, 2, 3).acquire(2, 1.5, 5)
    assert seen(contended)


@pytest.mark.parametrize(("second", "exposed"), [(Mode.WRITE, True), (Mode.READ, False)])
def test_readers_alone_expose_nothing(second: Mode, exposed: bool) -> None:
    scene = Scene().kind("read-write", role="contended")
    scene.acquire(1, 0, 1, mode=Mode.READ).release(1, 2, 3).acquire(2, 1.5, 2.5, mode=second)
    assert seen(scene) is exposed


def test_who_enters_again_waits_for_nobody() -> None:
    scene = Scene().kind("reentrant", role="contended").acquire(1, 0, 1, until=9)
    scene.acquire(1, 1.5, 2, until=9, hold="inner").release(1, 3, 3.1, hold="inner")
    scene.release(1, 4, 4.1)
    assert not seen(scene.acquire(2, 5, 6))
    assert seen(scene.acquire(3, 5.5, 8))


def test_a_foreign_history_has_no_minimum() -> None:
    assert seen(Scene().acquire(1, 0, 1))


def test_keys_of_their_own_expose_nothing() -> None:
    scene = Scene().kind("mutex", role="own").acquire(1, 0, 1).release(1, 2, 3).acquire(2, 1.5, 5)
    assert not seen(scene)


def test_a_fault_without_rules_exposes_nothing() -> None:
    assert not seen(shared(Scene()).acquire(1, 0, 1).fault("pause", 2, 3))


@pytest.mark.parametrize(("holders", "exposed"), [(2, True), (1, False)])
def test_a_semaphore_with_room_for_everybody_exposes_nothing(holders: int, exposed: bool) -> None:
    scene = Scene().kind("semaphore", role="contended", permits=2)
    for client in range(holders):
        scene.acquire(client, 0, 1).release(client, 5, 6)
    assert seen(scene.acquire(9, 2, 3 if holders < 2 else 7)) is exposed


def test_every_rule_of_every_fault_counts() -> None:
    scene = shared(Scene()).acquire(1, 0, 1).acquire(2, 4, 6).acquire(3, 8, 9, hold="c")
    scene.fault("pause", 3, 5, "grants-around").fault("clock", 3, 5, "proven")
    found = exposure(scene.history())
    assert not found.exposed
    assert len(found.reasons) == 2


def test_a_fault_with_a_rule_that_nobody_knows_never_exposes() -> None:
    scene = Scene().acquire(1, 0, 1, until=5).fault("one-of-ones-own", 2, 3, "no-such-rule")
    found = exposure(scene.history())
    assert not found.exposed
    assert any("unknown rule 'no-such-rule'" in reason for reason in found.reasons)


@pytest.mark.parametrize("kind", ["mutex", "semaphore"])
@pytest.mark.parametrize("of_the_load", [True, False])
def test_who_asks_in_the_quiet_phase_exposes_nothing(kind: str, of_the_load: bool) -> None:
    permits = 2 if kind == "semaphore" else None
    scene = Scene().kind(kind, role="contended", permits=permits)
    scene.acquire(1000, 0, 1, until=9).release(1000, 2, 3)
    for n in range(permits or 1):
        scene.acquire(2000 + n, 4, 5, until=14, hold=f"h{n}").release(
            2000 + n, 6.5, 7, hold=f"h{n}"
        )
    if not of_the_load:
        scene.op(F.QUIET, 3000, 6, 6, named=False)
    scene.acquire(3000, 6.1, 7.2, until=20, hold="q").release(3000, 8, 8.1, hold="q")
    assert exposure(scene.history()).exposed == of_the_load
