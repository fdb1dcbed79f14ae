"""What the harness adds to a lock cycle: ``python -m workloads.cost PAIRS CYCLES`` prints JSON.

The same cycle (acquire, read and write of the resource, release) is run bare, as a loop of the
client's calls under gevent, and through the harness (recording, Locust's statistics), in turns, so
that a change of the machine's speed meets both. CPU time of this process, not wall-clock time.
"""

from locust.env import Environment  # isort: skip  # first, because it monkey-patches

import json
import sys
from time import process_time_ns

from locks.base import Granted, NoObserver, new_hold_id
from workloads.load import FLOOR_KEY
from workloads.resource import Resource
from workloads.session import Session
from workloads.users import VictimUser, no_hold, session


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


def main(pairs: int, cycles: int) -> None:
    """Prints CPU microseconds per cycle, one number per pair and way."""
    here = session()
    environment = Environment(user_classes=[VictimUser])
    environment.create_local_runner()
    user = VictimUser(environment)
    user.connect()
    bare = Bare(here)
    spent: dict[str, list[float]] = {"bare": [], "harness": []}
    for pair in range(pairs + 1):
        for way, cycle in (
            ("bare", bare.cycle),
            ("harness", lambda: user.client.cycle(FLOOR_KEY, no_hold)),
        ):
            begin = process_time_ns()
            for _ in range(cycles):
                cycle()
            if pair:  # the first warms up
                spent[way].append((process_time_ns() - begin) / 1e3 / cycles)
    here.recorder.close()
    print(json.dumps(spent))  # noqa: T201 - the output of this process


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
