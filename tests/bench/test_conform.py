"""Each duty is tried on a lock that keeps all of them, and on one that breaks just that."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from lockbench.bench import conform, duties
from lockbench.bench.conform import Outcome, ending, tried
from lockbench.bench.duties import DUTIES, Desk, Duty, Running
from lockbench.clusters.engine.docker import EngineError
from lockbench.locks.base import (
    Acquired,
    Address,
    Deadline,
    Denied,
    Expectation,
    Extended,
    Freed,
    Granted,
    Hold,
    NoObserver,
    NotHeld,
    Observer,
    Released,
    System,
    Unknown,
)
from lockbench.results.errors import BadInput, Ending
from tests.eventually import one_of

LEASE_S = 0.8  # longer than a frozen client is given to notice
HERE = [Address("127.0.0.1", 7)]


class Service:
    """Who holds what until when, for all clients of a test."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.held: dict[str, tuple[int, int]] = {}
        self.fence = 0
        self.frozen = False

    def holder(self, key: str) -> int | None:
        found = self.held.get(key)
        return found[0] if found is not None and found[1] > time.monotonic_ns() else None


SERVICE = Service()


class Honest:
    """A client that does all that is owed."""

    def __init__(
        self, nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> None:
        self.reached = nodes == HERE
        self.closed = False

    def named(self, key: str) -> str:
        return key

    def server_ns(self, ttl_s: float) -> int:
        return int(1e9 * ttl_s)

    def promised_ns(self, ttl_s: float) -> int:
        return int(1e9 * ttl_s)

    def next_fence(self) -> int:
        SERVICE.fence += 1
        return SERVICE.fence

    def held(self) -> Denied:
        return Denied("held")

    def given_up(self, key: str, hold_id: int, ttl_s: float) -> Denied:
        return Denied("gave-up: the wait is over")

    def pause(self, wait_s: float) -> None:
        time.sleep(0.005)

    def is_free(self, key: str) -> bool:
        return SERVICE.holder(key) is None

    def late(self) -> Freed:
        return NotHeld()

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        if not self.reached:
            return Denied("no-effect: nobody listens")
        key, deadline = self.named(key), Deadline(wait_s)
        while True:
            if SERVICE.frozen:
                return Unknown("no answer")
            with SERVICE.lock:
                sent_ns = time.monotonic_ns()
                if self.is_free(key):
                    SERVICE.held[key] = (hold_id, sent_ns + self.server_ns(ttl_s))
                    until_ns = sent_ns + self.promised_ns(ttl_s)
                    return Granted(Hold(hold_id, key), self.next_fence(), sent_ns, until_ns)
            if wait_s == 0:
                return self.held()
            if deadline.over():
                return self.given_up(key, hold_id, ttl_s)
            self.pause(deadline.left_s())

    def release(self, hold: Hold) -> Freed:
        if SERVICE.frozen:
            return Unknown("no answer")
        with SERVICE.lock:
            if SERVICE.holder(hold.key) != hold.id:
                return self.late()
            del SERVICE.held[hold.key]
            return Released()

    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        with SERVICE.lock:
            if SERVICE.holder(hold.key) != hold.id:
                return NotHeld()
            sent_ns = time.monotonic_ns()
            until_ns = sent_ns + int(1e9 * ttl_s)
            SERVICE.held[hold.key] = (hold.id, until_ns)
            return Granted(hold, None, sent_ns, until_ns)

    def close(self) -> None:
        self.closed = True


def but(name: str, **does: Callable[..., object]) -> type[Honest]:
    """A client that does all that is owed but for this."""
    return type(name, (Honest,), does)


def free_by_prefix(_: Honest, key: str) -> bool:
    return all(SERVICE.holder(k) is None for k in SERVICE.held if k.startswith(key))


PromisesTooMuch = but("PromisesTooMuch", promised_ns=lambda _, ttl_s: int(1e9 * (ttl_s + 60)))
DeniesWithoutAWord = but("DeniesWithoutAWord", held=lambda _: Denied("busy"))
ReleasesTwice = but("ReleasesTwice", late=lambda _: Released())
LocksWhatIsAbove = but("LocksWhatIsAbove", named=lambda _, key: key.partition("/")[0])
LocksByPrefix = but("LocksByPrefix", is_free=free_by_prefix)
SleepsThroughItsWait = but("SleepsThroughItsWait", pause=lambda _, s: time.sleep(max(s, 0)))
OneFence = but("OneFence", next_fence=lambda _: 7)
LetsEverybodyIn = but("LetsEverybodyIn", is_free=lambda _, key: True)
# By far: a busy machine must not be taken for the rest of the promise.
EndsEarly = but("EndsEarly", promised_ns=lambda _, ttl_s: int(1e9 * (ttl_s + 30)))
NeverEnds = but("NeverEnds", server_ns=lambda _, ttl_s: int(60e9))


class RaisesInACrowd(Honest):
    """One that works for as long as few ask at once, as an optimistic transaction does."""

    inside: ClassVar[list[str]] = []

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        self.inside.append(key)
        try:
            if self.inside.count(key) > 2:
                raise WatchError("another client changed the key")
            return super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        finally:
            self.inside.remove(key)


class WatchError(Exception):
    """As libraries have them."""


class NeedsTwoTries(Honest):
    seen: ClassVar[set[str]] = set()

    def is_free(self, key: str) -> bool:
        first = key not in self.seen
        self.seen.add(key)
        return super().is_free(key) and not first


class AnswersLateOnce(Honest):
    """As on a busy machine: the first answer is too late, and what was asked for was done."""

    seen: ClassVar[set[str]] = set()

    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        answer = super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)
        first = key not in self.seen
        self.seen.add(key)
        return Unknown("timed out") if first else answer


class NeverAnswers(Honest):
    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        return Unknown("timed out")


class StaysInTheQueue(Honest):
    def given_up(self, key: str, hold_id: int, ttl_s: float) -> Denied:
        SERVICE.held[key] = (hold_id, time.monotonic_ns() + int(60e9))
        return super().given_up(key, hold_id, ttl_s)


class ExtendsNothing(Honest):
    def extend(self, hold: Hold, ttl_s: float) -> Extended:
        sent_ns = time.monotonic_ns()
        return Granted(hold, None, sent_ns, sent_ns + int(1e9 * ttl_s))


class DoesNotKnowWhatWasSent(Honest):
    def acquire(self, key: str, *, hold_id: int, ttl_s: float, wait_s: float) -> Acquired:
        if not self.reached:
            return Unknown("refused")
        return super().acquire(key, hold_id=hold_id, ttl_s=ttl_s, wait_s=wait_s)


class ClosesOnce(Honest):
    def close(self) -> None:
        if self.closed:
            raise RuntimeError("closed already")
        super().close()


class ReleasesUnheard(Honest):
    def release(self, hold: Hold) -> Freed:
        return Released() if SERVICE.frozen else super().release(hold)


class StalledBeforeItsRelease(Honest):
    """As on a machine that is too busy."""

    def release(self, hold: Hold) -> Freed:
        time.sleep(1.1 * LEASE_S)
        return super().release(hold)


class ForgetsItsHolds(Honest):
    def release(self, hold: Hold) -> Freed:
        super().release(hold)
        return NotHeld()


class Party:
    """A client in a process of its own, as far as a duty can tell: what it holds is the service's
    to end."""

    def __init__(self, desk: Desk) -> None:
        self._lock = desk.system.connect(
            HERE, timeout_s=1, ttl_s=desk.lease_s, observer=NoObserver()
        )
        self._desk = desk
        self._hold: Hold | None = None

    def acquire(self, key: str, wait_s: float) -> dict[str, Any]:
        answer = self._desk.take(self._lock, wait_s)
        self._hold = answer.hold if isinstance(answer, Granted) else None
        return {
            "said": type(answer).__name__,
            "valid_until_ns": getattr(answer, "valid_until_ns", None),
        }

    def release(self, key: str) -> str:
        assert self._hold is not None
        return type(self._lock.release(self._hold)).__name__

    def freeze(self) -> None: ...

    def thaw(self) -> None: ...

    def kill(self) -> None: ...


def party(desk: Desk) -> Party:
    return Party(desk)


class Servers:
    """A cluster that can be paused."""

    nodes = (0,)

    def pause(self, nodes: Iterable[int]) -> None:
        SERVICE.frozen = True

    def unpause(self, nodes: Iterable[int]) -> None:
        SERVICE.frozen = False

    def frozen(self, node: int) -> bool:
        return SERVICE.frozen

    def verify(self) -> None: ...


def declared(lock: type[Honest], **more: Any) -> System:
    return System(
        name="made",
        topologies=("redis",),
        family="redis",
        fence="a counter",
        waits_by="polling",
        source="this test",
        connect=lock,
        outcomes={},
        **more,
    )


def told_of(lock: type[Honest], duty: Duty, **more: Any) -> Outcome:
    servers: Any = Servers()
    running = Running(HERE, servers)
    return tried(duty, Desk(declared(lock, **more), "made", running, lease_s=LEASE_S))


def told_that(word: str, lock: type[Honest], duty: Duty, **more: Any) -> Outcome:
    """The same, where the machine may stand still for longer than a lease."""
    return one_of(lambda _: told_of(lock, duty, **more), lambda outcome: outcome.word == word)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duties, "LONG_S", 24.0)
    monkeypatch.setattr(duties, "LEASE_S", LEASE_S)
    monkeypatch.setattr(Desk, "remote", party)
    monkeypatch.setattr("tests.bench.test_conform.SERVICE", Service())


@pytest.mark.parametrize("duty", DUTIES, ids=lambda duty: duty.name)
def test_a_lock_that_does_what_it_owes_keeps_every_duty(duty: Duty) -> None:
    outcome = told_that("kept", Honest, duty)
    assert (outcome.word, outcome.why) == ("kept", "")


@pytest.mark.parametrize("lock", [AnswersLateOnce, NeverAnswers])
def test_an_answer_that_came_too_late_is_asked_for_again(lock: type[Honest]) -> None:
    """By this process and by another one; for as long as a lease may take, and no longer."""
    duty = duties.a_killed_holder_leaves_the_lock_free_after_its_lease
    expected = "kept" if lock is AnswersLateOnce else "broken"
    outcome = told_that(expected, lock, Duty(duty.__name__, duty))
    assert outcome.word == expected, outcome.why


BROKEN = (
    (PromisesTooMuch, "a_grant_is_promised_for_about_a_lease", "s are promised of 0.8 s"),
    (DeniesWithoutAWord, "a_try_is_denied_while_held", "busy"),
    (NeedsTwoTries, "a_try_of_a_free_key_is_granted", "a try of a free key: Denied"),
    (ReleasesTwice, "a_released_hold_is_not_held", "a second release of a hold: Released"),
    (LocksWhatIsAbove, "keys_do_not_touch_each_other", "a free key was not granted"),
    (LocksByPrefix, "a_key_does_not_touch_those_that_begin_with_it", "was not granted"),
    (SleepsThroughItsWait, "a_waiter_gets_it_after_the_release", "the waiter still waits"),
    (StaysInTheQueue, "a_wait_that_ran_out_leaves_nothing_behind", "a release of one's own hold"),
    (OneFence, "fences_grow", "[7, 7, 7, 7, 7, 7]"),
    (LetsEverybodyIn, "no_two_promises_overlap_under_contention", "two held it at the same time"),
    (RaisesInACrowd, "no_two_promises_overlap_under_contention", "WatchError: another client"),
    (
        EndsEarly,
        "a_frozen_holder_loses_it_after_its_promise_and_not_before",
        "before the promise ended",
    ),
    (
        ReleasesTwice,
        "a_frozen_holder_loses_it_after_its_promise_and_not_before",
        "a release of a hold that has ended: Released, not NotHeld",
    ),
    (
        EndsEarly,
        "a_killed_holder_leaves_the_lock_free_after_its_lease",
        "before the promise ended",
    ),
    (
        NeverEnds,
        "a_killed_holder_leaves_the_lock_free_after_its_lease",
        "a free key was not granted",
    ),
    (ExtendsNothing, "a_hold_lives_on_while_it_is_kept_alive", "was not denied: Granted"),
    (ForgetsItsHolds, "a_released_hold_is_not_held", "a release of one's own hold: NotHeld"),
    (ForgetsItsHolds, "a_hold_lives_on_while_it_is_kept_alive", "one's own hold: NotHeld"),
    (DoesNotKnowWhatWasSent, "a_server_that_is_not_there_has_no_effect", "Unknown"),
    (ClosesOnce, "closing_twice_and_closing_unused", "RuntimeError: closed already"),
    (ReleasesUnheard, "paused_servers_make_a_release_unknown", "servers are frozen: Released"),
)


@pytest.mark.parametrize(
    ("lock", "name", "why"), BROKEN, ids=[f"{lock.__name__}-{name}" for lock, name, _ in BROKEN]
)
def test_a_lock_that_breaks_a_duty_is_told_so(lock: type[Honest], name: str, why: str) -> None:
    (duty,) = (duty for duty in DUTIES if duty.name == name)
    outcome = one_of(lambda _: told_of(lock, duty), lambda outcome: why in outcome.why)
    assert outcome.word == "broken"
    assert why in outcome.why


@pytest.mark.parametrize(
    "name", ["a_released_hold_is_not_held", "a_hold_lives_on_while_it_is_kept_alive"]
)
def test_a_lock_is_not_accused_of_what_a_slow_machine_did(name: str) -> None:
    (duty,) = (duty for duty in DUTIES if duty.name == name)
    outcome = told_that("not tried", StalledBeforeItsRelease, duty)
    assert (outcome.word, outcome.why) == (
        "not tried",
        "the machine was too slow: the promise ended before the release",
    )


def test_every_duty_is_shown_to_be_broken_by_some_lock() -> None:
    assert {name for _, name, _ in BROKEN} == {duty.name for duty in DUTIES}


def test_what_is_not_owed_is_not_tried_and_says_why() -> None:
    duty = DUTIES[0]
    outcome = told_of(PromisesTooMuch, duty, not_owed={duty.name: "it is generous"})
    assert (outcome.word, outcome.why) == ("not owed", "it is generous")


LEAKS = {
    "client-kill": {
        "leaked-lock": Expectation("breaks", "this test", "documented-limit"),
    }
}


@pytest.mark.parametrize(
    ("lock", "name", "said", "why"),
    [
        (
            NeverEnds,
            "a_killed_holder_leaves_the_lock_free_after_its_lease",
            {"expectations": LEAKS},
            "as declared, it stays locked for ever",
        ),
        (
            ReleasesTwice,
            "a_frozen_holder_loses_it_after_its_promise_and_not_before",
            {"late_release": "Released"},
            "as declared, a release that comes too late is Released",
        ),
    ],
)
def test_what_a_lock_does_instead_as_declared_is_not_called_kept(
    lock: type[Honest], name: str, said: dict[str, Any], why: str
) -> None:
    (duty,) = (duty for duty in DUTIES if duty.name == name)
    outcome = told_that("not owed", lock, duty, **said)
    assert (outcome.word, outcome.why) == ("not owed", why)
    honest = told_that("broken", Honest, duty, **said)
    assert honest.word == "broken", "then it is not as declared"


def test_a_cluster_of_somebody_else_is_not_paused() -> None:
    duty = DUTIES[-1]
    outcome = tried(duty, Desk(declared(Honest), "made", Running(HERE, None), lease_s=LEASE_S))
    assert (outcome.word, outcome.why) == ("not tried", "the cluster belongs to another process")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["kept", "not owed"], Ending.OK),
        (["kept", "broken", "not tried"], Ending.SAFETY),
        (["kept", "not tried"], Ending.INCONCLUSIVE),
    ],
)
def test_the_ending_is_that_of_the_worst(words: list[Any], expected: Ending) -> None:
    assert ending([Outcome(DUTIES[0], word) for word in words]) == expected


def test_a_duty_that_does_not_end_is_broken_and_nothing_is_tried_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = threading.Event()

    def hang(desk: Desk) -> None:
        ended.wait(20)

    first, second = replace(DUTIES[0], hold_to=hang), DUTIES[1]
    monkeypatch.setattr(conform, "DUTIES", (first, second))
    monkeypatch.setattr(conform, "DUTY_S", 0.1)
    monkeypatch.setattr(conform, "ENDED_S", 0.1)
    monkeypatch.setattr(conform, "_ready", lambda case, say: None)
    made: Any = Stack()
    monkeypatch.setattr(conform, "_cluster", lambda case: made)
    told: list[Outcome] = []
    found = conform.conform("redis-token", told=told.append, say=print)
    ended.set()
    assert found == told
    assert [(one.word, one.why) for one in found] == [
        ("broken", "it did not end within 0.1 s"),
        ("not tried", f"“{first.sentence}” has not ended"),
    ]


def test_who_waits_for_an_image_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The image of a client, too, which its lock would build without a word."""

    def full(names: Sequence[str], *, say: Callable[[str], None]) -> None:
        say(f"building {', '.join(names)}")
        raise EngineError("building images needs 3 GB free where Docker keeps its data")

    monkeypatch.setattr("lockbench.clusters.images.ensure", full)
    said: list[str] = []
    told: list[Outcome] = []
    with pytest.raises(BadInput, match="needs 3 GB free"):
        conform.conform("redsync", told=told.append, say=said.append)
    assert said == ["building redis, toxiproxy, go-sidecar"]
    assert not told


class Stack(Servers):
    """A cluster that needs no start."""

    def __enter__(self) -> Stack:
        return self

    def __exit__(self, *_: object) -> None: ...

    def addresses(self, group: int) -> list[Address]:
        return HERE
