"""``make perf``: measures the bench itself against the anchors of its design, side by side."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from lockbench.bench import interruption
from lockbench.bench.plan import WORKERS, make_case
from lockbench.bench.run import load_of
from lockbench.bench.suites import sampled
from lockbench.clusters.base import Cluster
from lockbench.history.op import F, Type
from lockbench.history.recorder import Recorder
from lockbench.workloads.fleet import Fleet
from lockbench.workloads.load import ENVIRONMENT, WORKER_ENVIRONMENT
from perf import checker, load, locks, nemesis, rates, sidecar
from perf.figures import Figure, running, show, told_by

RECORD_ROUNDS, RECORDS = 9, 100_000
STARTS = 5
PAIRS, TURNS = 20, 8
UP_S = {"redis-token": "≤ 1.5", "redlock": "≤ 3", "etcd": "≤ 2", "zookeeper": "≤ 4"}


def main() -> None:
    """Every table."""
    show("The bench itself", measure())
    for part in (load, rates, locks, sidecar, nemesis, checker):
        part.main()


def measure() -> Iterator[Figure]:
    """Recording, the harness, and how fast clusters start."""
    yield Figure("recording one operation, µs CPU", "≤ 1.5", recording_us())
    for lock in sampled():
        up_s = []
        for start in range(1, STARTS + 1):
            began = time.monotonic()
            with running(make_case(lock, "none", seed=0).topology) as cluster:
                up_s.append(time.monotonic() - began)
                if start == STARTS:
                    what = f"harness ÷ bare gevent loop, CPU, {lock}"
                    yield Figure(what, "≤ 1.15", ratios(lock, cluster))
        yield Figure(f"cluster of {lock} up and verified, s", UP_S[lock], up_s)


def recording_us() -> list[float]:
    """CPU per invoke and complete, in microseconds, one number per round."""
    spent = []
    for _ in range(RECORD_ROUNDS):
        with (
            tempfile.TemporaryDirectory() as folder,
            closing(Recorder(Path(folder), 1)) as recorder,
        ):
            begin = time.process_time_ns()
            for number in range(RECORDS):
                handle = recorder.invoke(1, F.ACQUIRE, "k0", hold=number)
                recorder.complete(handle, Type.OK, fence=number, sent_ns=1, valid_until_ns=2)
            spent.append((time.process_time_ns() - begin) / 1e3 / RECORDS)
    return spent


def ratios(lock: str, cluster: Cluster) -> list[float]:
    """CPU of a cycle through the harness, divided by that of the bare calls."""
    case = make_case(lock, "none", seed=0)
    with tempfile.TemporaryDirectory() as folder, Fleet(Path(folder), "perf", WORKERS) as fleet:
        fleet.launch()
        nodes = (tuple(cluster.addresses(1)),)
        usual = load_of(case, fleet, cluster, case.phases)
        one_client = replace(usual, keys=1, clients=1, solo=0, rivals=0, workers=0, nodes=nodes)
        one_client.save(fleet.load_file)
        here = {ENVIRONMENT: str(fleet.load_file), WORKER_ENVIRONMENT: "0"}
        spent = told_by("-m", "lockbench.workloads.cost", str(PAIRS), str(TURNS), **here)
    return [harness / bare for harness, bare in zip(spent["harness"], spent["bare"], strict=True)]


if __name__ == "__main__":
    interruption.arm()
    main()
