"""The rules that the less common faults name: each met, and not met for each reason it can miss."""

from __future__ import annotations

from typing import Any

import pytest

from checker.exposure import exposure
from history.op import F
from history.recorder import PROCESSES_PER_WORKER
from tests.checker.scenes import Scene

VICTIM = 5 * PROCESSES_PER_WORKER
OTHER = 3 * PROCESSES_PER_WORKER


def seen(scene: Scene, rule: str, begin: float, heal: float, **facts: Any) -> bool:
    scene.builder.faults = []
    scene.kind(str(facts.pop("kind", "mutex")), role="aimed").fault(
        "some", begin, heal, rule, worker=5, **facts
    )
    return exposure(scene.history()).exposed


def test_a_waiter_was_frozen() -> None:
    asked = Scene().acquire(VICTIM, 1, 12, until=5).acquire(OTHER, 1, 4)
    assert seen(asked, "waiter-frozen", 2, 10)
    never_answered = Scene().acquire(VICTIM, 1, None, "info").acquire(OTHER, 1, 4)
    assert seen(never_answered, "waiter-frozen", 2, 10)
    # Answered before it slept; asked only after it woke; nobody else was granted anything.
    assert not seen(Scene().acquire(VICTIM, 1, 1.5).acquire(OTHER, 1, 4), "waiter-frozen", 2, 10)
    assert not seen(Scene().acquire(VICTIM, 11, 12).acquire(OTHER, 1, 4), "waiter-frozen", 2, 10)
    assert not seen(Scene().acquire(VICTIM, 1, 12, until=5), "waiter-frozen", 2, 10)


def test_a_holder_was_killed() -> None:
    def held() -> Scene:
        return Scene().acquire(VICTIM, 0, 1, until=6).op(F.DEATH, VICTIM, 3, 3)

    asked = held().acquire(OTHER, 4, 7)
    assert seen(asked, "holder-killed", 3, 8)
    assert not seen(held(), "holder-killed", 3, 8)
    # Asked only when the lease was over; the killed client held nothing; another's hold.
    assert not seen(held().acquire(OTHER, 6.5, 7), "holder-killed", 3, 8)
    assert not seen(Scene().acquire(OTHER, 4, 7), "holder-killed", 3, 8)
    other = Scene().acquire(OTHER, 0, 1, until=6).acquire(OTHER + PROCESSES_PER_WORKER, 4, 7)
    assert not seen(other, "holder-killed", 3, 8)


def test_an_acquire_without_its_answer_took_the_key() -> None:
    def lost(answer: str, end: float | None) -> Scene:
        error = "no-effect: refused" if answer == "fail" else None
        return Scene().acquire(VICTIM, 3.1, end, answer, error=error)

    taken = lost("info", None).acquire(OTHER, 3.2, 4.2, "fail", error="held", hold="x")
    assert seen(taken.acquire(OTHER, 4.3, 6.3), "reply-lost", 3, 5, of="acquire")
    # Reported as a certain failure, though the key was taken all the same.
    wrong = lost("fail", 4.1).acquire(OTHER, 3.2, 4.2, "fail", error="held", hold="x")
    assert seen(wrong.acquire(OTHER, 4.3, 6.3), "reply-lost", 3, 5, of="acquire")
    # It found out when it asked again.
    assert seen(lost("ok", 5.5), "reply-lost", 3, 5, of="acquire")
    # Answered while the replies were cut off: they were not. The key was free for others. Nobody
    # asked. It was asked before the fault.
    assert not seen(lost("ok", 3.5), "reply-lost", 3, 5, of="acquire")
    free = lost("info", None).acquire(OTHER, 3.2, 3.3)
    assert not seen(free, "reply-lost", 3, 5, of="acquire")
    assert not seen(lost("info", None), "reply-lost", 3, 5, of="acquire")
    assert not seen(Scene().acquire(VICTIM, 2, None, "info"), "reply-lost", 3, 5, of="acquire")


def test_a_release_without_its_answer_freed_the_key() -> None:
    def lost() -> Scene:
        return Scene().acquire(VICTIM, 0, 1, until=9).release(VICTIM, 3.1, None, "info")

    assert seen(lost().acquire(OTHER, 3.2, 4), "reply-lost", 3, 5, of="release")
    assert not seen(lost().acquire(OTHER, 3.2, 9.5), "reply-lost", 3, 5, of="release")
    answered = Scene().acquire(VICTIM, 0, 1, until=9).release(VICTIM, 3.1, 3.2)
    assert not seen(answered.acquire(OTHER, 3.3, 4), "reply-lost", 3, 5, of="release")


@pytest.mark.parametrize(("end", "exposed"), [(6.0, True), (4.0, False)])
def test_something_was_held_back(end: float, exposed: bool) -> None:
    assert seen(Scene().acquire(OTHER, 3.5, end), "held-back", 3, 5) is exposed


@pytest.mark.parametrize(
    ("offset_s", "asked_at", "exposed"),
    [(10.0, 4.0, True), (-10.0, 4.0, True), (1.0, 4.0, False), (10.0, 7.0, False)],
)
def test_a_clock_moved_beyond_a_lease(offset_s: float, asked_at: float, exposed: bool) -> None:
    scene = Scene().acquire(VICTIM, 0, 1, until=6).acquire(OTHER, asked_at, asked_at + 3)
    assert seen(scene, "clock-beyond-lease", 3, 5, offset_s=offset_s) is exposed


def test_a_lease_that_was_renewed_later_is_what_it_was_when_the_clock_moved() -> None:
    scene = Scene().acquire(VICTIM, 0, 1, until=6).extend(VICTIM, 4, 4.5, until=20)
    scene.acquire(OTHER, 4, 7)
    assert seen(scene, "clock-beyond-lease", 3, 5, offset_s=10.0)
    renewed_before = Scene().acquire(VICTIM, 0, 1, until=6).extend(VICTIM, 2, 2.5, until=20)
    renewed_before.acquire(OTHER, 4, 7)
    assert not seen(renewed_before, "clock-beyond-lease", 3, 5, offset_s=10.0)


def test_an_inner_grant_renews_the_lease_that_a_clock_has_to_pass() -> None:
    scene = Scene().acquire(VICTIM, 0, 1, until=6).acquire(VICTIM, 2, 2.5, until=20, hold="inner")
    scene.acquire(OTHER, 4, 7)
    assert not seen(scene, "clock-beyond-lease", 3, 5, kind="reentrant", offset_s=10.0)
    assert seen(scene, "clock-beyond-lease", 3, 5, kind="reentrant", offset_s=30.0)


def test_what_the_nemesis_saw_decides() -> None:
    scene = Scene().acquire(1, 0, 1)
    assert seen(scene, "unsynced-lost", 3, 5, bytes_lost={"redis-1": 12})
    assert not seen(scene, "unsynced-lost", 3, 5, bytes_lost={"redis-1": 0})
    assert not seen(scene, "unsynced-lost", 3, 5)
    assert seen(scene, "promoted", 3, 5, primary_before="a", primary_during="b")
    assert not seen(scene, "promoted", 3, 5, primary_before="a", primary_during="a")
    assert not seen(scene, "promoted", 3, 5, primary_before="a")
    assert not seen(scene, "clock-beyond-lease", 3, 5)


def test_a_promise_that_ends_with_its_session_cannot_outlive_a_restart() -> None:
    def held() -> Scene:
        return Scene().acquire(VICTIM, 0, 1).lost(VICTIM, 3.2)

    facts = {"restarted_ns": 4_000_000_000}
    asked = held().acquire(OTHER, 3.1, 5)
    assert seen(asked, "promise-outlives-restart", 3, 4, **facts)
    assert not seen(held(), "promise-outlives-restart", 3, 4, **facts)
    # Told before the fault: that was not its doing.
    early = Scene().acquire(VICTIM, 0, 1).lost(VICTIM, 2).acquire(OTHER, 3.1, 5)
    assert not seen(early, "promise-outlives-restart", 3, 4, **facts)
