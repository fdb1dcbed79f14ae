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


def test_a_key_that_nobody_got_while_the_servers_stalled_was_not_taken() -> None:
    def waited(other_key_granted: float) -> Scene:
        scene = Scene().acquire(VICTIM, 3.1, None, "info").acquire(OTHER, 3.2, 3.95)
        return scene.acquire(OTHER + 1, 3.15, other_key_granted, key="b", hold="b")

    assert not seen(waited(3.94), "reply-lost", 3, 5, of="acquire")
    assert seen(waited(3.5), "reply-lost", 3, 5, of="acquire")


def usual() -> Scene:
    """Before the fault a request takes 10 ms."""
    return Scene().acquire(OTHER, 0, 0.01, until=2).release(OTHER, 1, 1.01)


@pytest.mark.parametrize(
    ("asked", "answered", "exposed"),
    [
        (3.5, 6.0, True),
        (2.99, 6.0, True),  # under way as the cut began
        (3.5, 4.0, True),  # answered before the heal, but fifty times later than usual
        (3.5, 3.55, False),
        (4.995, 5.005, False),  # would have been answered after the heal anyway
        (1.5, 1.51, False),
        (5.5, 7.0, False),
    ],
)
def test_a_request_was_held_back(asked: float, answered: float, exposed: bool) -> None:
    scene = usual().acquire(VICTIM, asked, answered, key="b", hold="b")
    assert seen(scene, "held-back", 3, 5) is exposed
    release = usual().acquire(VICTIM, 0.5, 0.51, key="b", hold="b", until=20)
    release.release(VICTIM, asked, answered, key="b", hold="b")
    assert seen(release, "held-back", 3, 5) is exposed


def test_what_was_never_answered_was_held_back() -> None:
    assert seen(usual().acquire(VICTIM, 3.5, None, "info", key="b"), "held-back", 3, 5)
    assert not seen(usual().acquire(VICTIM, 2.5, None, "info", key="b"), "held-back", 3, 5)


def test_who_waits_for_a_holder_is_not_held_back_by_a_cut() -> None:
    queued = usual().acquire(VICTIM, 2, 2.01, until=9, hold="b").release(VICTIM, 6, 6.01, hold="b")
    queued.acquire(OTHER, 3.01, 6.02, hold="c")
    assert not seen(queued, "held-back", 3, 3.047)


def test_what_crosses_no_link_of_the_lock_is_not_held_back() -> None:
    scene = usual().acquire(VICTIM, 2, 2.01, until=9, hold="b").write(VICTIM, 3.047, 0, 1)
    assert not seen(scene, "held-back", 3, 3.047)


def test_where_requests_go_on_being_served_nothing_has_to_be_held_back() -> None:
    assert seen(usual(), "held-back", 3, 5, held_back_due=False)
    assert not seen(usual(), "held-back", 3, 5)


@pytest.mark.parametrize("all_restarted", [True, False])
def test_every_server_was_restarted(all_restarted: bool) -> None:
    facts = {"killed": [1, 2, 3], "restarted": [1, 2, 3][: 2 + all_restarted]}
    assert seen(usual(), "all-restarted", 3, 5, all_restarted=all_restarted, **facts) is (
        all_restarted
    )


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
