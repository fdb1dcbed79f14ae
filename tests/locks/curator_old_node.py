"""Curator's double lock by a node of a session that is over (apache/curator#1121), as it happens.

    python -m tests.locks.curator_old_node [--times 6] [--lock curator-mutex] [--history FILE]

H holds, W and B wait. All servers of a real cluster are killed and stay away for longer than a
session, so that Curator gives its sessions up; they come back with their data and start the old
sessions afresh. H releases. W is granted the lock by the node of its old session and keeps it. That
session ends; does B get the lock too?

Prints what happened in each round, and writes the operations of the first in which it did as JSON
Lines. Does not guarantee that it shows: where a retry of Curator's runs out, W or B is refused.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path
from typing import Any, Final

from lockbench.clusters.base import Cluster, Killable
from lockbench.locks.base import Address, System, new_hold_id, token_of
from tests.locks.parties import Party, cluster, fault, prepared, rounds, written

SESSION_S: Final = 2.0
AWAY_S: Final = 2.6  # longer than a session, shorter than Curator's patience
WAIT_S: Final = 30.0
BOTH_S: Final = 0.5  # for which both of them keep it


def one_round(servers: Cluster, system: System) -> tuple[bool, list[Party], dict[str, Any]]:
    """Whether W and B held the lock at once; all three, and what was done to the servers."""
    assert isinstance(servers, Killable)
    nodes = [Address(*node) for node in servers.addresses(1)]
    key = token_of(new_hold_id())
    h, w, b = parties = [Party(name, system, nodes, key, SESSION_S) for name in "HWB"]
    h.acquire(WAIT_S)
    for waiter in (w, b):  # in this order
        threading.Thread(target=waiter.acquire, args=(WAIT_S,), daemon=True).start()
        time.sleep(0.5)
    begin_ns = time.monotonic_ns()
    servers.kill(servers.nodes)
    time.sleep(AWAY_S)
    servers.restart(servers.nodes)
    heal_ns = time.monotonic_ns()
    h.release()
    double = w.wait(WAIT_S) and b.wait(4 * SESSION_S)
    if double:
        time.sleep(BOTH_S)
    if w.granted:
        w.release()
        b.wait(4 * SESSION_S)
    if b.granted:
        b.release()
    for party in parties:
        party.close()
    names = [servers.node_name(node) for node in servers.nodes]
    return double, parties, fault("kill", names, begin_ns, heal_ns)


def main() -> int:
    """1 when it showed, 0 when it never did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--lock", default="curator-mutex")
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    system = prepared(asked.lock)

    def play(history: Path | None) -> bool:
        with cluster("zookeeper", SESSION_S) as servers:
            double, parties, killed = one_round(servers, system)
        if history is not None and double:
            written(history, parties, [killed])
        return double

    return rounds(play, asked.times, asked.history, "two held it at once")


if __name__ == "__main__":
    raise SystemExit(main())
