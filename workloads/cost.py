"""What the harness adds to a lock cycle: ``python -m lockbench.workloads.cost PAIRS TURNS`` prints
JSON.

The same cycle of a free key is run *bare* and through the *harness*, in turns of ``TURN`` cycles,
so that a change of the machine's speed meets both. Bare are the client's calls in a loop under
gevent and nothing else: acquire and release of the same lock class over a connection of its own,
and the two round trips to the guarded resource with which the workload ``mutex`` reads and writes
under the lock. The harness is what a user of Locust does: the same calls, four operations
recorded, Locust told of them, the job of the workload and the counters that the bench watches. The
pauses between cycles are in neither.

CPU time of this process with its system calls, not wall-clock time: servers, links and the guarded
resource are other processes and are in neither. What the harness does later for its turn (Locust's
listeners) is done, and counted, before the turn ends.
"""

from locust.env import Environment  # isort: skip  # first, because it monkey-patches

import json
import sys
from time import process_time_ns
from typing import Final

from lockbench.locks.base import Granted, NoObserver, new_hold_id
from lockbench.workloads.load import FLOOR_KEY
from lockbench.workloads.resource import Resource
from lockbench.workloads.session import Session
from lockbench.workloads.users import VictimUser, no_hold, session

TURN: Final = 32


class Bare:
    """The client's calls and nothing else."""

    def __init__(self, here: Session) -> None:
        self._lock = here.connect(NoObserver())
        self._resource = Resource(here.load.resource)
        self._pace = here.load.pace

    def cycle(self) -> None:
        """One cycle; the key is free, so anything but a grant is a failure of the measurement."""
        pace, key = self._pace, FLOOR_KEY
        got = self._lock.acquire(
            key, hold_id=new_hold_id(), ttl_s=pace.lease_ttl_s, wait_s=pace.wait_s
        )
        if not isinstance(got, Granted):
            raise SystemExit(f"the free key {key} was not granted: {got}")
        version, _, _ = self._resource.read(key, got.hold.id)
        self._resource.write(key, got.hold.id, version, got.fence)
        self._lock.release(got.hold)


def main(pairs: int, turns: int) -> None:
    """Prints CPU microseconds per cycle, one number per pair and way."""
    here = session()
    environment = Environment(user_classes=[VictimUser])
    environment.create_local_runner()
    user = VictimUser(environment)
    user.connect()
    bare = Bare(here)
    spent: dict[str, list[float]] = {"bare": [], "harness": []}
    for pair in range(pairs + 1):
        took_ns = {"bare": 0, "harness": 0}
        for _ in range(turns):
            begin = process_time_ns()
            for _ in range(TURN):
                bare.cycle()
            between = process_time_ns()
            for _ in range(TURN):
                user.count(user.client.cycle(FLOOR_KEY, no_hold))
            user.stats.flush()
            took_ns["bare"] += between - begin
            took_ns["harness"] += process_time_ns() - between
        if pair:  # the first warms up
            for way, ns in took_ns.items():
                spent[way].append(ns / 1e3 / turns / TURN)
    here.recorder.close()
    print(json.dumps(spent))  # noqa: T201 - the output of this process


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
