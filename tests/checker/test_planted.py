"""Planted defects: each kind must be found, by exactly the verdicts that it breaks; and the healthy
neighbour of each, with every kind of unknown, must stay valid."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lockbench.checker.check import check
from lockbench.history.op import F as Function
from lockbench.history.op import Mode
from tests.checker.scenes import Scene, ns

D, L, W, F, E, N, H, U, X = (
    "double-grant",
    "late-grant",
    "wrong-release",
    "false-release",
    "wrong-extend",
    "fence-order",
    "stale-holder",
    "lost-update",
    "linearizable",
)
Plant = Callable[[Scene], None]
DEFECTS: list[tuple[Plant, set[str]]] = []
HEALTHY: list[Plant] = []
NS = 1e-9
TTL = 10.0


def breaks(*verdicts: str) -> Callable[[Plant], Plant]:
    """A defect, and all that it breaks."""

    def register(plant: Plant) -> Plant:
        DEFECTS.append((plant, set(verdicts)))
        return plant

    return register


def healthy(plant: Plant) -> Plant:
    """The neighbour of a defect."""
    HEALTHY.append(plant)
    return plant


@breaks(D, X)
def one_nanosecond(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).release(1, 3 + NS, 3.1)
    s.acquire(2, 0.5, 3, until=TTL + 0.5).release(2, 4, 4.1)


@breaks(D, X)
def expiry_one_tick_early(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL)
    s.acquire(2, 5, TTL - NS, until=TTL + 5).release(2, 11, 11.1)


@breaks(D, X)
def never_released_no_limit(s: Scene) -> None:
    s.acquire(1, 0, 1)
    s.acquire(2, 5, 6).release(2, 7, 8)


@breaks(F, X)
def release_that_was_lost(s: Scene) -> None:
    # The server forgot client 1's release but said ok; later it says that client 1 still holds.
    s.acquire(1, 0, 1, until=100).release(1, 2, 3).release(1, 4, 5)


@breaks(F, X)
def released_twice(s: Scene) -> None:
    s.acquire(1, 0, 1).release(1, 2, 3)
    s.acquire(2, 4, 5).release(2, 6, 7)
    s.release(1, 8, 9)


@breaks(X)
def released_without_acquire(s: Scene) -> None:
    s.acquire(1, 0, 1).release(1, 2, 3).release(2, 4, 5)


@breaks(N)
def reused_fence(s: Scene) -> None:
    s.acquire(1, 0, 1, fence=7).release(1, 2, 3).acquire(2, 4, 5, fence=7).release(2, 6, 7)


@breaks(N)
def falling_fence(s: Scene) -> None:
    s.acquire(1, 0, 1, fence=41).release(1, 2, 3).acquire(2, 4, 5, fence=40).release(2, 6, 7)


@breaks(N)
def falling_fence_of_a_waiter(s: Scene) -> None:
    # Invoked before the other's grant completed: only the promises tell the order.
    s.acquire(1, 0, 1, until=TTL, fence=41).release(1, 2, 3)
    s.acquire(2, 0.5, 5, until=TTL, fence=40).release(2, 6, 7)


@breaks(L)
def late_by_one_nanosecond(s: Scene) -> None:
    s.acquire(1, 0, TTL + NS, until=TTL).release(1, 11, 12)


@breaks(H)
def stale_write(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).read(1, 1.5, 0)
    s.acquire(2, 2, 6, until=12).read(2, 6.5, 0).write(2, 6.6, 0, 1).release(2, 7, 7.1)
    s.write(1, 8, 1, 2).not_held(1, 9, 9.1)


@breaks(H)
def write_under_an_unknown_acquire(s: Scene) -> None:
    s.acquire(1, 0, None, "info").acquire(2, 0, 2, until=9).read(2, 2.5, 0)
    s.write(1, 3, 0, 1).release(2, 4, 4.1)


@breaks(H)
def write_under_an_unknown_acquire_of_who_reads_longer(s: Scene) -> None:
    s.kind("read-write").acquire(1, 0, None, "info", mode=Mode.WRITE, hold="w", owner=1)
    s.acquire(5, 2, 3, until=100, mode=Mode.READ, hold="mine", owner=1)
    s.acquire(2, 3, 4, until=90, mode=Mode.READ, hold="r", owner=2)
    s.write(1, 50, 0, 1, hold="w", owner=1)


@breaks(H)
def lost_request_under_an_unknown_acquire(s: Scene) -> None:
    # Its reply never came; the resource's log shows when it was applied.
    s.acquire(1, 0, None, "info").acquire(2, 0, 2, until=9)
    s.op(Function.READ, 1, 0.5, None, "info", value=0, applied_ns=ns(3)).release(2, 4, 4.1)


@breaks(H)
def read_under_an_unknown_acquire_beside_a_writer(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, None, "info", mode=Mode.READ).acquire(2, 0, 2, until=9, mode=Mode.WRITE)
    s.read(1, 3, 0, mode=Mode.READ).release(2, 4, 4.1)


@breaks(H)
def stale_read_only(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5)
    s.acquire(2, 2, 6, until=12).release(2, 7, 7.1)
    s.read(1, 8, 0)


@breaks(H)
def stale_without_the_resource_clock(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5)
    s.acquire(2, 2, 6, until=12).release(2, 7, 7.1)
    s.read(1, 8, 0, applied=False)


@breaks(H)
def stale_after_loss(s: Scene) -> None:
    s.acquire(1, 0, 1, until=50).lost(1, 3)
    s.acquire(2, 2, 6, until=12).release(2, 7, 7.1)
    s.read(1, 8, 0)


@breaks(H, U)
def lost_update(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).read(1, 1.5, 0)
    s.acquire(2, 2, 6, until=12).read(2, 6.5, 0).write(2, 6.6, 0, 1).release(2, 7, 7.1)
    s.write(1, 8, 0, 2)


@breaks(U)
def forked_resource(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).read(1, 1.2, 0).write(1, 1.5, 0, 1).release(1, 2, 2.1)
    s.acquire(2, 3, 4, until=12).read(2, 4.2, 0).write(2, 4.5, 0, 1).release(2, 7, 7.1)


@breaks(U)
def resource_forgot(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).read(1, 1.2, 0).write(1, 1.5, 0, 1).release(1, 2, 2.1)
    s.acquire(2, 3, 4, until=12).read(2, 4.2, 0).release(2, 7, 7.1)


@breaks(D, W, X)
def wrong_release_shown_by_a_grant(s: Scene) -> None:
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 2, 4, until=14)
    s.release(1, 5, 6)
    s.acquire(3, 4.5, 7, until=17).release(3, 8, 9)
    s.not_held(2, 10, 11)


@breaks(W, X)
def wrong_release_shown_to_the_holder(s: Scene) -> None:
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 2, 4, until=14)
    s.release(1, 5, 6)
    s.not_held(2, 10, 11)


@breaks(W, X)
def wrong_release_shown_by_an_extend(s: Scene) -> None:
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 2, 4, until=14)
    s.release(1, 5, 6)
    s.extend(2, 7, 8, "fail", error="not-held")


@breaks(F, X)
def false_release(s: Scene) -> None:
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 2, 4, until=14).release(2, 4.5, 4.6)
    s.release(1, 5, 6)


@breaks(X)
def not_held_within_the_promise(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).not_held(1, 2, 3)


@breaks(D, E, X)
def extend_after_somebody_else(s: Scene) -> None:
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 2, 4, until=14)
    s.extend(1, 5, 6, until=15)
    s.release(2, 7, 8)


@breaks(X)
def extend_refused_within_the_promise(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).extend(1, 2, 3, "fail", error="not-held")


@breaks(D, X)
def extended_promise_given_away(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).extend(1, 4, 4.5, until=20)
    s.acquire(2, 2, 6, until=12).release(2, 7, 8)


@breaks(D, X)
def late_extend_is_contiguous(s: Scene) -> None:
    # Acknowledged after the first promise ran out: the hold was there all the time.
    s.acquire(1, 0, 1, until=5)
    s.acquire(2, 4, 5.5, until=5.8)
    s.extend(1, 4.5, 6.5, until=14.5)


@breaks(D, X)
def writer_beside_reader(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, 1, mode=Mode.READ).acquire(2, 0, 2, mode=Mode.WRITE)
    s.release(1, 3, 4).release(2, 5, 6)


@breaks(D, X)
def one_permit_too_many(s: Scene) -> None:
    s.kind("semaphore", permits=2)
    for client in (1, 2, 3):
        s.acquire(client, 0, client).release(client, 5, 6)


@breaks(F, X)
def all_permits_given_away_before_the_release(s: Scene) -> None:
    s.kind("semaphore", permits=2)
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 4, 5).acquire(3, 4, 6)
    s.release(1, 7, 8).release(2, 9, 10).release(3, 9, 10)


@breaks(F, X)
def reader_released_beside_a_writer(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, 1, until=3, mode=Mode.READ)
    s.acquire(2, 4, 5, mode=Mode.WRITE).release(1, 6, 7).release(2, 8, 9)


@breaks(D, X)
def reentrant_released_early(s: Scene) -> None:
    s.kind("reentrant")
    s.acquire(1, 0, 1, named=False).acquire(1, 2, 3, named=False).release(1, 4, 5, named=False)
    s.acquire(2, 0, 6, named=False)
    s.release(1, 7, 8, named=False)


@breaks(D, X)
def granted_beside_two_tries_of_one_name(s: Scene) -> None:
    s.acquire(1, 0, 1).acquire(1, 0.5, None, "info").acquire(2, 2, 3)
    s.release(1, 4, 5).release(2, 6, 7)


@breaks(D, X)
def granted_beside_two_threads_of_one_process(s: Scene) -> None:
    s.acquire(1, 0, 1, named=False).acquire(1, 1.5, 6, named=False)
    s.acquire(2, 2, 3, named=False).release(1, 4, 5, named=False)
    s.release(2, 4, 5, named=False).release(1, 7, 8, named=False)


@breaks(D, X)
def reentrant_of_two_processes(s: Scene) -> None:
    s.kind("reentrant")
    s.acquire(1, 0, 1, owner=7, named=False).acquire(2, 2, 3, owner=7, named=False)
    s.release(1, 4, 5, owner=7, named=False).acquire(3, 4, 6, named=False)
    s.release(2, 7, 8, owner=7, named=False).release(3, 9, 10, named=False)


@breaks(F, X)
def released_more_often_than_asked_for(s: Scene) -> None:
    s.acquire(1, 0, 1, named=False).acquire(1, 1.5, 4, named=False)
    for at in (2, 5, 7):
        s.release(1, at, at + 1, named=False)


@breaks(N)
def reentrant_fence_of_the_last_hold(s: Scene) -> None:
    s.kind("reentrant")
    for at in (0, 4):
        s.acquire(1, at, at + 1, fence=5, named=False).release(1, at + 2, at + 3, named=False)


@breaks(X)
def unknown_acquire_proven_inside(s: Scene) -> None:
    # Client 2's release was ok: it held at some time between 4 and 5, when client 1 did too.
    s.acquire(1, 0, 1).acquire(2, 2, None, "info")
    s.release(2, 4, 5).release(1, 6, 7)


@breaks(F, X)
def release_ok_after_the_lease_was_given_away(s: Scene) -> None:
    # No limit on client 2: client 1's release of nothing must show.
    s.acquire(1, 0, 1, until=3)
    s.acquire(2, 2, 4, until=14).release(2, 10, 11)
    s.release(1, 5, 6)


@breaks(D, N, X)
def equal_fences_side_by_side(s: Scene) -> None:
    s.acquire(1, 0, 4, until=TTL, fence=7).acquire(2, 0, 5, until=TTL, fence=7)


@breaks(F, X)
def successor_was_waiting_already(s: Scene) -> None:
    # Asked before client 1 was granted the key; only the promises tell the order.
    s.acquire(2, 0.5, 4, until=14).acquire(1, 0, 1, until=3)
    s.release(2, 4.5, 4.6).release(1, 5, 6)


@breaks(L, H)
def late_granted_writer_beside_a_promise(s: Scene) -> None:
    # Client 1 was told after its own promise and after client 2, who is promised the key.
    s.acquire(1, 0, 7, until=5)
    s.acquire(2, 2, 6, until=12).read(2, 6.5, 0)
    s.write(1, 8, 0, 1)


@breaks(L, H)
def granted_late_after_a_promise(s: Scene) -> None:
    # Client 2 was asking all along. Had it held first, it would have held until 6, beside client 1.
    s.acquire(1, 0, 4, until=5).acquire(2, 0.1, 7, until=6).read(1, 8, 0)


@breaks(L, H)
def two_late_grants_that_both_act(s: Scene) -> None:
    s.acquire(1, 0, 7, until=3).acquire(2, 0, 7.1, until=3)
    s.read(2, 7.5, 0).read(1, 8, 0)


@breaks(D, X)
def reader_beside_his_neighbours_write(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, 1, mode=Mode.WRITE, hold="w", owner=1)
    s.acquire(2, 2, 3, mode=Mode.READ, hold="r", owner=2)
    s.release(1, 4, 5, hold="w").release(2, 6, 7, hold="r")


@breaks(D, X)
def given_away_after_every_extend(s: Scene) -> None:
    # Two extends at once, the shorter to 8: at 9 the key may be anybody's, at 7 it may not.
    s.acquire(1, 0, 1, until=5).extend(1, 2, 4, until=20).extend(1, 3, 3.5, until=8)
    s.acquire(2, 2, 7, until=12).release(2, 9, 10)


@breaks(D, X)
def three_permits_of_two(s: Scene) -> None:
    s.kind("semaphore", permits=2)
    for client, at in ((1, 0), (1, 2), (2, 4)):
        s.acquire(client, at, at + 1, named=False)
    s.release(1, 6, 7, named=False).release(1, 8, 9, named=False)


@breaks(D, X)
def second_key_only(s: Scene) -> None:
    s.acquire(1, 0, 1, key="a", hold="x").release(1, 2, 3, key="a", hold="x")
    s.acquire(1, 4, 5, key="b", hold="y").acquire(2, 4, 6, key="b", hold="z")
    s.release(1, 7, 8, key="b", hold="y").release(2, 7, 8, key="b", hold="z")


@pytest.mark.parametrize(("plant", "expected"), DEFECTS, ids=lambda x: getattr(x, "__name__", ""))
def test_every_planted_defect_is_found(plant: Plant, expected: set[str]) -> None:
    scene = Scene()
    plant(scene)
    report = check(scene.history())
    found = {name for name, verdict in report.verdicts.items() if verdict.result == "invalid"}
    assert found == expected, {name: v.reason for name, v in report.verdicts.items()}
    assert report.result == "invalid"
    for name in found:
        assert report.verdicts[name].evidence, f"{name} without evidence"


@healthy
def touching(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).release(1, 3, 3.1)
    s.acquire(2, 0.5, 3, until=TTL + 0.5).release(2, 4, 4.1)


@healthy
def granted_when_the_lease_ends(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL)
    s.acquire(2, 5, TTL, until=TTL + 5).release(2, 11, 11.1)


@healthy
def unknown_acquire_without_consequence(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).acquire(2, 0, None, "info", hold="u")
    s.release(2, 1.5, 1.6, "fail", hold="u", error="not-held").release(1, 5, 6)


@healthy
def unknown_acquire_cleaned_up(s: Scene) -> None:
    s.acquire(2, 0, None, "info", hold="u").release(2, 1.5, 1.6, hold="u")
    s.acquire(1, 2, 3, until=TTL).release(1, 5, 6)


@healthy
def unknown_acquire_squeezed_between(s: Scene) -> None:
    s.acquire(1, 0, 1).release(1, 4.5, 7)
    s.acquire(2, 2, None, "info").release(2, 4, 5)
    s.acquire(3, 2, 4.5).release(3, 8, 9)


@healthy
def unknown_release(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).release(1, 2, None, "info")
    s.acquire(2, 0, 3, until=TTL).release(2, 4, 5)


@healthy
def unknown_release_retried(s: Scene) -> None:
    s.acquire(1, 0, 1).release(1, 2, None, "info").release(1, 3, 4, "fail", error="not-held")
    s.acquire(2, 0, 3).release(2, 4, 5)


@healthy
def unknown_extend(s: Scene) -> None:
    s.acquire(1, 0, 1, until=5).extend(1, 4, None, "info")
    s.acquire(2, 0, 6, until=12).release(2, 7, 8)


@healthy
def release_without_effect(s: Scene) -> None:
    s.acquire(1, 0, 1).release(1, 2, 3, "fail", error="no-effect").release(1, 4, 5)
    s.acquire(2, 0, 4.5).release(2, 6, 7)


@healthy
def loss_notified(s: Scene) -> None:
    s.acquire(1, 0, 1).lost(1, 3)
    s.acquire(2, 0, 4).release(2, 6, 7)
    s.not_held(1, 8, 9)


@healthy
def holder_died(s: Scene) -> None:
    s.acquire(1, 0, 1).death(1, 3)
    s.acquire(2, 0, 4).release(2, 6, 7)


@healthy
def refusals(s: Scene) -> None:
    s.acquire(1, 0, 1).acquire(2, 0.5, 1.5, "fail", error="held").release(1, 2, 3)
    s.acquire(2, 5, 6, "fail", error="gave-up", hold="b")


@healthy
def slow_client_alone(s: Scene) -> None:
    # Late, but nobody else was granted the key since: not stale.
    s.acquire(1, 0, 1, until=5).read(1, 8, 0).write(1, 9, 0, 1).not_held(1, 10, 11)


@healthy
def concurrent_fences(s: Scene) -> None:
    s.acquire(1, 0, 5, until=5, fence=2).acquire(2, 0, 4, until=4, fence=1)


@healthy
def reentrant_fence_repeats(s: Scene) -> None:
    s.kind("reentrant")
    s.acquire(1, 0, 1, fence=5, named=False).acquire(1, 2, 3, fence=5, named=False)
    s.release(1, 4, 5, named=False).release(1, 6, 7, named=False)
    s.acquire(2, 0, 8, fence=6, named=False)


@healthy
def reentrant_fence_of_a_hold_that_may_still_stand(s: Scene) -> None:
    s.kind("reentrant")
    s.acquire(1, 0, 1, fence=5, named=False).release(1, 2, None, "info", named=False)
    s.acquire(1, 4, 5, fence=5, named=False).release(1, 6, 7, named=False)


@healthy
def reentrant_fence_beyond_the_promise(s: Scene) -> None:
    s.kind("reentrant")
    s.acquire(1, 0, 1, until=3, fence=5, named=False)
    s.acquire(1, 4, 5, until=14, fence=5, named=False).release(1, 6, 7, named=False)


@healthy
def two_tries_of_one_name(s: Scene) -> None:
    # The release may be of either, so it may be that of the first.
    s.acquire(1, 0, 1).acquire(1, 2, None, "info").release(1, 3, 4)
    s.acquire(2, 2, 5).release(2, 6, 7)


@healthy
def two_threads_of_one_process(s: Scene) -> None:
    s.acquire(1, 0, 1, named=False).acquire(1, 1.5, 4, named=False)
    s.release(1, 2, 3, named=False).release(1, 5, 6, named=False)


@healthy
def released_by_another_thread(s: Scene) -> None:
    s.release(1, 1, 4, named=False).acquire(1, 2, 3, named=False)
    s.acquire(2, 0, 5, named=False).release(2, 6, 7, named=False)


@healthy
def released_late_under_a_process_that_went_on(s: Scene) -> None:
    # The first acquire came through between the two releases.
    s.acquire(1, 0, None, "info", named=False).acquire(1, 1, 5, named=False)
    s.release(1, 6, 7, named=False).release(1, 8, 9, named=False)


@healthy
def extended_while_another_permit_was_asked_for(s: Scene) -> None:
    # What was extended is the second permit; the first one ran out.
    s.kind("semaphore", permits=2)
    s.acquire(1, 0, 1, until=7, named=False).extend(1, 2, 4, until=20, named=False)
    s.acquire(1, 3, 5, until=9, named=False)
    s.acquire(2, 7, 8, until=30, named=False)
    s.release(2, 9, 10, named=False)


@healthy
def reentrant_level_beside_a_release(s: Scene) -> None:
    s.kind("reentrant")
    s.acquire(1, 0, 1, owner=7, named=False).acquire(2, 2, 8, owner=7, named=False)
    s.release(1, 3, 4, owner=7, named=False)
    s.acquire(3, 3, 5, named=False).release(3, 5.5, 6, named=False)
    s.release(2, 9, 10, owner=7, named=False)


@healthy
def readers_together(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, 1, mode=Mode.READ, fence=4).acquire(2, 0, 2, mode=Mode.READ, fence=4)
    s.release(1, 3, 4).release(2, 5, 6)
    s.acquire(3, 0, 5.5, mode=Mode.WRITE, fence=5).release(3, 7, 8)


@healthy
def permits_enough(s: Scene) -> None:
    s.kind("semaphore", permits=2)
    s.acquire(1, 0, 1).acquire(2, 0, 2).release(1, 3, 4).acquire(3, 0, 3).release(3, 6, 7)


@healthy
def a_permit_was_left_for_the_late_release(s: Scene) -> None:
    s.kind("semaphore", permits=3)
    s.acquire(1, 0, 1, until=3).acquire(2, 1, 2).acquire(3, 4, 5)
    s.release(1, 7, 8).release(2, 9, 10).release(3, 9, 10)


@healthy
def a_late_extend_beside_another_permit(s: Scene) -> None:
    s.kind("semaphore", permits=3)
    s.acquire(1, 0, 1, until=3).acquire(2, 4, 5, until=15)
    s.extend(1, 6, 7, until=16).release(1, 8, 9).release(2, 8, 9)


@healthy
def late_reader_released_beside_readers(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, 1, until=3, mode=Mode.READ)
    s.acquire(2, 4, 5, mode=Mode.READ).release(1, 6, 7).release(2, 8, 9)


@healthy
def late_reader_of_its_own_release(s: Scene) -> None:
    s.acquire(1, 0, 1, until=3).release(1, 4, 5, "fail", error="not-held")
    s.acquire(2, 0, 3, until=13).release(2, 4.2, 5)


@healthy
def skewed_clocks_within_epsilon(s: Scene) -> None:
    s.epsilon(0.1)
    s.acquire(1, 0, 1).release(1, 2, 3)
    s.acquire(2, 0, 1.9).release(2, 4, 5)


@healthy
def reply_of_a_write_lost(s: Scene) -> None:
    s.acquire(1, 0, 1, until=TTL).read(1, 1.1, 0)
    s.op(6, 1, 1.2, None, "info", version=0).release(1, 2, 3)  # type: ignore[arg-type]
    s.acquire(2, 3, 4, until=14).read(2, 4.1, 1).write(2, 4.2, 1, 2).release(2, 5, 6)


@healthy
def process_used_again_after_an_unknown_release(s: Scene) -> None:
    s.acquire(1, 0, 1, named=False).release(1, 2, None, "info", named=False)
    s.acquire(1, 3, 4, named=False).release(1, 5, 6, named=False)


@healthy
def equal_fences_of_two_keys(s: Scene) -> None:
    s.acquire(1, 0, 4, until=TTL, fence=7, key="a", hold="a")
    s.acquire(2, 0, 5, until=TTL, fence=7, key="b", hold="b")


@healthy
def released_at_the_instant_of_the_grant(s: Scene) -> None:
    # The release may have been the first of the two.
    s.acquire(1, 0, 1, until=3).release(1, 4, 5)
    s.acquire(2, 2, 4, until=14)


@healthy
def granted_at_once_and_released_late(s: Scene) -> None:
    # Its own grant is nobody's successor.
    s.acquire(1, 1, 1, until=3).release(1, 5, 6)


@healthy
def another_grant_of_the_same_owner(s: Scene) -> None:
    # Nobody else was granted the key since: whoever comes late overtakes himself alone.
    s.acquire(1, 0, 1, until=3, hold="first")
    s.acquire(1, 4, 5, until=15, hold="second").read(1, 5.5, 0, hold="first")


@healthy
def a_late_grant_that_came_first(s: Scene) -> None:
    # Client 2's grant was told late and is over; which of the two was first nobody knows.
    s.acquire(2, 0, 6, until=12).release(2, 7, 7.1)
    s.acquire(1, 0.5, 1, until=5).read(1, 5.5, 0)


@healthy
def reads_under_his_own_write(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, 1, mode=Mode.WRITE, hold="w", owner=1)
    s.acquire(1, 2, 3, mode=Mode.READ, hold="r", owner=1)
    s.acquire(1, 3.1, 3.2, mode=Mode.WRITE, hold="again", owner=1).release(
        1, 3.3, 3.4, hold="again"
    )
    s.release(1, 4, 5, hold="w").acquire(2, 4, 6, mode=Mode.READ, hold="r2", owner=2)
    s.release(1, 7, 8, hold="r").release(2, 9, 10, hold="r2")


@healthy
def the_shorter_of_two_extends(s: Scene) -> None:
    # Asked for at once: the shorter one may have been the last.
    s.acquire(1, 0, 1, until=5).extend(1, 2, 4, until=20).extend(1, 3, 3.5, until=8)
    s.acquire(2, 2, 9, until=15).release(2, 10, 11)


@healthy
def two_permits_of_one_process(s: Scene) -> None:
    # The first release may be that of the first hold.
    s.kind("semaphore", permits=2)
    s.acquire(1, 0, 1, named=False).acquire(1, 2, 3, named=False).release(1, 4, 5, named=False)
    s.acquire(2, 4, 6, named=False).release(1, 7, 8, named=False).release(2, 9, 10, named=False)


@healthy
def entered_again_after_the_lease(s: Scene) -> None:
    # The service still had the hold: a second level, and both are released.
    s.kind("reentrant")
    s.acquire(1, 0, 1, until=3, named=False).acquire(1, 4, 5, until=14, named=False)
    s.release(1, 6, 7, named=False).release(1, 8, 9, named=False)


@healthy
def an_unknown_grant_runs_out(s: Scene) -> None:
    s.kind("mutex", strict_try=True)
    s.acquire(1, 0, None, "info").acquire(2, 1, 2, "fail", error="held", hold="x")
    s.acquire(2, 9, 10, until=19, hold="y").release(2, 11, 12, hold="y")


@healthy
def unknown_acquire_wrote_before_the_next_grant(s: Scene) -> None:
    s.acquire(1, 0, None, "info").write(1, 1, 0, 1)
    s.acquire(2, 0.5, 1 + NS, until=9).read(2, 2, 1).release(2, 4, 4.1)


@healthy
def unknown_acquire_wrote_after_the_release(s: Scene) -> None:
    s.acquire(1, 0, None, "info").acquire(2, 0.5, 1, until=9).read(2, 2, 0)
    s.release(2, 3, 3.1).write(1, 3, 0, 1)


@healthy
def unknown_acquire_wrote_at_an_unknown_time(s: Scene) -> None:
    s.acquire(1, 0, None, "info").acquire(2, 0, 2, until=9)
    s.write(1, 3, 0, 1, applied=False).release(2, 4, 4.1)


@healthy
def read_under_an_unknown_acquire_beside_a_reader(s: Scene) -> None:
    s.kind("read-write")
    s.acquire(1, 0, None, "info", mode=Mode.READ).acquire(2, 0, 2, until=9, mode=Mode.READ)
    s.read(1, 3, 0, mode=Mode.READ).release(2, 4, 4.1)


@healthy
def unknown_acquire_of_the_same_owner(s: Scene) -> None:
    s.acquire(1, 0, None, "info", hold="a", owner=7).acquire(2, 0, 2, until=9, owner=7)
    s.write(1, 3, 0, 1, hold="a", owner=7).release(2, 4, 4.1, owner=7)


@pytest.mark.parametrize("make", HEALTHY, ids=lambda x: x.__name__)
def test_healthy_neighbours_stay_valid(make: Plant) -> None:
    scene = Scene()
    make(scene)
    report = check(scene.history())
    assert report.result == "valid", {n: v.reason for n, v in report.verdicts.items()}


def test_an_empty_promise_makes_nobody_before_it_a_successor() -> None:
    scene = Scene()
    scene.kind("read-write")
    scene.acquire(1, 0, 1, until=9, mode=Mode.WRITE).release(1, 3.5, 3.6)
    scene.acquire(2, 2, 4, until=0.5, mode=Mode.READ).release(2, 5, 6)
    verdicts = check(scene.history()).verdicts
    assert verdicts["late-grant"].result == "invalid"
    assert verdicts["false-release"].result == "valid", verdicts["false-release"].reason


def test_a_lock_without_owners_promises_nobody_anything() -> None:
    late = Scene()
    late.acquire(1, 0, 10, until=TTL / 2)
    assert check(late.history()).verdicts["late-grant"].result == "invalid"
    late.kind("ownerless")
    assert "late-grant" not in check(late.history()).verdicts


def test_without_epsilon_the_same_clocks_show_a_double_grant() -> None:
    scene = Scene()
    skewed_clocks_within_epsilon(scene)
    scene.epsilon(0)
    assert check(scene.history()).verdicts["double-grant"].result == "invalid"


def test_the_words_say_who_when_and_under_which_fault() -> None:
    scene = Scene()
    scene.acquire(7, 12, 12.004, until=22.001, fence=41)
    scene.acquire(3, 15, 15.310, until=25, fence=40).fault(
        "partition", 14, 20, targets=("redis-3", "redis-4")
    )
    scene.acquire(9, 0, 0.5, until=1, fence=1)
    reason = check(scene.history()).verdicts["double-grant"].reason
    assert "client 7 was promised k0 from 12.004 to 22.001 s" in reason
    assert "client 3 was granted it at 15.310 s" in reason
    assert "fence 41 then 40" in reason
    assert "during partition of redis-3, redis-4" in reason
