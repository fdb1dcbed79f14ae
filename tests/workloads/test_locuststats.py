"""What Locust is told in batches: all of it, in order, and not much later."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import gevent
import pytest

from lockbench.workloads.locuststats import LATE_S, LockOutcome, LocustStats

# In a process of its own: Locust monkey-patches.
BOTH_WAYS = """
import json
from locust.env import Environment
from lockbench.workloads.locuststats import LocustStats

found = []
heard = []
for ours, listener in ((True, None), (False, None), (True, lambda **event: heard.append(event))):
    environment = Environment()
    environment.create_local_runner()
    if listener:
        environment.events.request.add_listener(listener)
    stats = LocustStats(environment, "redis-token", ours=ours)
    for number in range(300):
        f = "release" if number % 3 else "acquire"
        end_ns = number * 7_000_000
        stats.untold.append((f, 0, end_ns, "not-held" if number % 50 == 1 else None))
        if number % 70 == 0:
            stats.flush()
    stats.flush()
    known = environment.stats
    rows = [known.total, *(known.entries[key] for key in sorted(known.entries))]
    fields = "name method num_requests num_failures total_response_time min_response_time"
    found.append([
        [getattr(row, field) for field in fields.split()]
        + [row.max_response_time, sorted(row.response_times.items()), row.fail_ratio]
        for row in rows
    ] + [sorted(error.occurrences for error in known.errors.values())])
found.append([len(heard), sum(event["response_time"] for event in heard)])
print(json.dumps(found))
"""
PATIENCE_S = 500 * LATE_S


class Listening:
    """Locust's hook of request events, as far as it is used here."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []

    def fire(self, **event: Any) -> None:
        self.heard.append(event)


@pytest.fixture
def hook() -> Listening:
    return Listening()


@pytest.fixture
def stats(hook: Listening) -> LocustStats:
    environment: Any = SimpleNamespace(events=SimpleNamespace(request=hook))
    return LocustStats(environment, "redis-token", ours=False)


def test_everything_is_told_in_order(stats: LocustStats, hook: Listening) -> None:
    for number in range(100):
        stats.untold.append(("acquire", 0, number * 1_000_000, None))
    stats.flush()
    assert [event["response_time"] for event in hook.heard] == list(range(100))
    assert {event["name"] for event in hook.heard} == {"redis-token"}


def test_an_event_says_when_its_operation_began(stats: LocustStats, hook: Listening) -> None:
    before_s, began_ns, after_s = time.time(), time.monotonic_ns(), time.time()
    stats.untold.append(("acquire", began_ns, began_ns + 2_000_000, None))
    stats.flush()
    assert hook.heard[0]["response_time"] == 2.0
    assert before_s - 0.5 <= hook.heard[0]["start_time"] <= after_s + 0.5


def test_nobody_has_to_ask_for_it(stats: LocustStats, hook: Listening) -> None:
    stats.untold.append(("release", 0, 1_500_000, "not-held"))
    end = time.monotonic() + PATIENCE_S
    while not hook.heard and time.monotonic() < end:
        gevent.sleep(LATE_S / 10)
    (event,) = hook.heard
    assert isinstance(event["exception"], LockOutcome)
    assert str(event["exception"]) == "not-held"


def test_a_listener_that_raises_loses_nothing_of_the_others(
    stats: LocustStats, hook: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Locust's StopUser does, when a listener of somebody's own raises it."""
    heard = hook.fire

    def stop(**event: Any) -> None:
        heard(**event)
        if event["response_time"] == 1:
            raise StopIteration

    monkeypatch.setattr(hook, "fire", stop)
    for number in range(4):
        stats.untold.append(("acquire", 0, number * 1_000_000, None))
    with pytest.raises(StopIteration):
        stats.flush()
    stats.flush()
    assert [event["response_time"] for event in hook.heard] == [0, 1, 2, 3]


def test_added_or_fired_the_statistics_are_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BOTH_WAYS], stdout=subprocess.PIPE, check=True, text=True
    )
    added, fired, listened, heard = json.loads(done.stdout)
    assert added == fired == listened
    total, acquires, releases, errors = added
    assert (total[2], acquires[2], releases[2]) == (300, 100, 200)
    assert sum(errors) == total[3] == 6
    assert heard == [300, sum(7 * number for number in range(300))], "in a bench, too"


def test_a_listener_that_raises_ends_no_telling(
    stats: LocustStats, hook: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = hook.fire

    def stop(**event: Any) -> None:
        heard(**event)
        raise StopIteration

    monkeypatch.setattr(hook, "fire", stop)
    for number in range(3):
        stats.untold.append(("acquire", 0, number * 1_000_000, None))
    end = time.monotonic() + PATIENCE_S
    while len(hook.heard) < 3 and time.monotonic() < end:
        gevent.sleep(LATE_S / 10)
    assert [event["response_time"] for event in hook.heard] == [0, 1, 2]
