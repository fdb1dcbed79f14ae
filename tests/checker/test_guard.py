"""``broken-guard`` and its counts on scenes whose outcome is known by hand: each accusation with
the innocent history beside it, in which one thing is different."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lockbench.checker.check import check
from lockbench.checker.verdict import Verdict
from lockbench.history.columns import History
from lockbench.history.guarded import Applied, Guarded, Rule
from lockbench.history.op import F
from lockbench.history.service import Service, Tenure
from tests.checker.scenes import Scene

REFUSED = "refused: by the guard"
# An entry of the record: whose hold, the version made, the one read, and the fence.
Entry = tuple[str, int, int, int | None]


def stored(scene: Scene, rule: Rule, *entries: Entry) -> History:
    history = scene.history()
    holds = {name: number for number, name in (history.hold_names or {}).items()}
    applied = tuple(
        Applied("k0", place, holds[hold], made, read, fence)
        for place, (hold, made, read, fence) in enumerate(entries)
    )
    return replace(history, guarded=Guarded("postgres", "fence", rule, "its rows", applied))


def judged(scene: Scene, rule: Rule, *entries: Entry) -> Verdict:
    return check(stored(scene, rule, *entries)).verdicts["broken-guard"]


def wrote(scene: Scene, client: int, at: float, read: int, made: int, fence: int) -> Scene:
    return scene.write(client, at, read, made, fence=fence, applied=False)


def refused(scene: Scene, client: int, at: float, read: int, fence: int) -> Scene:
    window = (at - 0.001, at + 0.001)
    return scene.op(F.WRITE, client, *window, "fail", version=read, fence=fence, error=REFUSED)


def test_each_write_as_the_guard_says() -> None:
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 1, 2, fence=2)
    refused(scene, 1, 3, 1, fence=1)
    assert judged(scene, "newer", ("h1", 1, 0, 1), ("h2", 2, 1, 2)).result == "valid"


@pytest.mark.parametrize(("fence", "result"), [(2, "valid"), (1, "invalid"), (0, "invalid")])
def test_a_fence_that_is_not_above_all_before_is_not_to_be_applied(fence: int, result: str) -> None:
    """The same fence twice is what a check that compares with <= lets through."""
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 1, 2, fence=fence)
    verdict = judged(scene, "newer", ("h1", 1, 0, 1), ("h2", 2, 1, fence))
    assert verdict.result == result
    assert result == "valid" or "client 2's write of k0" in verdict.reason


def test_a_refusal_needs_a_reason() -> None:
    scene = refused(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 1, fence=2)
    verdict = judged(scene, "newer", ("h1", 1, 0, 1))
    assert verdict.result == "invalid"
    assert "nothing had been applied that its check would refuse it for" in verdict.reason


def test_a_write_under_way_may_be_the_reason_of_a_refusal() -> None:
    """Nobody knows when it was applied; it was begun before the refusal was answered."""
    scene = Scene().op(F.WRITE, 1, 1, 3, version=0, value=1, fence=3)
    assert judged(refused(scene, 2, 2, 0, fence=2), "newer", ("h1", 1, 0, 3)).result == "valid"
    later = Scene().op(F.WRITE, 1, 2.5, 3, version=0, value=1, fence=3)
    assert judged(refused(later, 2, 2, 0, fence=2), "newer", ("h1", 1, 0, 3)).result == "invalid"


def test_a_write_that_nobody_heard_of_may_be_the_reason_of_a_refusal() -> None:
    scene = Scene().op(F.WRITE, 1, 1, None, "info", version=0, fence=3)
    assert judged(refused(scene, 2, 2, 0, fence=2), "newer", ("h1", 1, 0, 3)).result == "valid"


def test_a_version_that_was_not_read_is_not_to_be_replaced() -> None:
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 1, 2, fence=2)
    assert judged(scene, "unchanged", ("h1", 1, 0, 1), ("h2", 2, 1, 2)).result == "valid"
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 0, 2, fence=2)
    assert judged(scene, "unchanged", ("h1", 1, 0, 1), ("h2", 2, 0, 2)).result == "invalid"


def test_what_is_refused_by_an_unguarded_store_is_a_difference() -> None:
    scene = wrote(Scene(), 1, 1, 0, 1, fence=2)
    assert judged(scene, "any", ("h1", 1, 0, 2)).result == "valid"
    assert judged(refused(scene, 2, 2, 0, fence=1), "any", ("h1", 1, 0, 2)).result == "invalid"


def test_a_write_of_which_nothing_was_done_is_not_in_the_record() -> None:
    scene = refused(wrote(Scene(), 1, 1, 0, 1, fence=2), 2, 2, 0, fence=1)
    verdict = judged(scene, "any", ("h1", 1, 0, 2), ("h2", 2, 0, 1))
    assert verdict.result == "invalid"
    assert "told that nothing was done" in verdict.reason


def test_the_record_keeps_the_order_of_writes_that_followed_each_other() -> None:
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 1, 2, fence=2)
    assert judged(scene, "any", ("h1", 1, 0, 1), ("h2", 2, 1, 2)).result == "valid"
    assert judged(scene, "any", ("h2", 2, 1, 2), ("h1", 1, 0, 1)).result == "invalid"


def test_under_the_rule_held_the_service_has_the_last_word() -> None:
    scene = wrote(Scene().acquire(1, 0, 0.5, until=5, fence=1), 1, 1, 0, 1, fence=1)
    history = stored(scene, "held", ("h1", 1, 0, 1))
    assert check(history).verdicts["broken-guard"].result == "unknown"
    (hold,) = (history.guarded.applied[0].hold,) if history.guarded else (0,)

    def with_tenure(made: int, ended: int) -> History:
        tenure = Tenure("etcd", "k0", hold, made, made, ended, "deleted", None)
        return replace(history, service=Service("etcd's revisions", 1, None, (tenure,)))

    assert check(with_tenure(-1, 5)).verdicts["broken-guard"].result == "valid"
    assert check(with_tenure(-2, -1)).verdicts["broken-guard"].result == "invalid"
    for silent in (Service("etcd's revisions", 1, "a gap", ()), Service("etcd's", 1, None, ())):
        verdict = check(replace(history, service=silent)).verdicts["broken-guard"]
        assert verdict.result == "unknown", "a record with a gap says nothing of who held"


@pytest.mark.parametrize(
    ("entries", "result"),
    [((("h1", 1, 0, 3),), "valid"), ((("h1", 1, 0, 1),), "invalid"), ((), "valid")],
)
def test_the_fence_of_a_write_without_an_answer_is_that_of_the_record(
    entries: tuple[Entry, ...], result: str
) -> None:
    """Its writer was killed before the answer. Without an entry it may have had any fence."""
    scene = Scene().op(F.WRITE, 1, 1, 1.5, "info", version=0)
    assert judged(refused(scene, 2, 2, 0, fence=2), "newer", *entries).result == result


def did(scene: Scene, client: int, at: float, thing: int, answer: str = "ok") -> Scene:
    error = REFUSED if answer == "fail" else None
    return scene.op(F.EFFECT, client, at - 0.001, at + 0.001, answer, version=thing, error=error)


@pytest.mark.parametrize(("apart_s", "result"), [(1.5, "valid"), (2.5, "invalid")])
def test_writes_that_clocks_may_have_turned_round_are_in_order(apart_s: float, result: str) -> None:
    """Each of two machines may be a second off."""
    scene = wrote(wrote(Scene(), 1, 10, 1, 2, fence=1), 2, 10 + apart_s, 0, 1, fence=2)
    history = stored(scene, "any", ("h2", 1, 0, 2), ("h1", 2, 1, 1))
    verdict = check(replace(history, epsilon_ns=1_000_000_000)).verdicts["broken-guard"]
    assert verdict.result == result


def test_a_thing_is_done_once_in_no_order() -> None:
    scene = did(did(did(Scene(), 1, 1, 5), 2, 2, 4), 3, 3, 5, "fail")
    assert judged(scene, "once", ("h2", 4, 0, None), ("h1", 5, 0, None)).result == "valid"
    scene = did(did(Scene(), 1, 1, 5), 2, 2, 5)
    verdict = judged(scene, "once", ("h1", 5, 0, None), ("h2", 5, 0, None))
    assert verdict.result == "invalid"
    assert "(thing 5), and its check refuses a thing that was done before" in verdict.reason


@pytest.mark.parametrize(("other", "result"), [(5, "valid"), (6, "invalid")])
@pytest.mark.parametrize("answer", ["ok", "info"])
def test_a_thing_is_refused_only_if_it_may_have_been_done(
    other: int, result: str, answer: str
) -> None:
    scene = did(did(Scene(), 1, 1, other, answer), 2, 2, 5, "fail")
    entries = (("h1", other, 0, None),) if answer == "ok" else ()
    assert judged(scene, "once", *entries).result == result


def test_what_was_done_before_is_no_conflict() -> None:
    scene = did(did(Scene().kind("mutex", job="payment"), 1, 1, 5), 2, 2, 5, "fail")
    jobs = check(stored(scene, "once", ("h1", 5, 0, None))).measurements["jobs"]
    assert isinstance(jobs, dict)
    assert (jobs["payment"]["refused_as_done"], jobs["payment"]["conflicts"]) == (1, 0)


def test_a_late_thing_counts_only_if_it_was_done_before() -> None:
    """The rule is one of things: a newer fence on another thing is nothing to it."""
    scene = Scene().acquire(1, 0, 1, until=5, fence=1).acquire(2, 2, 6, until=12, fence=2)
    did(did(scene, 2, 6.6, 4), 1, 8, 5)
    entries = (("h2", 4, 0, 2), ("h1", 5, 0, 1))
    found = check(stored(scene, "once", *entries)).measurements["guard"]
    assert isinstance(found, dict)
    assert (found["stale_attempted"], found["stale_applied"], found["stale_applied_late"]) == (
        (1, 1, 0)
    )


def test_nothing_written_is_unknown_and_no_store_no_verdict() -> None:
    scene = Scene().acquire(1, 0, 1, until=5, fence=1).release(1, 2, 2.1)
    assert judged(scene, "newer").result == "unknown"
    assert "broken-guard" not in check(scene.history()).verdicts


def test_stale_writes_are_counted_by_what_became_of_them() -> None:
    scene = Scene().acquire(1, 0, 1, until=5, fence=1).read(1, 1.5, 0, applied=False)
    scene.acquire(2, 2, 6, until=12, fence=2).read(2, 6.5, 0, applied=False)
    wrote(scene, 2, 6.6, 0, 1, fence=2)
    refused(scene, 2, 6.7, 0, fence=2)  # sent again
    scene.release(2, 7, 7.1)
    refused(scene, 1, 8, 0, fence=1)
    found = check(stored(scene, "newer", ("h2", 1, 0, 2))).measurements["guard"]
    assert isinstance(found, dict)
    expected = {
        "writes": 3,
        "refused": 2,
        "stale_attempted": 1,
        "stale_refused": 1,
        "stale_applied": 0,
        "rightful_refused": 0,
        "again": 1,
        "again_applied": 0,
        "gone": 0,
        "differences": 0,
    }
    assert {name: found[name] for name in expected} == expected


def test_a_rightful_write_that_was_refused_is_counted() -> None:
    """A stale one came in before it, because nobody newer had written."""
    scene = Scene().acquire(1, 0, 1, until=5, fence=1)
    scene.acquire(2, 2, 6, until=12, fence=2)
    wrote(scene, 1, 6.5, 0, 1, fence=1)
    refused(scene, 2, 7, 0, fence=2)
    found = check(stored(scene, "unchanged", ("h1", 1, 0, 1))).measurements["guard"]
    assert isinstance(found, dict)
    assert (found["stale_applied"], found["stale_applied_late"]) == (1, 0)
    assert found["rightful_refused"] == 1


def test_a_confirmed_write_that_is_not_in_the_record_is_counted() -> None:
    scene = wrote(wrote(Scene(), 1, 1, 0, 1, fence=1), 2, 2, 1, 2, fence=2)
    found = check(stored(scene, "newer", ("h1", 1, 0, 1))).measurements["guard"]
    assert isinstance(found, dict)
    assert found["gone"] == 1
