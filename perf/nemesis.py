"""The nemesis' part of ``make perf``: how fast faults begin and end.

Cutting and healing every link of five etcd nodes, freezing and thawing servers, and how long a
process that is paused as a client is stays paused.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator

import psutil

from lockbench.bench import interruption
from lockbench.clusters.base import Cuttable, Pausable
from lockbench.nemesis.staging import until
from perf.figures import Figure, running, show, timed

ROUNDS = 10
PAUSE_S = 0.2


def main() -> None:
    """One table."""
    show("The nemesis, ms", measure())


def measure() -> Iterator[Figure]:
    """Every row, milliseconds."""
    with running("etcd", 5) as cluster:
        assert isinstance(cluster, Cuttable)
        everything = cluster.edges()
        for how in ("drop", "stall", "reject"):
            cuts, heals = [], []
            for _ in range(ROUNDS):
                cuts.append(timed(lambda: cluster.cut(everything, how))[0])  # noqa: B023
                heals.append(timed(cluster.heal)[0])
            yield Figure(f"cut all {len(everything)} links of 5 nodes, {how}", "≤ 150", cuts, 1)
            yield Figure(f"heal them, {how}", "≤ 150", heals, 1)
    with running("redlock", 5) as cluster:
        assert isinstance(cluster, Pausable)
        pauses, thaws = [], []
        for _ in range(ROUNDS):
            pauses.append(timed(lambda: cluster.pause([1]))[0])
            thaws.append(timed(lambda: cluster.unpause([1]))[0])
        yield Figure("pause a server", "≤ 50", pauses, 1)
        yield Figure("unpause it", "≤ 50", thaws, 1)
    what = f"a process paused for {PAUSE_S * 1e3:g} ms: measured less declared"
    yield Figure(what, "± 20", _pauses_of_a_client(), 1)


def _pauses_of_a_client() -> list[float]:
    """By how many milliseconds each was longer than declared."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as child:
        process, found = psutil.Process(child.pid), []
        try:
            for _ in range(ROUNDS):
                process.suspend()
                began = time.monotonic()
                until(lambda: process.status() == psutil.STATUS_STOPPED, 1.0)
                time.sleep(max(0.0, began + PAUSE_S - time.monotonic()))
                process.resume()
                found.append(1e3 * (time.monotonic() - began - PAUSE_S))
        finally:
            child.kill()
    return found


if __name__ == "__main__":
    interruption.arm()
    main()
