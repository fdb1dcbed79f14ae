"""Kleppmann's case with Redisson, by a real garbage collection.

    python -m tests.locks.redisson_gc [--times 6] [--heap 3g] [--history FILE]

A and B are each a JVM of their own. A is granted an ``RLock`` that the watchdog renews, reads the
guarded resource, and does a job that needs memory: it fills A's heap with objects that are all
alive, and the collector stops every thread of that JVM, the watchdog's as well. B waits for the
lock. When it is granted it reads, holds, writes and releases. A's job ends when its JVM runs again;
A writes on top of what it had read, and releases.

Prints of each round the longest stop, who was granted and told what, and whether A overwrote B.
A round in which the longest stop was no longer than the lease does not count. Ends with 1 when it
showed, 0 when it never did, 2 when no round could tell; writes the operations of the first round
in which it did as JSON Lines.

Does not guarantee a length of the stop: that is the heap's size and the machine's.
"""

from __future__ import annotations

import argparse
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final
from unittest import mock

from redis import Redis

from lockbench.clusters.engine.client_containers import HEAP
from lockbench.locks.base import Address, Freed, NotHeld, Observer, new_hold_id, token_of
from lockbench.locks.registry import find
from lockbench.locks.shared.client_container import ContainerSidecar
from lockbench.locks.shared.client_programs import JVM_IMAGE
from lockbench.locks.shared.sidecar import Sidecar, SidecarLock
from lockbench.workloads.resource import Resource
from tests.eventually import eventually
from tests.locks.parties import (
    Party,
    cluster,
    fault,
    guarded,
    prepared,
    rounds,
    say,
    written,
)

LOCK: Final = "redisson-rlock"
WATCHDOG_S: Final = 1.5  # the lease; renewed every third of it
WAIT_S: Final = 30.0
HOLD_S: Final = 0.3  # of B, between its read and its write
SMALL_HEAP: Final = "256m"


@dataclass(frozen=True)
class Stall:
    """A's job: asked for and answered, monotonic, and the longest time for which nothing ran."""

    asked_ns: int
    answered_ns: int
    longest_ns: int

    def fault(self) -> dict[str, Any]:
        """As a history has it. Where between asking and answer the stop lay is not known."""
        line = fault("gc-stall", ["A"], self.asked_ns, self.answered_ns)
        line["begin_ns"][1] = self.answered_ns - self.longest_ns
        line["heal_ns"][0] = self.asked_ns + self.longest_ns
        return line


@contextmanager
def jvm(heap: str) -> Iterator[Sidecar]:
    """A JVM with Redisson in it and a heap of that size."""
    with mock.patch.dict(os.environ, {HEAP: heap}):
        sidecar = ContainerSidecar(JVM_IMAGE, LOCK)
    try:
        yield sidecar
    finally:
        sidecar.close()


def client(name: str, sidecar: Sidecar, nodes: list[Address], key: str) -> Party:
    """A client in that JVM."""

    def connect(
        nodes: Sequence[Address], *, timeout_s: float, ttl_s: float, observer: Observer
    ) -> SidecarLock:
        return SidecarLock(
            sidecar, nodes, timeout_s=timeout_s, ttl_s=ttl_s, observer=observer, safe=False
        )

    return Party(name, replace(find(LOCK), connect=connect), nodes, key, WATCHDOG_S)


def work(b: Party, resource: Resource) -> None:
    """B's share: waits for the lock, and does a short job under it."""
    b.acquire(WAIT_S)
    if b.granted is not None:
        version = b.read(resource)
        time.sleep(HOLD_S)
        b.write(resource, version)
        b.release()


def stalled(sidecar: Sidecar) -> Stall:
    """Does A's job in its JVM."""
    asked_ns = time.monotonic_ns()
    answer = sidecar.ask("stall", 0)
    return Stall(asked_ns, time.monotonic_ns(), answer["longest_ns"])


def someone_waits(server: Redis) -> bool:
    """Redisson waits for a message; the server counts who listens."""
    counted: Any = server.info("clients")
    return int(counted["pubsub_clients"]) > 0


def scene(nodes: list[Address], heap: str, history: Path | None) -> bool | None:
    """Whether A overwrote what B had written; None where nothing stopped for long enough."""
    key = token_of(new_hold_id())
    with jvm(heap) as of_a, jvm(SMALL_HEAP) as of_b, guarded() as where:
        a, b = parties = client("A", of_a, nodes, key), client("B", of_b, nodes, key)
        resource = Resource(where)
        a.acquire(1)
        version = a.read(resource)
        waiting = threading.Thread(target=work, args=(b, Resource(where)), daemon=True)
        waiting.start()
        with Redis(*nodes[0]) as server:
            eventually(partial(someone_waits, server), "B does not wait")
        stall = stalled(of_a)
        overwritten = a.write(resource, version) - version - 1
        at_last = a.release()
        waiting.join(WAIT_S)
        shown = seen(a, b, stall, overwritten, at_last)
        if history is not None and shown:
            written(history, parties, [stall.fault()])
        for party in parties:
            party.close()
        return shown


def seen(a: Party, b: Party, stall: Stall, overwritten: int, at_last: Freed) -> bool | None:
    """Says what happened, and whether it showed."""
    longest_s = stall.longest_ns / 1e9
    say(f"longest stop: {longest_s:.1f} s, lease: {WATCHDOG_S:g} s")
    if longest_s <= WATCHDOG_S:
        return None
    if b.granted is None:
        say("B was not granted")
        return False
    say(f"B was granted {(b.granted_ns - a.until_ns()) / 1e9:.3f} s after A's promise ended and")
    say(f"{(stall.answered_ns - b.granted_ns) / 1e9:.1f} s before A went on; A was told of a loss:")
    say(f"{a.told('lost')} times; A overwrote {overwritten} writes; its unlock: {at_last}")
    during = b.granted_ns < stall.answered_ns
    return during and overwritten > 0 and isinstance(at_last, NotHeld)


def main() -> int:
    """1 when it showed, 0 when it never did, 2 when no round could tell."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--heap", default="3g", help="of A's JVM")
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    prepared(LOCK)
    with cluster("redis", WATCHDOG_S) as servers:
        nodes = [Address(*node) for node in servers.addresses(1)]
        play = partial(scene, nodes, asked.heap)
        return rounds(play, asked.times, asked.history, "A overwrote what B had written")


if __name__ == "__main__":
    raise SystemExit(main())
