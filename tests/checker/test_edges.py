"""Histories at the edges of rules: a wrong one beside an innocent one that is much like it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lockbench.checker.analysis import Analysis
from lockbench.checker.check import check
from lockbench.checker.exposure import exposure
from lockbench.history.columns import History
from lockbench.history.op import F
from tests.checker.scenes import Scene, ns


def result(history: History, verdict: str) -> str:
    return check(history).verdicts[verdict].result


@pytest.mark.parametrize(("lost", "expected"), [("a", "invalid"), ("b", "valid")])
def test_a_loss_ends_the_hold_of_its_key_alone(lost: str, expected: str) -> None:
    """One name may stand for a hold of each of several keys."""
    scene = Scene(key="b").acquire(1, 0, 1, key="a", hold="s").acquire(1, 1.1, 1.2, hold="s")
    scene.lost(1, 3, key=lost, hold="s")
    scene.acquire(2, 4, 5).release(2, 6, 7)
    assert result(scene.history(), "double-grant") == expected


@pytest.mark.parametrize("answer", ["info", "ok"])
def test_where_nothing_was_confirmed_nothing_is_shown(answer: str) -> None:
    scene = Scene().acquire(1, 0, 1, "info")
    scene.op(F.WRITE, 1, 2, 4, answer, version=0, value=1, applied_ns=ns(3))
    report = check(scene.history())
    assert report.verdicts["lost-update"].result == "valid"
    assert report.result == ("valid" if answer == "ok" else "unknown")


@pytest.mark.parametrize("inner", ["h1", "inner"])
@pytest.mark.parametrize(("wrote_s", "expected"), [(4.25, "valid"), (7.0, "invalid")])
def test_what_is_done_under_an_inner_level_is_over_with_the_outermost(
    inner: str, wrote_s: float, expected: str
) -> None:
    scene = Scene().kind("reentrant").acquire(1, 0, 1).acquire(1, 2, 3, hold=inner)
    scene.release(1, 4, 4.1, hold=inner).release(1, 4.2, 4.3)
    if expected == "valid":
        scene.write(1, 3.5, 0, 1, hold=inner)
    scene.acquire(2, 4.4, 5).write(2, 6, 1 if expected == "valid" else 0, 2)
    if expected == "invalid":
        scene.write(1, wrote_s, 2, 3, hold=inner)
    scene.release(2, 8, 9)
    assert result(scene.history(), "stale-holder") == expected


@pytest.mark.parametrize(("granted", "expected"), [(2, "valid"), (0, "invalid")])
def test_who_asks_for_more_than_there_is_finds_no_leak(granted: int, expected: str) -> None:
    """It holds every permit itself, from after the load."""
    scene = Scene().kind("semaphore", permits=2, lease_ns=ns(3), slack_ns=ns(2))
    scene.kind("mutex", "spare", role="floor")
    scene.acquire(1, 0, 1, until=4).release(1, 2, 2.1)
    scene.op(F.QUIET, 9, 20, 20, named=False)
    for n in range(granted):
        scene.acquire(9, 26 + n / 10, 26.05 + n / 10, hold=f"q{n}")
    scene.acquire(9, 27, 27.1, "fail", error="gave-up: held", hold="more")
    for n in range(granted):
        scene.release(9, 28, 28.1, hold=f"q{n}")
    scene.acquire(9, 28.2, 28.3, key="spare", hold="spare")
    assert result(scene.history(), "leaked-lock") == expected


@pytest.mark.parametrize(
    ("epsilon_s", "expected"), [(0.0, "invalid"), (0.05, "invalid"), (5.0, "valid")]
)
def test_a_key_that_clocks_may_explain_did_not_leak(epsilon_s: float, expected: str) -> None:
    scene = Scene().kind("mutex", lease_ns=ns(3), slack_ns=ns(2))
    scene.kind("mutex", "spare", role="floor")
    scene.acquire(1, 0.5, 0.9, until=3.5).extend(1, 8.8, 8.8, until=11.8)
    scene.op(F.QUIET, 9, 6, 6, named=False)
    scene.acquire(9, 17, 17.5, "fail", error="gave-up: held", hold="q")
    scene.acquire(9, 17.6, 17.7, key="spare", hold="spare")
    scene.acquire(9, 21.9, 22, hold="then")
    history = replace(scene.history(), epsilon_ns=ns(epsilon_s))
    found = check(history).verdicts["leaked-lock"].result
    assert (found == "invalid") is (expected == "invalid")


@pytest.mark.parametrize(("ask_s", "expected"), [(10.0, "valid"), (12.0, "invalid")])
def test_an_extend_that_clocks_may_explain_is_not_wrong(ask_s: float, expected: str) -> None:
    """The other one may have been granted it after the extend."""
    scene = Scene().acquire(1, 0, 1, until=3).extend(1, ask_s, ask_s + 0.1, until=ask_s + 3)
    scene.release(1, ask_s + 0.2, ask_s + 0.3)
    scene.acquire(2, 4, 8.9, until=20).release(2, 15, 15.1)
    history = replace(scene.history(), epsilon_ns=ns(1))
    assert result(history, "wrong-extend") == expected


@pytest.mark.parametrize(
    ("applied", "expected"),
    [((None, None), "unknown"), ((10.2, 10.5), "invalid"), ((0.1, 10.5), "valid")],
)
def test_calls_that_may_have_been_apart_exceed_no_rate(
    applied: tuple[float | None, float | None], expected: str
) -> None:
    scene = Scene().kind("mutex", job="rate-limit", bound=1, window_ns=ns(5))
    for n, (window, at_s) in enumerate(zip(((0, 12), (10, 11)), applied, strict=True), 1):
        at_ns = None if at_s is None else ns(at_s)
        scene.op(F.EFFECT, n, *window, named=False, applied_ns=at_ns)
    assert result(scene.history(), "rate-exceeded") == expected


@pytest.mark.parametrize(("dead", "expected"), [(True, "invalid"), (False, "unknown")])
def test_a_hold_whose_end_is_missing_proves_nothing(dead: bool, expected: str) -> None:
    """The bench records when a process of a machine is known to have ended."""
    scene = Scene().acquire(1, 0, 1)
    if dead:
        scene.death(1, 4.5)
    scene.acquire(2, 4, 4.2).release(2, 6, 7)
    history = scene.history()
    machine = np.where(history.process == history.process[0], 0, 1).astype(np.int32)
    history = replace(
        history, machine=machine, machines=("b", "a"), missing=("b",), epsilon_ns=1000
    )
    assert result(history, "double-grant") == expected


def test_an_acquire_without_a_name_belongs_to_itself_beside_named_ones() -> None:
    scene = Scene().kind("mutex", role="contended").acquire(1, 1, 2, until=30, named=False)
    scene.acquire(1, 40, 41, until=50)
    moves = [[ns(11), ns(11.1), 100.0]]
    scene.fault("clock-jump", 10, 20, "clock-beyond-lease", deciding=["redis-1"], moves=moves)
    assert Analysis.of(scene.history()).links.acquire.tolist() == [0, 1]
    assert not exposure(scene.history()).exposed


@pytest.mark.parametrize(("answered_s", "result"), [(10, "valid"), (6.5, "invalid")])
def test_an_extend_that_is_on_its_way_may_be_about_the_next_hold(
    answered_s: float, result: str
) -> None:
    """Of a client that does not name its holds: it may have shortened that one to 30 s."""
    scene = Scene().acquire(1, 0, 1, until=60, named=False)
    scene.extend(1, 3, answered_s, until=30, named=False).release(1, 5, 6, named=False)
    scene.acquire(1, 7, 8, until=100, named=False).acquire(2, 40, 41, until=90, named=False)
    assert check(scene.history()).verdicts["double-grant"].result == result


@pytest.mark.parametrize(("granted_s", "result"), [(10, "valid"), (9.5, "invalid")])
def test_who_is_granted_it_as_an_extend_is_asked_for_proves_nothing(
    granted_s: float, result: str
) -> None:
    scene = Scene().acquire(1, 2, 6, until=7).extend(1, 10, 15)
    scene.acquire(2, 8, granted_s, until=21)
    assert check(scene.history()).verdicts["wrong-extend"].result == result
