"""What Redisson's watchdog does, on a real Redis, scene by scene.

    python -m tests.locks.redisson_watchdog SCENE [--times 6] [--history FILE]

``deleted``  (redisson#4698) H holds, its key is deleted, W is granted the lock. Is H told?
``error``    (redisson#775, #3194) H holds, Redis is killed and comes back with its data. Is the
             lock renewed from then on? Or did the watchdog end with the first error?
``pile-up``  A lock is taken and given back 0, 1, 10, 100 times within a third of the watchdog's
             time, then held: how often is it renewed per second, as the server counts?

Prints what happened in each round, ends with 1 when it showed, and writes the operations of the
first round of ``deleted`` in which it did as JSON Lines.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from redis import Redis

from lockbench.clusters.base import Killable
from lockbench.locks.base import Address, NotHeld, new_hold_id, token_of
from lockbench.locks.registry import find
from tests.locks.parties import Party, cluster, fault, prepared, rounds, say, written

WATCHDOG_S: Final = 3.0  # renewed every third of it
LOCK: Final = "redisson-rlock"
AWAY_S: Final = 0.5
CYCLES: Final = (0, 1, 10, 100)
COUNTED_S: Final = 4.0


def party(name: str, nodes: list[Address], key: str) -> Party:
    """A client; each is a thread of one RedissonClient, and so an owner of its own."""
    return Party(name, find(LOCK), nodes, key, WATCHDOG_S)


def deleted(history: Path | None) -> bool:
    """Whether the holder was told nothing until its own unlock."""
    with cluster("redis", WATCHDOG_S) as servers:
        nodes = [Address(*node) for node in servers.addresses(1)]
        key = token_of(new_hold_id())
        h, w = parties = [party(name, nodes, key) for name in "HW"]
        h.acquire(1)
        begin_ns = time.monotonic_ns()
        with Redis(*nodes[0]) as server:
            server.delete(key)
        w.acquire(1)
        time.sleep(2 * WATCHDOG_S)
        untold = w.granted is not None and h.told("lost") == 0
        at_last = h.release()
        w.release()
        say(f"W was granted: {w.granted is not None}; H was told: {h.told('lost')} times; its")
        say(f"unlock: {at_last}")
        if history is not None:
            written(history, parties, [fault("delete", ["redis-1"], begin_ns, begin_ns)])
        for each in parties:
            each.close()
        return untold and isinstance(at_last, NotHeld)


def error(history: Path | None) -> bool:
    """Whether the watchdog did not go on."""
    del history
    with cluster("redis", WATCHDOG_S) as servers:
        assert isinstance(servers, Killable)
        nodes = [Address(*node) for node in servers.addresses(1)]
        key = token_of(new_hold_id())
        h = party("H", nodes, key)
        h.acquire(1)
        time.sleep(WATCHDOG_S / 2)
        servers.kill(servers.nodes)
        time.sleep(AWAY_S)
        servers.restart(servers.nodes)
        before = h.told("extend")
        time.sleep(3 * WATCHDOG_S)
        renewed = h.told("extend") - before
        with Redis(*nodes[0]) as server:
            left_ms = server.pttl(key)
        at_last = h.release()
        say(f"renewed {renewed} times in {3 * WATCHDOG_S:g} s after the error, its key had")
        say(f"{left_ms} ms more; its unlock: {at_last}")
        h.close()
        return renewed == 0


def renewals(server: Redis) -> int:
    """How often the time to live of a key was set so far."""
    counted: Any = server.info("commandstats")
    return int(counted.get("cmdstat_pexpire", {}).get("calls", 0))


def pile_up(history: Path | None) -> bool:
    """Whether a lock was renewed more than twice as often as it should be."""
    del history
    rates = []
    with cluster("redis", WATCHDOG_S) as servers:
        nodes = [Address(*node) for node in servers.addresses(1)]
        for cycles in CYCLES:
            h = party("H", nodes, token_of(new_hold_id()))
            for _ in range(cycles):
                h.acquire(1)
                h.release()
            h.acquire(1)
            with Redis(*nodes[0]) as server:
                time.sleep(WATCHDOG_S)
                before, began = renewals(server), time.monotonic()
                time.sleep(COUNTED_S)
                rates.append((renewals(server) - before) / (time.monotonic() - began))
            h.release()
            h.close()
            # Timers of the last lock end when they find nothing to renew.
            time.sleep(2 * WATCHDOG_S)
            say(f"after {cycles} cycles: {rates[-1]:.1f} renewals/s, {3 / WATCHDOG_S:.1f} are due")
    return max(rates) > 2 * 3 / WATCHDOG_S


SCENES: Final[dict[str, Callable[[Path | None], bool]]] = {
    "deleted": deleted,
    "error": error,
    "pile-up": pile_up,
}


def main() -> int:
    """1 when it showed, 0 when it never did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    prepared(LOCK)
    return rounds(SCENES[asked.scene], asked.times, asked.history, "it shows")


if __name__ == "__main__":
    raise SystemExit(main())
