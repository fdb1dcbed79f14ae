"""What happened from outside takes away the violations that it may have caused, and no other."""

from __future__ import annotations

import pytest

from lockbench.checker.check import check
from lockbench.checker.outside import OUTSIDE
from lockbench.history.op import F
from tests.checker.scenes import Scene
from tests.checker.test_guard import stored, wrote


def granted_twice(scene: Scene, at: float, *, hold: str = "a") -> Scene:
    """Two clients hold the key from ``at`` + 0.5 to ``at`` + 1."""
    scene.acquire(1, at, at + 0.1, until=at + 3, hold=f"{hold}1").acquire(
        2, at + 0.2, at + 0.5, until=at + 3, hold=f"{hold}2"
    )
    return scene.release(1, at + 1, at + 1.1, hold=f"{hold}1").release(
        2, at + 1.2, at + 1.3, hold=f"{hold}2"
    )


def double_grant(scene: Scene) -> str:
    return check(scene.history()).verdicts["double-grant"].result


def test_without_anything_from_outside_all_is_told() -> None:
    assert double_grant(granted_twice(Scene(), 10)) == "invalid"
    assert double_grant(granted_twice(Scene(), 10).fault("kill", 9, 9.5)) == "invalid"


@pytest.mark.parametrize(
    ("begin", "heal", "told"),
    [
        (5, None, "unknown"),  # a server died before: whatever came later is its doing
        (10.3, None, "unknown"),  # before the second grant was answered
        (20, None, "invalid"),  # long after
        (10.3, 13.0, "unknown"),  # clients stood still while both held
        (8.0, 10.1, "unknown"),  # the first had asked by then
        (5, 9, "invalid"),  # both asked after it was over
        (20, 24, "invalid"),
    ],
)
def test_a_violation_is_told_where_nothing_touched_it(
    begin: float, heal: float | None, told: str
) -> None:
    assert double_grant(granted_twice(Scene(), 10).fault(OUTSIDE, begin, heal)) == told


def test_between_two_stalls_it_is_told_and_across_the_second_it_is_not() -> None:
    both = granted_twice(Scene(), 10).fault(OUTSIDE, 5, 9)
    assert double_grant(both.fault(OUTSIDE, 12, 15)) == "invalid"
    across = granted_twice(Scene(), 10).fault(OUTSIDE, 5, 9)
    assert double_grant(across.fault(OUTSIDE, 10.3, 13)) == "unknown"


def test_after_a_stall_another_stall_within_it_adds_nothing() -> None:
    scene = granted_twice(Scene(), 10).fault(OUTSIDE, 5, 9.5).fault(OUTSIDE, 6, 7)
    assert double_grant(scene) == "invalid"


def test_nothing_is_told_after_what_lasts_whatever_was_over_before_it() -> None:
    scene = granted_twice(Scene(), 10).fault(OUTSIDE, 2, 4).fault(OUTSIDE, 8, None)
    assert double_grant(scene) == "unknown"


def test_of_two_violations_the_untouched_one_is_told() -> None:
    scene = granted_twice(granted_twice(Scene(), 10), 30, hold="b").fault(OUTSIDE, 20, None)
    verdict = check(scene.history()).verdicts["double-grant"]
    assert verdict.result == "invalid"
    assert all(item.get("hold") != "b1" for item in verdict.evidence)


def test_what_is_unknown_says_what_happened() -> None:
    what = "redis-1 met with die"
    scene = granted_twice(Scene(), 10).fault(OUTSIDE, 5, None, what=what)
    verdict = check(scene.history()).verdicts["double-grant"]
    assert what in verdict.reason
    assert verdict.evidence


def test_who_slept_through_its_lease_while_it_was_stopped_is_not_accused() -> None:
    def slept(scene: Scene) -> Scene:
        scene.acquire(1, 10, 10.1, until=13, hold="a").read(1, 10.2, 0, hold="a")
        scene.acquire(2, 13.1, 13.2, until=16, hold="b").read(2, 13.3, 0, hold="b")
        return scene.write(2, 13.4, 0, 1, hold="b").write(1, 14.5, 0, 2, hold="a")

    alone = check(slept(Scene()).history()).verdicts
    stopped = check(slept(Scene()).fault(OUTSIDE, 10.25, 14.4).history()).verdicts
    broken = {"stale-holder", "lost-update"}
    assert {alone[name].result for name in broken} == {"invalid"}
    assert {stopped[name].result for name in broken} == {"unknown"}


def test_what_is_valid_stays_valid() -> None:
    scene = Scene().acquire(1, 1, 1.1, until=4).release(1, 2, 2.1).fault(OUTSIDE, 1.5, None)
    assert double_grant(scene) == "valid"


def test_an_outage_before_anything_was_asked_leaves_nothing_to_tell() -> None:
    assert double_grant(granted_twice(Scene(), 10).fault(OUTSIDE, 1, None)) == "unknown"


@pytest.mark.parametrize("kind", ["mutex", "reentrant"])
@pytest.mark.parametrize("released", ["info", "ok"])
def test_what_had_no_answer_before_a_stall_may_take_effect_after_it(
    kind: str, released: str
) -> None:
    """An innocent pair after the stall, while a guilty one during it is excused: client 1's release
    may have ended its later hold."""
    names = kind == "reentrant"

    def acquired(scene: Scene, client: int, at: float, got: float, until: float, hold: str) -> None:
        named = {"hold": hold, "owner": client} if names else {"named": False}
        scene.acquire(client, at, got, until=until, **named)

    scene = Scene().kind(kind)
    acquired(scene, 1, 1, 2, 5, "a")
    named = {"hold": "a", "owner": 1} if names else {"named": False}
    scene.release(1, 4, None if released == "info" else 4.1, released, **named)
    acquired(scene, 3, 5.5, 6, 8, "c")
    acquired(scene, 4, 6.1, 6.2, 8, "d")
    acquired(scene, 1, 10, 11, 40, "b")
    acquired(scene, 2, 12, 13, 40, "e")
    told = {"info": "unknown", "ok": "invalid"}
    assert double_grant(scene.fault(OUTSIDE, 5.2, 9)) == told[released]


@pytest.mark.parametrize(("begin", "told"), [(10, "unknown"), (30, "invalid")])
def test_what_a_store_applied_afterwards_is_not_told_of_its_guard(begin: float, told: str) -> None:
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 20, 1, 2, fence=1)
    history = stored(scene.fault(OUTSIDE, begin, None), "newer", ("h1", 1, 0, 1), ("h2", 2, 1, 1))
    assert check(history).verdicts["broken-guard"].result == told


def test_what_a_store_applied_before_is_whole_where_an_answer_is_missing() -> None:
    """The second of three writes was not answered; the third was made from it."""
    scene = wrote(Scene(), 1, 1, 0, 1, fence=1)
    scene.op(F.WRITE, 2, 2, None, "info", version=1, value=2, fence=2)
    wrote(scene, 3, 3, 2, 3, fence=3)
    wrote(wrote(scene, 4, 20, 3, 4, fence=4), 5, 22, 9, 10, fence=5).fault(OUTSIDE, 10, None)
    entries = (("h1", 1, 0, 1), ("h2", 2, 1, 2), ("h3", 3, 2, 3), ("h4", 4, 3, 4), ("h5", 10, 9, 5))
    assert check(stored(scene, "unchanged", *entries)).verdicts["broken-guard"].result == "unknown"
