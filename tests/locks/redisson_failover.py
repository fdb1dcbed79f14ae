"""Redisson's RLock across a failover, with and without ``checkLockSyncedSlaves``.

    python -m tests.locks.redisson_failover LOCK [--times 3] [--history FILE]

LOCK is ``redisson-rlock-sentinel`` or ``redisson-rlock-sentinel-unsynced``. The replica stops
following, so that the primary has none that is connected. H is granted the lock. The primary is
killed, the Sentinels promote the replica. Is W granted the lock while H still trusts its promise?

Prints what happened in each round, ends with 1 when it showed, and writes the operations of the
first round in which it did as JSON Lines.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path
from typing import Final

from redis import Redis

from lockbench.clusters.base import Killable
from lockbench.locks.base import Address, new_hold_id, token_of
from lockbench.locks.registry import find
from tests.locks.parties import Party, cluster, fault, prepared, rounds, say, written

LOCKS: Final = ("redisson-rlock-sentinel", "redisson-rlock-sentinel-unsynced")
WATCHDOG_S: Final = 12.0  # longer than a failover, so that H's promise outlives it
PRIMARY, REPLICA = 1, 2
TRIES: Final = 8


def one_round(lock: str, history: Path | None) -> bool:
    """Whether both held it at once."""
    with cluster("sentinel", WATCHDOG_S) as servers:
        assert isinstance(servers, Killable)
        nodes = [Address(*node) for node in servers.addresses(1)]
        key = token_of(new_hold_id())
        h, w = parties = [Party(name, find(lock), nodes, key, WATCHDOG_S) for name in "HW"]
        with Redis(*nodes[REPLICA - 1]) as replica:
            replica.replicaof("NO", "ONE")
        begun = time.monotonic()
        h.acquire(5)
        took_s = time.monotonic() - begun
        begin_ns = time.monotonic_ns()
        servers.kill([PRIMARY])
        for _ in range(TRIES):
            if w.granted is None:
                w.acquire(2)
        granted_ns = time.monotonic_ns()
        left_s = (h.until_ns() - granted_ns) / 1e9
        double = h.granted is not None and w.granted is not None and left_s > 0
        say(f"H: {'granted' if h.granted else 'not granted'} after {took_s:.1f} s")
        if w.granted is not None:
            say(f"W: granted {left_s:.1f} s before H's promise ended; H told: {h.told('lost')}")
        if history is not None and double:
            killed = fault("failover", [servers.node_name(PRIMARY)], begin_ns, granted_ns)
            written(history, parties, [killed])
        for each in parties:
            each.close()
        return double


def main() -> int:
    """1 when it showed, 0 when it never did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("lock", choices=LOCKS)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    prepared(asked.lock)
    return rounds(partial(one_round, asked.lock), asked.times, asked.history, "two held it at once")


if __name__ == "__main__":
    raise SystemExit(main())
