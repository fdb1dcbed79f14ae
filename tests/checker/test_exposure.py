"""Exposure: each rule met, and not met; and what is asked when there was no fault."""

from __future__ import annotations

from typing import Any

import pytest

from checker.exposure import exposure
from history.op import F, Mode
from history.recorder import PROCESSES_PER_WORKER
from tests.checker.scenes import Scene, ns

VICTIM = 5 * PROCESSES_PER_WORKER
OTHER = 3 * PROCESSES_PER_WORKER  # of another worker than client 1
OTHER = PROCESSES_PER_WORKER + 2  # a client of another worker than clients 1 to 3


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


def test_a_foreign_history_has_no_minimum() -> None:
    assert seen(Scene().acquire(1, 0, 1))


def test_keys_of_their_own_expose_nothing() -> None:
    scene = Scene().kind("mutex", role="own").acquire(1, 0, 1).release(1, 2, 3).acquire(2, 1.5, 5)
    assert not seen(scene)


def test_a_fault_without_rules_exposes_nothing() -> None:
    assert not seen(shared(Scene()).acquire(1, 0, 1).fault("pause", 2, 3))


def test_an_unknown_rule_is_not_met() -> None:
    assert not seen(shared(Scene()).acquire(1, 0, 1).fault("pause", 2, 3, "no-such-rule"))


@pytest.mark.parametrize(("after", "exposed"), [(6.0, True), (4.5, False)])
def test_grants_around(after: float, exposed: bool) -> None:
    scene = shared(Scene()).acquire(1, 0, 1).release(1, 2, 2.5).acquire(2, 4, after)
    assert seen(scene.fault("pause", 3, 5, "grants-around")) is exposed


@pytest.mark.parametrize(
    ("until", "error", "exposed"),
    [
        (None, "gave-up: held", True),
        (None, "held", True),
        (None, "gave-up: no-effect: no connection", False),
        (9.0, "gave-up: held", False),
    ],
)
def test_what_never_ends_by_itself_may_stay_taken(
    until: float | None, error: str, exposed: bool
) -> None:
    """Whoever is asked has to have answered, and a hold with a limit has to end."""
    scene = shared(Scene()).acquire(1, 0, 1, until=until).release(1, 4, None, "info")
    scene.acquire(2, 6, 8, "fail", error=error, hold="b")
    assert seen(scene.fault("kill", 3, 5, "grants-around")) is exposed


@pytest.mark.parametrize(("client", "exposed"), [(2, True), (1, False)])
def test_attempts_during(client: int, exposed: bool) -> None:
    scene = shared(Scene()).acquire(1, 0, 1).acquire(client, 4, 6, "fail", error="held", hold="b")
    assert seen(scene.fault("pause", 3, 5, "attempts-during")) is exposed


def frozen(scene: Scene) -> Scene:
    return shared(scene).acquire(VICTIM, 0, 1, until=4).fault("client-pause", 2, 10, worker=5)


def ruled(scene: Scene) -> Scene:
    scene.builder.faults = []
    return scene.fault("client-pause", 2, 10, "holder-frozen", worker=5)


def test_holder_frozen() -> None:
    complete = ruled(frozen(Scene())).acquire(2, 3, 5, until=15).write(VICTIM, 11, 0, 1)
    assert seen(complete)
    nobody_else = ruled(frozen(Scene())).write(VICTIM, 11, 0, 1)
    assert not seen(nobody_else)
    never_acted = ruled(frozen(Scene())).acquire(2, 3, 5, until=15)
    assert not seen(never_acted)
    granted_too_late = ruled(frozen(Scene())).acquire(2, 3, 10.5).write(VICTIM, 11, 0, 1)
    assert not seen(granted_too_late)
    held_nothing = ruled(shared(Scene())).acquire(2, 3, 5)
    assert not seen(held_nothing)


@pytest.mark.parametrize(("rivals", "exposed"), [(2, True), (1, False)])
def test_a_semaphore_is_overtaken_when_all_its_permits_are_taken_again(
    rivals: int, exposed: bool
) -> None:
    """With one rival there is room for both all the time: nothing wrong could have happened."""
    scene = Scene().kind("semaphore", role="aimed", permits=2)
    scene.acquire(VICTIM, 0, 1, until=4).fault("client-pause", 2, 10, "holder-frozen", worker=5)
    for rival in range(rivals):
        scene.acquire(OTHER + rival, 5 + rival, 5.5 + rival, until=9).release(OTHER + rival, 8, 8.5)
    # Somebody found both permits taken before the fault, so that is not what decides here.
    scene.acquire(7, 0.5, 0.6, until=1.9).acquire(8, 1.5, 1.7, "fail", error="held", hold="x")
    assert seen(scene.release(VICTIM, 11, 12)) is exposed


@pytest.mark.parametrize(("holders", "exposed"), [(2, True), (1, False)])
def test_a_semaphore_with_room_for_everybody_exposes_nothing(holders: int, exposed: bool) -> None:
    scene = Scene().kind("semaphore", role="contended", permits=2)
    for client in range(holders):
        scene.acquire(client, 0, 1).release(client, 5, 6)
    assert seen(scene.acquire(9, 2, 3 if holders < 2 else 7)) is exposed
    faulty = Scene().kind("semaphore", role="contended", permits=2)
    for client in range(holders):
        faulty.acquire(client, 0, 1).release(client, 5, 6)
    faulty.acquire(9, 2, 3 if holders < 2 else 7)
    assert seen(faulty.fault("pause", 1.5, 4, "attempts-during")) is exposed


def test_a_frozen_hold_without_a_limit_only_has_to_be_asked_for() -> None:
    """Nobody may be granted it, so a grant cannot be the condition."""

    def endless() -> Scene:
        return ruled(shared(Scene()).acquire(VICTIM, 0, 1)).write(VICTIM, 11, 0, 1)

    assert seen(endless().acquire(OTHER, 3, 5, "fail"))
    assert not seen(endless())
    assert not seen(endless().acquire(OTHER, 12, 13, "fail"))
    limited = ruled(frozen(Scene())).write(VICTIM, 11, 0, 1)
    assert not seen(limited.acquire(OTHER, 3, 5, "fail"))


@pytest.mark.parametrize(
    ("until", "attempt", "exposed"), [(9, 5, True), (2.5, 5, False), (9, 9, False)]
)
def test_hold_across(until: float, attempt: float, exposed: bool) -> None:
    scene = shared(Scene()).acquire(1, 0, 1, until=until)
    scene.acquire(OTHER, attempt, None, "info").fault("partition-drop", 3, 7, "hold-across")
    assert seen(scene) is exposed


def test_an_unknown_from_before_the_fault_is_no_attempt_during_it() -> None:
    scene = shared(Scene()).acquire(1, 0, 1, until=9).acquire(OTHER, 0.1, None, "info")
    assert not seen(scene.fault("partition-drop", 3, 7, "hold-across"))
    lost = shared(Scene()).acquire(1, 0, 1, until=9).acquire(OTHER, 2, None, "info")
    assert seen(lost.fault("partition-drop", 3, 7, "hold-across"))
    waiting = shared(Scene()).acquire(1, 0, 1, until=9).acquire(OTHER, 0.1, 8, "fail")
    assert seen(waiting.fault("partition-drop", 3, 7, "hold-across"))


@pytest.mark.parametrize(("asked", "exposed"), [(1.5, True), (0.5, False)])
def test_who_waits_no_longer_than_others_had_to_is_still_waiting(
    asked: float, exposed: bool
) -> None:
    """An answer took up to 2 s before the fault; this one never came, and was asked for before the
    promise was given."""
    scene = shared(Scene()).acquire(3, 0, 2, "fail").acquire(1, 2, 2.1, until=9)
    scene.acquire(OTHER, asked, None, "info").fault("partition-drop", 3, 7, "hold-across")
    assert seen(scene) is exposed


def test_how_long_others_wait_is_measured_without_the_fault_before() -> None:
    scene = shared(Scene()).acquire(3, 0, 5, "fail").fault("pause", 1, 4)
    scene.acquire(OTHER, 6, None, "info").acquire(1, 7, 7.1, until=15)
    assert not seen(scene.fault("partition-drop", 9, 12, "hold-across"))


def test_the_holders_own_retry_is_no_attempt_by_others() -> None:
    scene = shared(Scene()).acquire(1, 0, 1, until=9).acquire(2, 5, 6, "fail")
    assert not seen(scene.fault("partition-drop", 3, 7, "hold-across"))


def test_being_told_of_the_loss_is_not_acting() -> None:
    scene = ruled(frozen(Scene())).acquire(2, 3, 5, until=15)
    assert not seen(scene.op(F.LOST, VICTIM, 11, 11))


@pytest.mark.parametrize(
    ("facts", "exposed"),
    [
        ({"leader_before": "etcd-1", "leader_during": "etcd-2"}, True),
        ({"leader_before": "etcd-1", "leader_during": "etcd-1"}, False),
        ({"leader_before": "etcd-1", "leader_during": None}, False),
        ({}, False),
        ({"leader_due": False}, True),
    ],
)
def test_leader_changed(facts: dict[str, Any], exposed: bool) -> None:
    scene = shared(Scene()).acquire(1, 0, 1).fault("pause", 3, 7, "leader-changed", **facts)
    assert seen(scene) is exposed


@pytest.mark.parametrize(
    ("until", "attempt", "exposed"), [(9, 6, True), (4, 6, False), (9, 3, False)]
)
def test_promise_outlives_restart(until: float, attempt: float, exposed: bool) -> None:
    scene = shared(Scene()).acquire(1, 0, 1, until=until).acquire(OTHER, attempt, attempt + 1)
    scene.fault("wipe", 2, 5, "promise-outlives-restart", restarted_ns=ns(5))
    assert seen(scene) is exposed


def test_a_delayed_restart_only_has_to_meet_a_hold() -> None:
    """No promise can outlive it; without the delay such a restart shows nothing."""

    def restarted(**facts: Any) -> Scene:
        scene = shared(Scene()).acquire(1, 0, 1, until=4).acquire(OTHER, 3, 3.5, "fail")
        rule = "promise-outlives-restart"
        return scene.fault("wipe", 2, 8, rule, restarted_ns=ns(7), **facts)

    assert seen(restarted(restart_delay_s=4.0))
    assert not seen(restarted())


def test_proven() -> None:
    assert seen(shared(Scene()).acquire(1, 0, 1).fault("clock", 3, 7, "proven", proven=True))
    assert not seen(shared(Scene()).acquire(1, 0, 1).fault("clock", 3, 7, "proven", proven=1))


def test_every_rule_of_every_fault_counts() -> None:
    scene = shared(Scene()).acquire(1, 0, 1).acquire(2, 4, 6).acquire(3, 8, 9, hold="c")
    scene.fault("pause", 3, 5, "grants-around").fault("clock", 3, 5, "proven")
    found = exposure(scene.history())
    assert not found.exposed
    assert len(found.reasons) == 2
