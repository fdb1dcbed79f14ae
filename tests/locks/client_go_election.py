"""What client-go's leader election does while what a leader sends is held up, on a real API server.

    python -m tests.locks.client_go_election SCENE [--times 6] [--lease 3] [--history FILE]

A leads, and B, C and D are candidates. Then A's link stalls: what A sends is held up. The others
have links of their own.

``same-second``  The link stalls after a renewal that was late in a second of the wall clock. Is
                 another granted the lease before the end of what A was promised?
``late-stop``    (cilium#42920) A goes on writing until it is told that it leads no more. Does it
                 write after its lease, when another leads?
``successor``    The link is healed as soon as another leads. Is a third one granted the lease while
                 that one is promised it?

Prints what happened in each round, ends with 1 when it showed, and writes the operations of the
first round in which it did as JSON Lines. ``--lease 15`` is Kubernetes' own LeaseDuration, with the
RenewDeadline and RetryPeriod that go with it.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from lockbench.clusters.base import HARNESS, Cluster, Cuttable, Edge
from lockbench.locks.base import Address, System, new_hold_id, token_of
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

LOCK: Final = "client-go-lease"
LEASE_S: Final = 3.0
GROUP: Final = 1  # of clients: A's link
CANDIDATES: Final = "BCD"
WAIT_S: Final = 60.0
WRITES_S: Final = 0.15
FRESH_S: Final = 0.1
# Of a second: late enough that a renewal went before in it, and not so late that the cut comes in
# the next one.
LATE: Final = (0.6, 0.85)


@dataclass
class Scene:
    """One round: who takes part, and what was done to A's link."""

    servers: Cluster
    lease_s: float
    a: Party
    others: list[Party]
    over: threading.Event
    cut_ns: int = 0
    healed_ns: int = 0

    def stall(self) -> None:
        """Holds up what A sends from now on."""
        assert isinstance(self.servers, Cuttable)
        self.cut_ns = time.monotonic_ns()
        self.servers.cut([Edge(-GROUP, 1)], "stall")

    def heal(self) -> None:
        """Lets it through."""
        assert isinstance(self.servers, Cuttable)
        self.servers.heal()
        self.healed_ns = time.monotonic_ns()

    def granted(self) -> list[Party]:
        """Those of the others that were granted the lease so far, in that order."""
        led = [party for party in self.others if party.granted is not None]
        return sorted(led, key=lambda party: party.granted_ns)

    def next_leader(self) -> Party:
        """Waits for the first of them."""
        eventually(self.granted, "nobody takes over")
        return self.granted()[0]

    def told_ns(self) -> int:
        """When A was told that it leads no more; 0 before."""
        return next((line["invoke_ns"] for line in self.a.lines if line["f"] == "lost"), 0)

    def renewed_ns(self) -> int:
        """When A sent the last renewal that was acknowledged; 0 before the first."""
        sent = [line["sent_ns"] for line in list(self.a.lines) if line["f"] == "extend"]
        return max(sent, default=0)

    def write(self, history: Path | None) -> None:
        """What all did, as a history."""
        if history is not None:
            names = [self.servers.node_name(1)]
            cut = fault("partition-stall", names, self.cut_ns, self.healed_ns)
            written(history, [self.a, *self.others], [cut])


def campaign(party: Party, over: threading.Event) -> None:
    """A candidate's part: once it is granted the lease it keeps it until the round is over."""
    party.acquire(WAIT_S)
    if party.granted is not None:
        over.wait(WAIT_S)
        party.release()


@contextmanager
def scene(servers: Cluster, system: System, lease_s: float) -> Iterator[Scene]:
    """A leads and has renewed, the others ask."""
    key = token_of(new_hold_id())
    linked, direct = (
        [Address(*node) for node in servers.addresses(group)] for group in (GROUP, HARNESS)
    )
    a = Party("A", system, linked, key, lease_s)
    others = [Party(name, system, direct, key, lease_s) for name in CANDIDATES]
    made = Scene(servers, lease_s, a, others, threading.Event())
    a.acquire(WAIT_S)
    asking = [threading.Thread(target=campaign, args=(one, made.over)) for one in others]
    try:
        for thread in asking:
            thread.start()
        eventually(lambda: a.told("extend") > 1, "A does not renew")
        yield made
    finally:
        made.over.set()
        for thread in asking:
            thread.join()
        made.heal()
        for party in (a, *others):
            party.close()


def late_in_a_second(made: Scene) -> bool:
    """Whether A's last renewal was, and has just been acknowledged."""
    sent_ns = made.renewed_ns()
    wall_ns = sent_ns + time.time_ns() - time.monotonic_ns()
    late = LATE[0] <= wall_ns % 10**9 / 1e9 <= LATE[1]
    return late and time.monotonic_ns() - sent_ns < FRESH_S * 1e9


def same_second(made: Scene, history: Path | None) -> bool:
    """Whether another was granted the lease within A's promise."""
    eventually(partial(late_in_a_second, made), "no renewal was late in a second")
    made.stall()
    winner = made.next_leader()
    end_ns = min(made.a.until_ns(), made.told_ns() or made.a.until_ns())
    early_s = (end_ns - winner.granted_ns) / 1e9
    say(f"{winner.name} was granted it {early_s:.3f} s before the end of A's promise")
    eventually(made.told_ns, "A is not told")
    made.heal()
    made.write(history)
    return early_s > 0


def late_stop(made: Scene, history: Path | None) -> bool:
    """Whether A, which was told nothing yet, wrote after its lease while another led."""
    with guarded() as where:
        resource = Resource(where)
        version = made.a.read(resource)
        made.stall()
        wrote_ns = 0
        while not made.told_ns():
            wrote_ns = time.monotonic_ns()
            version = made.a.write(resource, version)
            time.sleep(WRITES_S)
    renewed_ns, winner = made.renewed_ns(), made.next_leader()
    for what, at_ns in (
        (f"{winner.name} was granted it", winner.granted_ns),
        ("A was told", made.told_ns()),
    ):
        say(f"{what} {(at_ns - renewed_ns) / 1e9:.2f} s after A's last renewal was sent")
    made.heal()
    made.write(history)
    return wrote_ns > max(made.a.until_ns(), winner.granted_ns)


def successor(made: Scene, history: Path | None) -> bool:
    """Whether two of the others were promised it at once."""
    made.stall()
    first = made.next_leader()
    made.heal()
    eventually(lambda: made.told_ns() or len(made.granted()) > 1, "A is not told")
    # What A gave back is taken at the next look of a candidate, or of the leader itself.
    time.sleep(made.lease_s / 2)
    until_ns, others = first.until_ns(), made.granted()[1:]
    both = bool(others) and others[0].granted_ns < until_ns and not first.told("lost")
    if both:
        over_s = (until_ns - others[0].granted_ns) / 1e9
        say(f"{others[0].name} was granted it {over_s:.2f} s before the end of what")
        say(f"{first.name} was promised")
    made.write(history)
    return both


SCENES: Final[dict[str, Callable[[Scene, Path | None], bool]]] = {
    "same-second": same_second,
    "late-stop": late_stop,
    "successor": successor,
}


def main() -> int:
    """1 when it showed, 0 when it never did."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("scene", choices=SCENES)
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--lease", type=float, default=LEASE_S)
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    system = prepared(LOCK)

    with cluster("kubernetes", asked.lease) as servers:

        def play(history: Path | None) -> bool:
            with scene(servers, system, asked.lease) as made:
                return SCENES[asked.scene](made, history)

        return rounds(play, asked.times, asked.history, "it shows")


if __name__ == "__main__":
    raise SystemExit(main())
