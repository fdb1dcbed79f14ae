"""The process that measures for ``perf.locks``.

``python -m gevent.monkey --module perf.recipe LOCK NODES`` prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gevent

from lockbench.locks.bare import KEY, TIMEOUT_S, TTL_S, WAIT_S
from lockbench.locks.base import BACKOFFS, Address, Granted, Lock, NoObserver, new_hold_id
from lockbench.locks.redis import redlock
from lockbench.locks.redis.link import Link
from lockbench.locks.redis.redlock_nodes import Question
from lockbench.locks.registry import find
from perf.bare import bare_cycle

PAIRS, TURN_S, CYCLES_MIN = 15, 0.1, 10
ACQUIRES = 2000
CLIENTS, HOLD_S, CONTEND_S = 8, 0.005, 4.0


def figures_of(name: str, nodes: Sequence[Address]) -> dict[str, Any]:
    """Everything about one lock, as JSON values."""
    lock = connected(name, nodes)
    with bare_cycle(name, nodes) as bare:
        found: dict[str, Any] = {"pairs": pairs(lambda: cycle(lock), bare)}
    if name == "redlock":
        found |= third_answers(lock)
    if name == "redis-token":
        found["waiting"] = [waiting(backoff, nodes) for backoff in BACKOFFS]
    lock.close()
    return found


def connected(name: str, nodes: Sequence[Address]) -> Lock:
    """A client that has held the lock once."""
    lock = find(name).connect(nodes, timeout_s=TIMEOUT_S, ttl_s=TTL_S, observer=NoObserver())
    granted = lock.acquire(KEY, hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=10)
    assert isinstance(granted, Granted), granted
    lock.release(granted.hold)
    return lock


def cycle(lock: Lock) -> None:
    """Acquire and release of a free key."""
    granted = lock.acquire(KEY, hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=WAIT_S)
    assert isinstance(granted, Granted), granted
    lock.release(granted.hold)


def pairs(recipe: Callable[[], None], bare: Callable[[], None]) -> list[tuple[float, float]]:
    """Microseconds of CPU that a cycle takes this process: bare and in the recipe, in turns of as
    many cycles as the bare commands manage in ``TURN_S``."""
    begin = time.monotonic()
    for _ in range(CYCLES_MIN):
        bare()
    cycles = max(CYCLES_MIN, int(CYCLES_MIN * TURN_S / (time.monotonic() - begin)))
    found = []
    for pair in range(PAIRS + 1):
        spent_us = []
        for run in (bare, recipe):
            begin_ns = time.process_time_ns()
            for _ in range(cycles):
                run()
            spent_us.append((time.process_time_ns() - begin_ns) / cycles / 1e3)
        if pair:  # the first warms up
            found.append((spent_us[0], spent_us[1]))
    return found


class Stamped(dict[int, Any]):
    """Answers by node, and when each was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_ns: list[int] = []

    def __setitem__(self, node: int, answer: Any) -> None:
        self.read_ns.append(time.monotonic_ns())
        super().__setitem__(node, answer)


def third_answers(lock: Lock) -> dict[str, list[float]]:
    """Milliseconds of each acquire, and from its beginning to the third answer to it."""
    asked: list[Stamped] = []

    def stamping(*command: str | int) -> Question:
        question = Question(*command)
        question.answers = Stamped()
        asked.append(question.answers)
        return question

    setattr(redlock, "Question", stamping)  # noqa: B010 - mypy: not this module's to assign
    acquires, thirds = [], []
    try:
        for _ in range(ACQUIRES):
            asked.clear()
            begin = time.monotonic_ns()
            granted = lock.acquire(KEY, hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=WAIT_S)
            end = time.monotonic_ns()
            assert isinstance(granted, Granted), granted
            acquires.append((end - begin) / 1e6)
            thirds.append((asked[0].read_ns[2] - begin) / 1e6)
            lock.release(granted.hold)
            gevent.sleep(0.001)
    finally:
        setattr(redlock, "Question", Question)  # noqa: B010
    return {"acquire": acquires, "third": thirds}


def waiting(backoff: str, nodes: Sequence[Address]) -> list[str]:
    """One row of the table on waiting."""
    waits: list[float] = []
    grants = [0] * CLIENTS
    end = time.monotonic() + CONTEND_S
    counter = Link(nodes[0], timeout_s=TIMEOUT_S)
    counter.open()
    counter.call("CONFIG", "RESETSTAT")

    def work(number: int) -> None:
        lock = find(f"redis-token:backoff={backoff}").connect(
            nodes, timeout_s=TIMEOUT_S, ttl_s=TTL_S, observer=NoObserver()
        )
        while time.monotonic() < end:
            begin = time.monotonic()
            granted = lock.acquire(KEY, hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=CONTEND_S)
            if isinstance(granted, Granted):
                waits.append((time.monotonic() - begin) * 1e3)
                grants[number] += 1
                gevent.sleep(HOLD_S)
                lock.release(granted.hold)
                gevent.sleep(2 * HOLD_S)
        lock.close()

    gevent.joinall([gevent.spawn(work, number) for number in range(CLIENTS)])
    tries = next(_calls(counter, "set"), 0)
    counter.close()
    waits.sort()
    jain = sum(grants) ** 2 / (CLIENTS * sum(n * n for n in grants))
    return [
        backoff,
        f"{len(waits) / CONTEND_S:.0f}",
        f"{tries / len(waits):.1f}",
        f"{waits[len(waits) // 2]:.1f}",
        f"{waits[len(waits) * 99 // 100]:.1f}",
        f"{jain:.3f}",
    ]


def _calls(link: Link, command: str) -> Iterator[int]:
    for line in link.call("INFO", "commandstats").decode().splitlines():
        if line.startswith(f"cmdstat_{command}:"):
            yield int(line.partition("calls=")[2].partition(",")[0])


if __name__ == "__main__":
    chosen = [Address(*node) for node in json.loads(sys.argv[2])]
    print(json.dumps(figures_of(sys.argv[1], chosen)))
