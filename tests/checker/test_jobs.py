"""Every verdict of a job: healthy, with the planted defect, and its nearest healthy neighbour."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lockbench.checker.check import check
from lockbench.checker.jobs import VERDICTS_OF
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import JOBS, F
from tests.checker.scenes import S, Scene, ns


def scene(job: str, **more: Any) -> Scene:
    return Scene().kind("mutex", job=job, **more)


def effect(
    scene: Scene, client: int, at: float, thing: int, answer: str = "ok", **more: Any
) -> Scene:
    applied = None if answer == "fail" else ns(at)
    return scene.op(
        F.EFFECT, client, at - 0.001, at + 0.001, answer, version=thing, applied_ns=applied, **more
    )


def confirmed(scene: Scene, client: int, at: float, thing: int) -> Scene:
    return scene.op(F.JOB, f"job-{client}", at - 0.5, at, version=thing, named=False)


def result(scene: Scene, verdict: str) -> str:
    found = check(scene.history()).verdicts.get(verdict)
    return "absent" if found is None else found.result


def test_every_job_has_a_verdict() -> None:
    assert set(VERDICTS_OF) == JOBS


def test_units_sold_one_after_the_other() -> None:
    sold = scene("inventory").write(1, 1, 0, 1).write(2, 2, 1, 2).write(1, 3, 2, 3)
    assert result(sold, "oversold") == "valid"
    assert result(scene("inventory").read(1, 1, 0), "oversold") == "absent"


def test_a_unit_with_two_buyers() -> None:
    """Both read three units; then one sale builds on each of the two states."""
    sold = scene("inventory").write(1, 1, 0, 1).write(2, 2, 0, 2)
    sold.write(3, 3, 1, 3).write(4, 4, 2, 4)
    found = check(sold.history()).verdicts["oversold"]
    assert found.result == "invalid"
    assert "unit 0 of k0 was sold to client 1 and to client 2" in found.reason
    assert "4 sales of 2 units" in found.reason
    assert len(found.evidence) == 2


def test_a_sale_on_a_state_that_nobody_made_is_not_judged() -> None:
    assert result(scene("inventory").write(1, 1, 0, 1).write(2, 2, 5, 6), "oversold") == "unknown"


def test_a_sale_whose_buyer_was_killed_counts_by_the_log() -> None:
    sold = scene("inventory").write(1, 1, 0, 1)
    sold.op(F.WRITE, 2, 1.5, None, "info", version=0, value=2, applied_ns=ns(1.6))
    assert result(sold, "oversold") == "invalid"


def test_charges() -> None:
    paid = scene("payment")
    for order in range(3):
        effect(paid, order, order + 1, order)
        confirmed(paid, order, order + 1.5, order)
    assert result(paid, "charged-twice") == "valid"
    assert result(paid, "lost-charge") == "valid"
    effect(paid, 7, 9, 1, "fail", error="no-effect: done already")
    assert result(paid, "charged-twice") == "valid"
    effect(paid, 8, 10, 1)
    found = check(paid.history()).verdicts["charged-twice"]
    assert found.result == "invalid"
    assert "charge 1 of k0 was done by client 1 at" in found.reason
    confirmed(paid, 9, 12, 5)
    assert result(paid, "lost-charge") == "invalid"
    jobs = check(paid.history()).measurements["jobs"]
    assert isinstance(jobs, dict)
    assert jobs["payment"]["lost"] == 1


def test_the_same_order_of_another_account_is_another_charge() -> None:
    paid = scene("payment").kind("mutex", key="k1", job="payment")
    effect(paid, 1, 1, 4, key="k0")
    effect(paid, 2, 2, 4, key="k1")
    assert result(paid, "charged-twice") == "valid"


def test_an_unknown_charge_counts_only_where_it_was_applied() -> None:
    paid = effect(scene("payment"), 1, 1, 0)
    paid.op(F.EFFECT, 2, 2, None, "info", version=0)
    assert result(paid, "charged-twice") == "valid"
    paid.op(F.EFFECT, 3, 3, None, "info", version=0, applied_ns=ns(3))
    assert result(paid, "charged-twice") == "invalid"


def test_what_has_no_number_is_not_the_same_thing() -> None:
    run = scene("cron")
    for client in (1, 2):
        run.op(F.EFFECT, client, client, client + 0.1, applied_ns=ns(client))
    assert result(run, "ran-twice") == "unknown"
    assert result(effect(run, 3, 3, 11), "ran-twice") == "unknown"
    assert result(effect(run, 4, 4, 11), "ran-twice") == "invalid"


def untimed(scene: Scene, client: int, begin: float, end: float, thing: int) -> Scene:
    return scene.op(F.EFFECT, client, begin, end, version=thing)


@pytest.mark.parametrize(
    ("job", "more", "verdict"),
    [
        ("leader", {}, "two-leaders"),
        ("gate", {"permits": 1}, "over-capacity"),
        ("rate-limit", {"bound": 2, "window_ns": 2 * S}, "rate-exceeded"),
    ],
)
def test_without_the_times_of_the_resource_only_windows_apart_are_in_order(
    job: str, more: dict[str, int], verdict: str
) -> None:
    # Either client may have gone first; as they were answered, the first one came back.
    beside = untimed(scene(job, **more), 1, 0, 3, 1)
    untimed(untimed(untimed(beside, 2, 1, 3.5, 1), 1, 2, 4, 2), 2, 3.2, 4.5, 2)
    assert result(beside, verdict) == "unknown"
    apart = scene(job, **more)
    for at, client, thing in ((0, 1, 1), (0.2, 2, 1), (0.4, 1, 2), (0.6, 2, 2)):
        untimed(apart, client, at, at + 0.1, thing)
    assert result(apart, verdict) == "invalid"


def test_a_run_that_was_started_twice() -> None:
    run = effect(effect(scene("cron"), 1, 1, 10), 2, 2, 11)
    assert result(run, "ran-twice") == "valid"
    assert result(effect(run, 3, 3, 11), "ran-twice") == "invalid"


def test_a_leader_that_acts_after_the_next_one() -> None:
    led = scene("leader")
    for at, client in ((1, 1), (2, 1), (3, 2), (4, 2)):
        effect(led, client, at, at)
    assert result(led, "two-leaders") == "valid"
    again = effect(led, 1, 5, 5, hold="h1 again")
    assert result(again, "two-leaders") == "valid"
    assert result(effect(again, 2, 6, 6), "two-leaders") == "invalid"


@pytest.mark.parametrize(("last", "expected"), [(2.6, "valid"), (2.4, "invalid")])
def test_calls_in_any_window(last: float, expected: str) -> None:
    called = scene("rate-limit", bound=3, window_ns=S)
    for number, at in enumerate((0.5, 1.5, 1.9, 2.0, last)):
        effect(called, 1, at, number)
    assert result(called, "rate-exceeded") == expected


@pytest.mark.parametrize(("third", "expected"), [(3.5, "valid"), (2.5, "invalid")])
def test_more_inside_than_permitted(third: float, expected: str) -> None:
    gate = Scene().kind("semaphore", permits=2, job="gate")
    for client, enters, leaves in ((1, 1, 3), (2, 2, 4), (3, third, 5)):
        effect(gate, client, enters, 1)
        effect(gate, client, leaves, 2)
    assert result(gate, "over-capacity") == expected
    jobs = check(gate.history()).measurements["jobs"]
    assert isinstance(jobs, dict)
    assert jobs["gate"] == jobs["gate"] | {
        "visits": 3,
        "most_inside": 3 if expected == "invalid" else 2,
    }


def test_stale_charges_are_scored_under_every_policy() -> None:
    """Client 1 is frozen between its read and its charge; client 2 charges the same order."""
    paid = scene("payment").acquire(1, 0, 1, until=5, fence=1).read(1, 1.5, 0)
    paid.acquire(2, 2, 6, until=12, fence=2).read(2, 6.5, 0)
    effect(paid, 2, 6.6, 0).write(2, 6.7, 0, 1, fence=2).release(2, 7, 7.1)
    effect(paid, 1, 8, 0).write(1, 8.1, 0, 2, fence=1)
    report = check(paid.history())
    assert report.verdicts["charged-twice"].result == "invalid"
    assert report.verdicts["stale-holder"].result == "invalid"
    scored = report.measurements["fencing"]
    assert isinstance(scored, dict)
    assert scored["unfenced"]["stale_attempted"] == 2
    assert scored["unfenced"]["repeated_effects"] == 1
    assert scored["unfenced"]["lost_updates"] == 1
    for policy in ("fence-on-write", "fence-on-read-and-write", "random-token-cas"):
        assert scored[policy]["stale_refused"] == 2, policy
        assert scored[policy]["repeated_effects"] == 0, policy


def test_acts_of_a_leader_are_no_repetitions_and_its_read_leaves_its_token() -> None:
    led = scene("leader")
    for client in (1, 2):
        t = 10.0 * client
        led.acquire(client, t, t + 1, until=t + 9, fence=client).read(client, t + 2, 0)
        effect(effect(led, client, t + 3, 0), client, t + 4, 1).release(client, t + 5, t + 6)
    scored = check(led.history()).measurements["fencing"]
    assert isinstance(scored, dict)
    for counts in scored.values():
        assert set(counts.values()) == {0}


def test_a_job_stands_in_the_file(tmp_path: Path) -> None:
    called = effect(scene("rate-limit", bound=3, window_ns=S), 1, 1, 7)
    confirmed(called, 1, 2, 7)
    history = called.history()
    write_jsonl(history, tmp_path / "h.jsonl")
    again = read_jsonl(tmp_path / "h.jsonl")
    assert again.objects == history.objects
    assert again.version.tolist() == history.version.tolist()
    assert check(again).verdicts["rate-exceeded"].result == "valid"


def test_an_unknown_job_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "h.jsonl"
    file.write_text(json.dumps({"history": 1, "objects": {"k0": {"job": "gardening"}}}) + "\n")
    with pytest.raises(UnreadableHistory, match="unknown job 'gardening'"):
        read_jsonl(file)
