"""The process that measures for ``bench.perf_locks``, and the bare commands to measure against.

``python -m gevent.monkey --module bench.perf_recipe LOCK NODES`` prints JSON.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import gevent

from locks import redlock
from locks.base import BACKOFFS, Address, Granted, Lock, NoObserver, new_hold_id, token_of
from locks.redis_link import DELETE_OWN, Link
from locks.redlock_nodes import Question
from locks.registry import find

PAIRS, CYCLES = 10, 200
ACQUIRES = 2000
TTL_S, TIMEOUT_S = 5.0, 1.0
CLIENTS, HOLD_S, CONTEND_S = 8, 0.005, 4.0
KEY = "perf"


def measure(name: str, nodes: Sequence[Address]) -> dict[str, Any]:
    """Everything about one lock, as JSON values."""
    lock = connected(name, nodes)
    found: dict[str, Any] = {"ratios": ratios(lambda: cycle(lock), BARE[name](nodes))}
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
    granted = lock.acquire(KEY, hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=1)
    assert isinstance(granted, Granted), granted
    lock.release(granted.hold)


def ratios(recipe: Callable[[], None], bare: Callable[[], None]) -> list[float]:
    """CPU of the recipe's cycles divided by that of the bare ones, one number per pair."""
    found = []
    for pair in range(PAIRS + 1):
        spent = []
        for run in (bare, recipe):
            begin = time.process_time_ns()
            for _ in range(CYCLES):
                run()
            spent.append(time.process_time_ns() - begin)
        if pair:  # the first warms up
            found.append(spent[1] / spent[0])
    return found


def bare_redis(nodes: Sequence[Address]) -> Callable[[], None]:
    """SET and the script that deletes, on one connection of the same library."""
    link = Link(nodes[0], timeout_s=TIMEOUT_S)
    link.open()
    link.call("SCRIPT", "LOAD", DELETE_OWN.text)

    def run() -> None:
        token = token_of(new_hold_id())
        link.call("SET", KEY, token, "NX", "PX", int(TTL_S * 1e3))
        link.call("EVALSHA", DELETE_OWN.sha, 1, KEY, token)

    return run


def bare_redlock(nodes: Sequence[Address]) -> Callable[[], None]:
    """The same on every node: sent to all, then read from all."""
    links = [Link(node, timeout_s=TIMEOUT_S) for node in nodes]
    for link in links:
        link.open()
        link.call("SCRIPT", "LOAD", DELETE_OWN.text)
    connections: list[Any] = [link._connection for link in links]  # noqa: SLF001 - to send to all before reading

    def ask(*command: str | int) -> None:
        for connection in connections:
            connection.send_command(*command)
        for connection in connections:
            connection.read_response()

    def run() -> None:
        token = token_of(new_hold_id())
        ask("SET", KEY, token, "NX", "PX", int(TTL_S * 1e3))
        ask("EVALSHA", DELETE_OWN.sha, 1, KEY, token)

    return run


def bare_zookeeper(nodes: Sequence[Address]) -> Callable[[], None]:
    """Create and list, together, and delete."""
    from kazoo.client import KazooClient
    from kazoo.handlers.gevent import SequentialGeventHandler

    hosts = ",".join(f"{node.host}:{node.port}" for node in nodes)
    client = KazooClient(hosts, timeout=TTL_S, handler=SequentialGeventHandler())
    client.start()
    client.ensure_path("/bare")

    def run() -> None:
        made = client.create_async(
            f"/bare/{token_of(new_hold_id())}-", ephemeral=True, sequence=True, include_data=True
        )
        listed = client.get_children_async("/bare")
        path, _ = made.get()
        listed.get()
        client.delete_async(path).get()

    return run


def bare_etcd(nodes: Sequence[Address]) -> Callable[[], None]:
    """Grant of a lease, a transaction, revocation."""
    from locks.etcd_gateway import client_of, encoded

    client = client_of(nodes[0], TIMEOUT_S)

    def post(path: str, body: dict[str, Any]) -> Any:
        return client.post(client.get_url(path), json=body)

    def run() -> None:
        lease = int(post("lease/grant", {"TTL": int(TTL_S)})["ID"])
        name = encoded(f"bare/{lease:x}")
        last = {"key": encoded("bare/"), "range_end": encoded("bare0"), "keys_only": True}
        last |= {"sort_order": "DESCEND", "sort_target": "CREATE", "limit": 2}
        post(
            "kv/txn",
            {
                "compare": [{"key": name, "target": "CREATE", "create_revision": 0}],
                "success": [
                    {"request_put": {"key": name, "lease": lease}},
                    {"request_range": last},
                ],
            },
        )
        post("lease/revoke", {"ID": lease})

    return run


BARE: dict[str, Callable[[Sequence[Address]], Callable[[], None]]] = {
    "redis-token": bare_redis,
    "redlock": bare_redlock,
    "zookeeper": bare_zookeeper,
    "etcd": bare_etcd,
}


class Stamped(dict[int, Any]):
    """Answers by node, and when each was read."""

    def __init__(self) -> None:
        super().__init__()
        self.read_ns: list[int] = []

    def __setitem__(self, node: int, answer: Any) -> None:
        self.read_ns.append(time.monotonic_ns())
        super().__setitem__(node, answer)


class Stamping(Question):
    """A question whose answers are stamped."""

    def __init__(self, *command: str | int) -> None:
        super().__init__(*command)
        self.stamped = Stamped()
        self.answers = self.stamped


def third_answers(lock: Lock) -> dict[str, list[float]]:
    """Milliseconds of each acquire, and from its beginning to the third answer to it."""
    asked: list[Stamping] = []

    def stamping(*command: str | int) -> Stamping:
        asked.append(Stamping(*command))
        return asked[-1]

    setattr(redlock, "Question", stamping)  # noqa: B010 - mypy: not this module's to assign
    acquires, thirds = [], []
    try:
        for _ in range(ACQUIRES):
            asked.clear()
            begin = time.monotonic_ns()
            granted = lock.acquire(KEY, hold_id=new_hold_id(), ttl_s=TTL_S, wait_s=1)
            end = time.monotonic_ns()
            assert isinstance(granted, Granted), granted
            acquires.append((end - begin) / 1e6)
            thirds.append((asked[0].stamped.read_ns[2] - begin) / 1e6)
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
    print(json.dumps(measure(sys.argv[1], chosen)))
