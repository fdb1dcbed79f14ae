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
import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

from clusters.base import Cluster, ClusterPlan, Killable
from clusters.registry import topologies
from locks.base import Address, Denied, Granted, Hold, Lock, Released, System, new_hold_id, token_of
from locks.registry import find

SESSION_S: Final = 2.0
AWAY_S: Final = 2.6  # longer than a session, shorter than Curator's patience
WAIT_S: Final = 30.0


class Party:
    """One client, and what it did in the words of a history. It is its own observer."""

    def __init__(self, name: str, system: System, nodes: list[Address], key: str) -> None:
        self.name = name
        self.lines: list[dict[str, Any]] = []
        self.granted: Granted | None = None
        self._key = key
        self._done = threading.Event()
        self._lock: Lock = system.connect(nodes, timeout_s=1, ttl_s=SESSION_S, observer=self)

    def extended(
        self, hold: Hold, *, sent_ns: int, acknowledged_ns: int, valid_until_ns: int
    ) -> None:
        self._line("extend", "ok", hold, sent_ns, acknowledged_ns, None, sent_ns, valid_until_ns)

    def lost(self, hold: Hold) -> None:
        now_ns = time.monotonic_ns()
        self._line("lost", "ok", hold, now_ns, now_ns)

    def acquire(self) -> None:
        hold = Hold(new_hold_id(), self._key)
        begun_ns = time.monotonic_ns()
        answer = self._lock.acquire(self._key, hold_id=hold.id, ttl_s=SESSION_S, wait_s=WAIT_S)
        ended_ns = time.monotonic_ns()
        match answer:
            case Granted(sent_ns=sent_ns, valid_until_ns=until_ns):
                self._line("acquire", "ok", hold, begun_ns, ended_ns, None, sent_ns, until_ns)
                self.granted = answer
            case Denied(reason=reason):
                self._line("acquire", "fail", hold, begun_ns, ended_ns, reason)
            case _:
                self._line("acquire", "info", hold, begun_ns, None, answer.reason)
        self._done.set()

    def wait(self, seconds: float) -> bool:
        """Whether it was granted the lock within the time."""
        self._done.wait(seconds)
        return self.granted is not None

    def release(self) -> None:
        assert self.granted is not None
        begun_ns = time.monotonic_ns()
        answer = self._lock.release(self.granted.hold)
        ended_ns = time.monotonic_ns()
        how = "ok" if isinstance(answer, Released) else "info"
        self._line("release", how, self.granted.hold, begun_ns, ended_ns if how == "ok" else None)

    def close(self) -> None:
        self._lock.close()

    def _line(
        self,
        f: str,
        how: str,
        hold: Hold,
        invoke_ns: int,
        complete_ns: int | None,
        error: str | None = None,
        sent_ns: int | None = None,
        until_ns: int | None = None,
    ) -> None:
        self.lines.append(
            {
                "process": self.name,
                "f": f,
                "key": self._key,
                "type": how,
                "invoke_ns": invoke_ns,
                "complete_ns": complete_ns,
                "hold": token_of(hold.id),
                "sent_ns": sent_ns,
                "valid_until_ns": until_ns,
                "error": error,
            }
        )


def one_round(cluster: Cluster, system: System) -> tuple[bool, list[dict[str, Any]]]:
    """Whether W and B held the lock at once, and what all three did."""
    assert isinstance(cluster, Killable)
    nodes = [Address(*node) for node in cluster.addresses(1)]
    key = token_of(new_hold_id())
    h, w, b = parties = [Party(name, system, nodes, key) for name in "HWB"]
    h.acquire()
    for waiter in (w, b):  # in this order
        threading.Thread(target=waiter.acquire, daemon=True).start()
        time.sleep(0.5)
    begin_ns = time.monotonic_ns()
    cluster.kill(cluster.nodes)
    time.sleep(AWAY_S)
    cluster.restart(cluster.nodes)
    heal_ns = time.monotonic_ns()
    h.release()
    double = w.wait(WAIT_S) and b.wait(4 * SESSION_S)
    if w.granted:
        w.release()
        b.wait(4 * SESSION_S)
    if b.granted:
        b.release()
    lines = sorted((line for p in parties for line in p.lines), key=lambda line: line["invoke_ns"])
    for party in parties:
        party.close()
    fault = {
        "process": "nemesis",
        "f": "kill",
        "targets": [f"zookeeper-{node}" for node in cluster.nodes],
        "begin_ns": [begin_ns, begin_ns],
        "heal_ns": [heal_ns, heal_ns],
    }
    return double, [*lines, fault]


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """1 when it showed, 0 when it never did."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=6)
    parser.add_argument("--lock", default="curator-mutex")
    parser.add_argument("--history", type=Path)
    asked = parser.parse_args()
    system = find(asked.lock)
    if system.prepare is not None:
        system.prepare()
    shown = 0
    with tempfile.TemporaryDirectory() as logs:
        for turn in range(asked.times):
            plan = ClusterPlan(
                topology="zookeeper",
                size=3,
                groups=1,
                run_id=f"curator-{os.getpid()}",
                lease_ttl_s=SESSION_S,
                log_dir=logs,
            )
            with topologies()["zookeeper"].make(plan) as cluster:
                double, lines = one_round(cluster, system)
            shown += double
            say(f"round {turn + 1}: {'two held it at once' if double else 'no'}")
            if double and shown == 1 and asked.history is not None:
                asked.history.write_text("".join(json.dumps(line) + "\n" for line in lines))
    say(f"{shown} of {asked.times}")
    return int(shown > 0)


if __name__ == "__main__":
    raise SystemExit(main())
