"""What a leader of etcd that was frozen does to leases that its successor keeps alive.

    python -m tests.locks.etcd_old_leader [--times 10]

A round grants LEASES leases of TTL_S seconds, freezes the leader until they are over by its clock,
keeps all of them alive at the member that leads meanwhile, and lets the old leader go on. A lease
was revoked early if a member says that it is gone although a keepalive that was sent less than its
time to live ago was acknowledged. No lock of ours takes part: etcd's JSON gateway is asked.

Prints what happened in each round, and ends with 1 when it showed.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any, Final

from lockbench.clusters.base import Cluster, Led, Pausable
from lockbench.locks.base import Address
from lockbench.locks.etcd.gateway import client_of, errors
from tests.eventually import eventually
from tests.locks.parties import cluster, say

LEASES: Final = 100
TTL_S: Final = 2
FROZEN_S: Final = 1.3 * TTL_S
AFTER_S: Final = 1.0  # for how long it is looked at after the leader went on
THREADS: Final = 4
LIMIT_S: Final = 1.0
PAUSE_S: Final = 0.05


def ask(member: Any, path: str, body: dict[str, object]) -> dict[str, Any]:
    """The gateway's answer. Raises one of ``errors()``."""
    return dict(member.post(member.get_url(path), json=body))


class Kept:
    """Leases, kept alive by a few threads until ``end``."""

    def __init__(self, members: Sequence[Address], leases: Sequence[str]) -> None:
        self._members = members
        self.sent = dict.fromkeys(leases, 0.0)  # when the last one of it that was acknowledged was
        self.early: dict[str, float] = {}  # by how many seconds
        self._over = threading.Event()
        shares = [leases[n::THREADS] for n in range(THREADS)]
        self._threads = [threading.Thread(target=self._keep, args=(one,)) for one in shares]
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _keep(self, leases: Sequence[str]) -> None:
        members = [client_of(address, LIMIT_S) for address in self._members]
        alive, turn = list(leases), 0
        while not self._over.wait(PAUSE_S):
            for lease in list(alive):
                sent = time.monotonic()
                try:
                    said = ask(members[turn], "/lease/keepalive", {"ID": lease})
                except errors():  # nobody leads, or this one does not know who
                    turn = (turn + 1) % len(members)
                    break
                if int(said.get("result", {}).get("TTL", 0)) > 0:
                    self.sent[lease] = sent
                    continue
                alive.remove(lease)
                early_s = self.sent[lease] + TTL_S - time.monotonic()
                if early_s > 0:
                    self.early[lease] = early_s


def one_round(servers: Cluster) -> Kept:
    """The leases of a round, when it is over."""
    assert isinstance(servers, Led)
    assert isinstance(servers, Pausable)
    eventually(lambda: servers.leader() is not None)
    leader = servers.leader()
    assert leader is not None
    found = [Address(*address) for address in servers.addresses(1)]
    addresses = dict(zip(servers.nodes, found, strict=True))
    asked = client_of(addresses.pop(leader), LIMIT_S)
    leases = [ask(asked, "/lease/grant", {"TTL": TTL_S})["ID"] for _ in range(LEASES)]
    servers.pause([leader])
    kept = Kept(list(addresses.values()), leases)
    try:
        time.sleep(FROZEN_S)
    finally:
        servers.unpause([leader])
        time.sleep(AFTER_S)
        kept.end()
    servers.verify()
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    times = parser.parse_args().times
    shown = 0
    with cluster("etcd", float(TTL_S)) as servers:
        for number in range(1, times + 1):
            kept = one_round(servers)
            count = sum(sent > 0 for sent in kept.sent.values())
            most = f", up to {max(kept.early.values()):.2f} s" if kept.early else ""
            shown += bool(kept.early)
            say(
                f"round {number}: {count} leases kept alive by the next leader,"
                f" {len(kept.early)} revoked early{most}"
            )
    say(f"leases were revoked early in {shown} of {times} rounds")
    return int(shown > 0)


if __name__ == "__main__":
    sys.exit(main())
