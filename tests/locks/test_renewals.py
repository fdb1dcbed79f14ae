"""The background renewals by themselves: when, what is told, and when not any more."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lockbench.locks.base import Extended, Granted, Hold, NotHeld, Unknown
from lockbench.locks.shared.renewals import Renewals
from tests.eventually import eventually

HOLD = Hold(1, "k")
PERIOD_S = 0.02


class Service:
    """Answers renewals as told, and remembers what its observer hears."""

    def __init__(self, answer: Callable[[Hold], Extended]) -> None:
        self.answer = answer
        self.asked: list[Hold] = []
        self.told: list[str] = []

    def renew(self, hold: Hold) -> Extended:
        self.asked.append(hold)
        return self.answer(hold)

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self.told.append(f"extended {hold.id}")

    def lost(self, hold: Hold, *, alive_ns: int | None = None) -> None:
        self.told.append(f"lost {hold.id}")


def extends(hold: Hold) -> Extended:
    return Granted(hold, None, time.monotonic_ns(), time.monotonic_ns() + 10**9)


@contextmanager
def renewing(answer: Callable[[Hold], Extended]) -> Iterator[tuple[Renewals, Service]]:
    service = Service(answer)
    renewals = Renewals(service.renew, service, period_s=PERIOD_S)
    yield renewals, service
    renewals.close(5)


def test_a_hold_is_renewed_round_after_round() -> None:
    with renewing(extends) as (renewals, service):
        renewals.add(HOLD)
        eventually(lambda: len(service.told) >= 3)
        assert set(service.told) == {"extended 1"}


def test_a_loss_is_told_once_and_ends_it() -> None:
    with renewing(lambda _: NotHeld()) as (renewals, service):
        renewals.add(HOLD)
        eventually(lambda: service.told)
        renewals.add(Hold(2, "k"))
        eventually(lambda: len(service.told) == 2)
        assert service.told == ["lost 1", "lost 2"]
        assert service.asked.count(HOLD) == 1


def test_an_unknown_answer_changes_nothing_and_is_asked_again() -> None:
    with renewing(lambda _: Unknown("?")) as (renewals, service):
        renewals.add(HOLD)
        eventually(lambda: len(service.asked) >= 3)
        assert not service.told


@pytest.mark.parametrize(("answer", "told"), [(extends, ["extended 1"]), (lambda _: NotHeld(), [])])
def test_what_is_under_way_when_the_holder_lets_go(
    answer: Callable[[Hold], Extended], told: list[str]
) -> None:
    go = threading.Event()

    def slow(hold: Hold) -> Extended:
        go.wait(10)
        return answer(hold)

    with renewing(slow) as (renewals, service):
        renewals.add(HOLD)
        eventually(lambda: service.asked)
        renewals.discard(HOLD)
        go.set()
        renewals.close(5)
        assert service.told == told
        assert service.asked == [HOLD]


def test_nothing_is_renewed_after_the_end() -> None:
    with renewing(extends) as (renewals, service):
        renewals.close(5)
        renewals.add(HOLD)
        time.sleep(3 * PERIOD_S)
        assert not service.asked
