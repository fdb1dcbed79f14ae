"""Two locks of one name: what the control lets in, and what the other keeps out. What the other
makes of the answers of its two is shown by locks that answer as they are told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from lockbench.bench.duties import LEASE_S
from lockbench.clusters.hybrid import HybridCluster
from lockbench.locks.base import (
    Acquired,
    Address,
    Denied,
    Freed,
    Granted,
    Hold,
    Lock,
    NoObserver,
    NotHeld,
    Released,
    Unknown,
    new_hold_id,
)
from lockbench.locks.hybrid.redis_confirmed_by_zookeeper import HybridRedisConfirmedByZooKeeper
from tests.locks.asking import Room

A_MAJORITY = (1, 3, 5)


@dataclass
class Told:
    """A lock that answers as it is told and notes what it was asked."""

    acquired: Acquired
    freed: Freed
    asked: list[str]
    ttl_s: float = 0

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        self.asked.append("acquire")
        self.ttl_s = ttl_s
        return self.acquired

    def release(self, hold: Hold) -> Freed:
        self.asked.append("release")
        return self.freed

    def close(self) -> None:
        self.asked.append("close")


def told(filter_says: Acquired, lock_says: Acquired) -> tuple[Lock, Told, Told]:
    """The confirmed lock with both of its locks replaced; its nodes refuse every connection."""
    hybrid = HybridRedisConfirmedByZooKeeper(
        [Address("127.0.0.1", 9)] * 8, timeout_s=0.2, ttl_s=LEASE_S, observer=NoObserver()
    )
    hybrid.close()
    first, second = Told(filter_says, NotHeld(), []), Told(lock_says, Released(), [])
    hybrid._redlock, hybrid._zookeeper = first, second  # type: ignore[assignment]
    return hybrid, first, second


def granted(fence: int, until_ns: int) -> Granted:
    return Granted(Hold(1, "k", f"hold-{fence}"), fence, until_ns - 5, until_ns)


@pytest.mark.parametrize("reason", ["held", "gave-up: granted by 2, refused by 3"])
def test_who_is_refused_by_the_filter_does_not_ask_further(reason: str) -> None:
    hybrid, _, lock = told(Denied(reason), granted(7, 100))
    assert hybrid.acquire("k", hold_id=1, ttl_s=1, wait_s=0) == Denied(reason)
    assert lock.asked == []


@pytest.mark.parametrize(
    "filter_says",
    [
        Denied("no-effect: no node is connected"),
        Denied("gave-up: no majority answered"),
        Unknown("3 may have granted"),
    ],
)
def test_a_filter_that_does_not_answer_lets_pass(filter_says: Acquired) -> None:
    hybrid, first, lock = told(filter_says, granted(7, 100))
    answer = hybrid.acquire("k", hold_id=1, ttl_s=1, wait_s=0)
    assert isinstance(answer, Granted)
    assert isinstance(hybrid.release(answer.hold), Released)
    assert (first.asked, lock.asked) == (["acquire"], ["acquire", "release"])
    hybrid, _, _ = told(filter_says, Denied("held"))
    assert hybrid.acquire("k", hold_id=1, ttl_s=1, wait_s=0) == Denied("held")


def test_a_refusal_is_polled_until_the_wait_is_over() -> None:
    hybrid, first, _ = told(Denied("held"), granted(7, 100))
    assert hybrid.acquire("k", hold_id=1, ttl_s=1, wait_s=0.2) == Denied("gave-up: held")
    assert len(first.asked) > 1


@pytest.mark.parametrize("lock_says", [Denied("held"), Unknown("create: NoAnswerError")])
def test_the_lock_has_the_last_word(lock_says: Acquired) -> None:
    hybrid, first, _ = told(granted(1, 50), lock_says)
    assert hybrid.acquire("k", hold_id=1, ttl_s=1, wait_s=0) == lock_says
    assert first.asked == ["acquire", "release"]


def test_promise_fence_and_release_are_the_locks() -> None:
    hybrid, first, lock = told(granted(1, 50), granted(7, 100))
    answer = hybrid.acquire("k", hold_id=1, ttl_s=3, wait_s=0)
    assert (first.ttl_s, lock.ttl_s) == (1, 3)
    assert isinstance(answer, Granted)
    assert (answer.fence, answer.sent_ns, answer.valid_until_ns) == (7, 95, 100)
    assert isinstance(hybrid.release(answer.hold), Released)
    assert first.asked == lock.asked == ["acquire", "release"]


@pytest.fixture
def both(room: Callable[[str], Room]) -> Room:
    made = room("redlock-zookeeper")
    made.ttl_s = 30.0  # longer than a test
    return made


@pytest.mark.docker
def test_contention_alone_lets_two_in(both: Room) -> None:
    one, two, three = (both.client("hybrid-redlock-else-zookeeper") for _ in range(3))
    first, second = both.granted(one, 5), both.granted(two, 5)
    assert isinstance(both.take(three, 0), Denied)
    assert isinstance(one.release(first.hold), Released)
    assert isinstance(one.release(first.hold), NotHeld)
    assert isinstance(two.release(second.hold), Released)


@pytest.mark.docker
def test_a_filter_that_forgot_lets_nobody_in(both: Room) -> None:
    one, two = (both.client("hybrid-redis-confirmed-by-zookeeper") for _ in range(2))
    first = both.granted(one, 5)
    assert isinstance(one, HybridRedisConfirmedByZooKeeper)
    one._redlock.release(first.hold.handle.filter)
    assert isinstance(both.take(two, 0), Denied)
    assert isinstance(one.release(first.hold), Released)
    assert isinstance(both.take(two, 5), Granted)


@pytest.mark.docker
def test_a_majority_that_was_wiped_lets_in_no_further_than_the_filter(both: Room) -> None:
    servers = both.running.cluster
    if not isinstance(servers, HybridCluster):
        pytest.skip("another process has started the servers")
    one, two = (both.client("hybrid-redis-confirmed-by-zookeeper") for _ in range(2))

    def pass_filter(lock: Lock, wait_s: float) -> Acquired:
        assert isinstance(lock, HybridRedisConfirmedByZooKeeper)
        key = f"{both.key}-for-long"
        return lock._redlock.acquire(key, hold_id=new_hold_id(), ttl_s=60, wait_s=wait_s)

    assert isinstance(both.take(one, 5), Granted)
    assert isinstance(pass_filter(one, 10), Granted)
    assert isinstance(pass_filter(two, 0.5), Denied)
    servers.kill(A_MAJORITY)
    servers.wipe(A_MAJORITY)
    servers.restart(A_MAJORITY)
    assert isinstance(pass_filter(two, 10), Granted)
    assert both.take(two, 1) == Denied("gave-up: others were before it")
