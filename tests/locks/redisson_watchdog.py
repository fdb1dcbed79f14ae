"""What Redisson's watchdog and ``unlock`` do, on a real Redis, scene by scene.

    python -m tests.locks.redisson_watchdog SCENE [--times 6] [--history FILE]

``deleted``  (redisson#4698) H holds, its key is deleted, W is granted the lock. Is H told?
``error``    (redisson#775, #3194) H holds, Redis is killed and comes back with its data. Is the
             lock renewed from then on? Or did the watchdog end with the first error?
``pile-up``  A lock is taken and given back 0, 1, 10, 100 times within a third of the watchdog's
             time, then held: how often is it renewed per second, as the server counts?

``late-unlock``  H's unlock() is kept on its way for four leases. It has no answer, the hold ends,
             and H takes the lock again. W asks when the unlock arrives. Is it granted H's lock?

Prints what happened in each round, ends with 1 when it showed, and writes the operations of the
first round of ``deleted`` or ``late-unlock`` in which it did as JSON Lines.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from redis import Redis

from lockbench.clusters.base import Killable
from lockbench.locks.base import Address, NotHeld, Unknown, new_hold_id, token_of
from lockbench.locks.registry import find
from tests.eventually import eventually
from tests.locks.delays import DelayingProxy
from tests.locks.parties import Party, cluster, fault, prepared, rounds, say, written

WATCHDOG_S: Final = 3.0  # renewed every third of it
LOCK: Final = "redisson-rlock"
AWAY_S: Final = 0.5
CYCLES: Final = (0, 1, 10, 100)
COUNTED_S: Final = 4.0
LATE_S: Final = 4 * WATCHDOG_S  # an answer is waited for 3 s; then the first hold has to end
ARRIVES_S: Final = 0.2
OTHERS: Final = 4  # clients of the same pool of connections


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


def late_unlock(history: Path | None) -> bool | None:
    """Whether both held it. None: H's unlock had an answer, or H did not get it again in time."""
    with cluster("redis", WATCHDOG_S) as servers:
        server = Address(*servers.addresses(1)[0])
        key = token_of(new_hold_id())
        with DelayingProxy(server) as proxy:
            h, w = parties = [party("H", [proxy.address], key), party("W", [server], key)]
            others = [party(f"O{n}", [proxy.address], f"{key}-{n}") for n in range(OTHERS)]
            h.acquire(1)
            first, begin_ns = h.granted, time.monotonic_ns()
            proxy.delay("request", proxy.count("request") + 1, LATE_S)
            unlock = h.release()
            # The pool's next connection may be the one that the unlock is kept on.
            asking = [threading.Thread(target=one.acquire, args=[1]) for one in others]
            for thread in asking:
                thread.start()
            # While its key lives, H enters again, and the unlock ends one of two.
            with Redis(*server) as redis:
                eventually(lambda: not redis.exists(key), "the first hold did not end")
            h.acquire(1)
            again_s = (time.monotonic_ns() - begin_ns) / 1e9
            time.sleep(max(0.0, LATE_S - ARRIVES_S - again_s))
            w.acquire(5 * ARRIVES_S)
            until_ns = h.until_ns()
            both = w.granted is not None and w.granted_ns < until_ns
            say(f"H's first unlock: {type(unlock).__name__}; again granted after {again_s:.1f} s")
            if both:
                over_s = (until_ns - w.granted_ns) / 1e9
                say(f"W was granted it {over_s:.2f} s before the end of what H was promised")
            time.sleep(WATCHDOG_S / 3)
            for one in (h, w):
                if one.granted is not None:
                    say(f"unlock of {one.name}: {one.release()}")
            if history is not None:
                times = (begin_ns, begin_ns + int(1e9 * LATE_S))
                written(history, parties, [fault("latency", ["redis-1"], *times)])
            for thread in asking:
                thread.join()
            for each in (*parties, *others):
                each.close()
            told = isinstance(unlock, Unknown) and h.granted is not first and again_s < LATE_S
            return both if told else None


SCENES: Final[dict[str, Callable[[Path | None], bool | None]]] = {
    "deleted": deleted,
    "error": error,
    "pile-up": pile_up,
    "late-unlock": late_unlock,
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
