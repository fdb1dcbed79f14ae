"""``queue-order``: who was overtaken though its place was certain is found; asking first proves
nothing, and who may have lost its place accuses nobody."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from lockbench.bench.judge import Expected, judge
from lockbench.checker.check import check
from lockbench.history.op import F
from lockbench.locks.base import Granted, NoObserver
from lockbench.locks.redis.fair import KEPT_NS, RedisFair
from lockbench.locks.registry import find
from tests.checker.scenes import Scene


def placed(s: Scene, client: int, at: float, hold: str) -> Scene:
    return s.op(F.QUEUED, client, at, at, hold=hold)


def hold(
    s: Scene, client: int, asked: float, got: float, over: float, *, lasts: float = 10
) -> Scene:
    s.acquire(client, asked, got, until=got + lasts, hold=f"h{client}")
    return s.release(client, over, over + 0.1, hold=f"h{client}")


def result(s: Scene) -> str | None:
    found = check(s.history()).verdicts.get("queue-order")
    return None if found is None else found.result


def holder() -> Scene:
    """Client 1 holds from 1 to 5; client 2 waits from 2 on."""
    return hold(Scene(), 1, 0, 1, 5)


def test_an_overtaken_waiter_is_found() -> None:
    s = placed(holder(), 2, 2.5, "h2")
    hold(hold(s, 2, 2, 8, 9), 3, 3, 6, 7)
    assert result(s) == "invalid"
    found = check(s.history()).verdicts["queue-order"]
    assert "client 3 asked at 3.000 s" in found.reason
    assert [item["what"] for item in found.evidence] == ["operation", "grant", "grant"]


def test_who_is_served_in_order_is_acquitted() -> None:
    s = placed(holder(), 2, 2.5, "h2")
    assert result(hold(hold(s, 2, 2, 6, 7), 3, 3, 8, 9)) == "valid"


def asked_first_without_a_place(s: Scene) -> None:
    hold(hold(s, 2, 2, 8, 9), 3, 3, 6, 7)


def placed_after_the_other_asked(s: Scene) -> None:
    hold(hold(placed(s, 2, 3.5, "h2"), 2, 2, 8, 9), 3, 3, 6, 7)


def lost_its_place_and_took_another(s: Scene) -> None:
    placed(placed(s, 2, 2.5, "h2"), 2, 4, "h2")
    hold(hold(s, 2, 2, 8, 9), 3, 3, 6, 7)


def answered_late(s: Scene) -> None:
    """Client 2 was granted first and held until its lease ended; its answer came after all."""
    placed(s, 2, 2.5, "h2").acquire(2, 2, 9, until=5.9, hold="h2")
    hold(s, 3, 3, 6, 7)


def gave_up(s: Scene) -> None:
    placed(s, 2, 2.5, "h2").acquire(2, 2, 8, "fail", error="gave-up: held", hold="h2")
    hold(s, 3, 3, 6, 7)


def nobody_knows_whether(s: Scene) -> None:
    placed(s, 2, 2.5, "h2").acquire(2, 2, None, "info", error="TimeoutError", hold="h2")
    hold(s, 3, 3, 6, 7)


def two_hold_at_once(s: Scene) -> None:
    """Then the order of two grants cannot be told by their holds."""
    hold(hold(placed(s, 2, 2.5, "h2"), 2, 2, 8, 9), 3, 3, 6, 7)
    hold(s, 4, 3, 6.5, 7)


@pytest.mark.parametrize(
    "course",
    [
        asked_first_without_a_place,
        placed_after_the_other_asked,
        lost_its_place_and_took_another,
        gave_up,
        nobody_knows_whether,
        two_hold_at_once,
    ],
)
def test_what_proves_nothing_is_absent(course: Callable[[Scene], None]) -> None:
    scene = holder()
    course(scene)
    assert result(scene) is None


def test_an_answer_that_was_late_accuses_nobody() -> None:
    scene = holder()
    answered_late(scene)
    assert result(scene) == "valid"


def test_clocks_that_differ_hide_and_never_accuse() -> None:
    s = placed(holder(), 2, 2.5, "h2").epsilon(0.3)
    assert result(hold(hold(s, 2, 2, 8, 9), 3, 3, 6, 7)) is None


def test_no_false_alarm_in_a_queue_with_delays() -> None:
    """A correct server: places in the order of arrival, answers that take their time."""
    draws = random.Random(1)
    for _ in range(200):
        s, free = Scene(), 0.0
        waiting = []
        for client in range(1, 12):
            asked = client * draws.uniform(0.1, 1.0)
            waiting.append((asked + draws.expovariate(2), asked, client))
        for arrived, asked, client in sorted(waiting):
            granted = max(arrived, free)
            told = max(granted, arrived) + draws.uniform(0.001, 0.3)
            free = told + draws.uniform(0.05, 0.5)
            name = f"h{client}"
            if granted > arrived:
                placed(s, client, min(told, arrived + draws.uniform(0, 2)), name)
            s.acquire(client, asked, told, until=granted + 99, hold=name)
            s.release(client, free, free + 0.01, hold=name)
        assert result(s) in ("valid", None)


class Seen(NoObserver):
    """An observer that keeps the places."""

    def __init__(self) -> None:
        self.places: list[int] = []

    def queued(self, key: str, hold_id: int, *, acknowledged_ns: int) -> None:
        self.places.append(acknowledged_ns)


class Answers:
    """In place of the server: what each poll answers, and how late it is."""

    def __init__(self, clock: list[int], *answers: tuple[int, int]) -> None:
        self._clock, self._answers = clock, list(answers)

    sent_ns = 0

    def open(self) -> None:
        """Always open."""

    def run(self, *_: object) -> int:
        late_ns, before = self._answers.pop(0)
        self.sent_ns = self._clock[0]
        self._clock[0] += late_ns
        return before


@pytest.mark.parametrize(
    ("answers", "places"),
    [
        ([(0, 0)], 0),
        ([(1, 1), (1, 1), (1, 0)], 1),
        # Seen at the sending of a slow poll or at its answer: the next one proves no more either.
        ([(1, 1), (KEPT_NS, 1), (1, 1), (1, 0)], 3),
        ([(1, 1), (KEPT_NS, 0)], 2),
    ],
)
def test_a_place_is_told_again_where_it_may_have_been_lost(
    monkeypatch: pytest.MonkeyPatch, answers: list[tuple[int, int]], places: int
) -> None:
    clock = [10**9]
    monkeypatch.setattr("lockbench.locks.redis.fair.time.monotonic_ns", lambda: clock[0])
    monkeypatch.setattr("lockbench.locks.redis.fair.time.sleep", lambda _: None)
    seen = Seen()
    monkeypatch.setattr(RedisFair, "link", lambda *_: Answers(clock, *answers))
    lock = RedisFair([], timeout_s=1, ttl_s=9, observer=seen)
    assert isinstance(lock.acquire("k", hold_id=1, ttl_s=9, wait_s=5), Granted)
    assert len(seen.places) == places


def test_the_order_is_expected_where_it_is_promised() -> None:
    def word(lock: str, fault: str) -> str:
        return Expected(find(lock), (fault,)).of("queue-order").expected

    assert word("redis-fair", "none") == "holds"
    assert word("redis-fair", "partition-drop") == "holds"
    assert word("redis-fair", "wipe") == "may-break"
    assert word("redis-token", "none") == "n/a"
    found = judge(
        Expected(find("redis-fair"), ("none",)),
        {"double-grant": "valid", "queue-order": "invalid"},
        exposed=True,
        exposure="",
        failure=None,
        required=("double-grant",),
    )
    assert found.word == "worse than expected"


def test_who_enters_again_overtakes_nobody() -> None:
    s = Scene().acquire(1, 0, 1, hold="h1")
    placed(s, 2, 2.5, "h2").acquire(2, 2, 8, hold="h2").acquire(1, 3, 4, hold="again")
    s.release(1, 5, 6, hold="again").release(1, 6.5, 7, hold="h1").release(2, 9, 10, hold="h2")
    s.kind("reentrant")
    assert result(s) is None
    s.kind("mutex")
    assert check(s.history()).verdicts["double-grant"].result == "invalid"


@pytest.mark.parametrize(
    ("lost_at", "expected"), [(5.5, "valid"), (7.0, "invalid"), (None, "invalid")]
)
def test_a_hold_that_was_lost_before_the_other_was_granted_did_not_stand(
    lost_at: float | None, expected: str
) -> None:
    """Its own answer was on the way when client 3 was granted the key at 6."""
    s = placed(holder(), 2, 2.5, "h2")
    hold(hold(s, 2, 2, 8, 9), 3, 3, 6, 7)
    if lost_at is not None:
        s.lost(2, lost_at, hold="h2")
    assert result(s) == expected
