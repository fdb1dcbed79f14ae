"""The double lock of go-zookeeper/zk: a client is granted it without a node, as it happens.

    python -m tests.locks.go_zookeeper_no_node [--times 6] [--history FILE]

A asks for the lock on a real cluster. Its connection ends with the answer to the create of its
node, and the server that it then turns to answers so late that its session is over. B asks, and is
granted the lock when the node of A is gone. Then A has a new session on the third server; is it
granted the lock too?

Prints what happened in each round, and writes the operations of the first in which it did as JSON
Lines. Does not guarantee that it shows: where A notices the end of its connection too late, it has
sent the next request already, and is refused.
"""

from __future__ import annotations

import argparse
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from lockbench.clusters.base import Cluster
from lockbench.locks.base import Address, System, new_hold_id, token_of
from tests.eventually import eventually
from tests.locks.delays import DelayingProxy
from tests.locks.parties import Party, cluster, fault, prepared, rounds, written

SESSION_S: Final = 2.0
LATE_S: Final = 3.0  # longer than a session
WAIT_S: Final = 20.0
BOTH_S: Final = 0.5  # for which both of them keep it


def one_round(servers: Cluster, system: System) -> tuple[bool, list[Party], dict[str, Any]]:
    """Whether A and B held the lock at once; both, and what was done to the links."""
    nodes = [Address(*node) for node in servers.addresses(1)]
    key = token_of(new_hold_id())
    with ExitStack() as stack:
        proxies = [stack.enter_context(DelayingProxy(node)) for node in nodes]
        before, b = (Party(name, system, nodes, key, SESSION_S) for name in ("before", "B"))
        before.acquire(WAIT_S)  # makes what the nodes of a lock are children of
        before.release()
        a = Party("A", system, [proxy.address for proxy in proxies], key, SESSION_S)
        eventually(lambda: any(proxy.count("reply") for proxy in proxies), "no connection")
        others = [proxy for proxy in proxies if not proxy.count("reply")]
        for proxy in proxies:
            if proxy in others:
                proxy.delay("request", 1, LATE_S)
            else:
                proxy.last("reply", proxy.count("reply") + 1)
        begin_ns = time.monotonic_ns()
        threading.Thread(target=a.acquire, args=(WAIT_S,), daemon=True).start()
        eventually(lambda: any(proxy.count("request") for proxy in others), "no other")
        for proxy in others:
            if not proxy.count("request"):
                proxy.delay("request", 1, 0.0)
        b.acquire(WAIT_S)
        double = b.granted is not None and a.wait(WAIT_S)
        heal_ns = time.monotonic_ns()
        if double:
            time.sleep(BOTH_S)
        for party in (a, b):
            if party.granted is not None:
                party.release()
        for party in (before, a, b):
            party.close()
    names = [servers.node_name(node) for node in servers.nodes]
    return double, [a, b], fault("session-expiry", names, begin_ns, heal_ns)


def main() -> int:
    """1 when it showed, 0 when it never did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    system = prepared("go-zookeeper")

    with cluster("zookeeper", SESSION_S) as servers:

        def play(history: Path | None) -> bool:
            double, parties, cut = one_round(servers, system)
            if history is not None and double:
                written(history, parties, [cut])
            return double

        return rounds(play, asked.times, asked.history, "two held it at once")


if __name__ == "__main__":
    raise SystemExit(main())
